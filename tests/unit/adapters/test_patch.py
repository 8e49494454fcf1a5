"""Replaced methods come back, and replacements that stay in a chain do nothing any more."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from aegis.enforce.patching import Method, Patches
from aegis.errors import UnhookedFramework


class Base:
    def inherited(self) -> str:
        return "inherited"


class Client(Base):
    def send(self, text: str) -> str:
        """Send."""
        return text

    async def asend(self, text: str) -> str:
        return text


def loud(original: Method) -> Method:
    return lambda self, text: original(self, text.upper())


def aloud(original: Method) -> Method:
    async def replacement(self: Any, text: str) -> Any:
        return await original(self, text.upper())

    return replacement


async def test_methods_are_replaced_and_put_back() -> None:
    before = dict(Client.__dict__)
    patches = Patches()
    patches.replace(Client, "send", loud)
    patches.replace(Client, "asend", aloud)
    assert Client().send("a") == "A"
    assert await Client().asend("a") == "A"
    assert Client.send.__doc__ == "Send."
    assert inspect.iscoroutinefunction(Client.asend)
    patches.undo()
    assert dict(Client.__dict__) == before


def test_a_replacement_that_somebody_wrapped_becomes_inert() -> None:
    original = Client.__dict__["send"]
    patches = Patches()
    patches.replace(Client, "send", loud)
    ours = Client.__dict__["send"]
    try:
        Client.send = lambda self, text: f"<{ours(self, text)}>"  # type: ignore[method-assign]
        assert Client().send("a") == "<A>"
        patches.undo()
        assert Client().send("a") == "<a>"
    finally:
        Client.send = original  # type: ignore[method-assign]


@pytest.mark.parametrize("name", ["missing", "inherited"])
def test_a_seam_that_is_not_there_is_said_so(name: str) -> None:
    with pytest.raises(UnhookedFramework, match=name):
        Patches().replace(Client, name, loud)


def test_two_families_under_one_base_leave_it_as_it_was() -> None:
    class Root:
        def send(self, text: str) -> str:
            return text

    before, patches = dict(Root.__dict__), Patches()
    patches.family(Root, {"send": loud})
    patches.family(Root, {"send": loud})
    patches.undo()
    assert dict(Root.__dict__) == before
