"""What hooking a framework says, refuses, and puts back: the same of every adapter."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

import aegis
from aegis.cli.demo.provider import Turn
from aegis.enforce.patching import Patches
from aegis.errors import UnhookedFramework
from aegis.sdk.hooking import unhook
from frameworks.conftest import NAME, framework
from frameworks.model import MAIL, READ, agent, hooked
from support.worlds import scripted


def adapter() -> Any:
    return import_module(f"aegis.adapters.{NAME}")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o700)
    yield tmp_path
    unhook()


def test_the_report_names_the_framework_its_version_and_its_seams(home: Path) -> None:
    report = aegis.auto(home=home)
    (hooked,) = [one for one in report.hooked if one.framework == adapter().DISTRIBUTION]
    assert hooked.version == metadata.version(adapter().DISTRIBUTION)
    assert hooked.seams
    assert f"{hooked.framework} {hooked.version} (supported {hooked.supported}): {hooked.seams[0]}" in str(report)


@pytest.mark.parametrize("bound", [0, 1], ids=["older", "newer"])
def test_an_unsupported_version_is_an_error_that_names_the_range(
    home: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    installed, name = metadata.version, adapter().DISTRIBUTION
    other = "0.0.1" if bound == 0 else ".".join(map(str, adapter().SUPPORTED[1]))
    monkeypatch.setattr(metadata, "version", lambda one: other if one == name else installed(one))
    low, high = (".".join(map(str, one)) for one in adapter().SUPPORTED)
    with pytest.raises(UnhookedFramework, match=f"`{name}` {other} is not supported") as raised:
        aegis.auto(home=home)
    assert str(raised.value).endswith(f"supported is >={low},<{high}")


def test_unhooking_puts_every_original_back(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[tuple[Any, str, Any]] = []
    families: list[tuple[Any, Any]] = []
    replace, family = Patches.replace, Patches.family

    def noting(patches: Patches, owner: Any, name: str, make: Any) -> None:
        before = owner.__dict__.get(name)
        replace(patches, owner, name, make)
        replaced.append((owner, name, before))

    def noting_family(patches: Patches, base: Any, makers: dict[str, Any]) -> None:
        families.append((base, base.__dict__.get("__init_subclass__")))
        family(patches, base, makers)

    monkeypatch.setattr(Patches, "replace", noting)
    monkeypatch.setattr(Patches, "family", noting_family)
    way = framework().ways[0]
    with (
        hooked(framework(), scripted()),
        agent(framework(), way, Turn(calls=(MAIL, READ)), Turn(text="done")) as world,
    ):
        way.drive(world)  # whatever is loaded late is loaded now
        assert any(owner.__dict__[name] is not before for owner, name, before in replaced)
    assert replaced
    first: dict[tuple[int, str], Any] = {}
    for owner, name, before in replaced:
        original = first.setdefault((id(owner), name), before)
        assert owner.__dict__[name] is original, f"{owner}.{name}"
    for base, before in families:
        assert base.__dict__.get("__init_subclass__") is before, base
