"""What a driver says about its framework: which adapters hook it, and every way in which it runs tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from aegis.cli.demo.provider import Call, ScriptedProvider, Turn
from aegis.core.decider import Decider
from aegis.enforce.enforcement import OnApproval
from aegis.testing import adapters
from support.worlds import World

MAIL = Call(tool="send_email", arguments={"to": "a@example.com"}, id="call_mail_0123456789")
READ = Call(tool="read_file", arguments={"path": "notes.txt"}, id="call_read_0123456789")
BOOK = Call(tool="book", arguments={"count": "3"}, id="call_book_0123456789")
RESULTS = {"send_email": "sent", "read_file": "text", "book": "booked"}

# What a way has: `ids` keeps the model's ids, `coerces` turns "3" into 3, `broken` spells arguments that are no JSON,
# `runs` has the framework run the bodies itself, and not code of the host.
Ability = Literal["ids", "coerces", "broken", "defaults", "validates", "runs"]
EVERYTHING: frozenset[Ability] = frozenset({"ids", "coerces", "broken", "defaults", "validates", "runs"})

Drive = Callable[[World], str]
Provide = Callable[[Sequence[Turn]], Any]


def blocking_functions(world: World) -> list[Any]:
    """The tools of the world as functions of the host."""

    def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail."""
        return world.run("send_email", {"to": to, "subject": subject})

    def read_file(path: str) -> str:
        """Read a file."""
        return world.run("read_file", {"path": path})

    def book(count: int, item: str = "tea") -> str:
        """Book something."""
        return world.run("book", {"count": count, "item": item})

    return [send_email, read_file, book]


def functions(world: World) -> list[Any]:
    """The same, for frameworks that await: one is a coroutine function."""

    async def read_file(path: str) -> str:
        """Read a file."""
        return world.run("read_file", {"path": path})

    send_email, _, book = blocking_functions(world)
    return [send_email, read_file, book]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run an agent to its end; `wrap` puts the turns into a longer conversation.

    `hands_off` is the tool of the framework itself by which another agent goes on.
    """

    name: str
    drive: Drive
    wrap: Callable[[Sequence[Turn]], Sequence[Turn]] = lambda turns: turns
    can: frozenset[Ability] = EVERYTHING
    hands_off: str = ""


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework with its ways; `adapters` are hooked, those of the SDKs underneath included."""

    adapters: tuple[str, ...]
    ways: Sequence[Way]
    provide: Provide = ScriptedProvider
    # Has every call run twice, by middleware or by going back to it, and gives the text of the last run; or says why
    # there is no such thing.
    again: Drive | str
    # The ways over which the user's words do not arrive by themselves (`*`: none): the host says them.
    unheard: frozenset[str] = frozenset()
    # By what it does: code of the host (middleware, callbacks, wrappers) that runs a tool beside its decision.
    beside: Mapping[str, Drive] = field(default_factory=dict)
    # And code of the host that stands on a call's way, and must not be in it.
    fair: Mapping[str, Drive] = field(default_factory=dict)

    def hears(self, way: Way) -> bool:
        """Whether the user's words arrive over this way."""
        return self.unheard.isdisjoint({"*", way.name})


@dataclass
class Agent(World):
    """A world with one tool more, whose model asked for it with other types than it takes."""

    results: dict[str, str] = field(default_factory=lambda: dict(RESULTS))
    # What the bodies of these tools say when they fail.
    failing: dict[str, str] = field(default_factory=dict)

    def run(self, tool: str, arguments: dict[str, Any]) -> str:
        result = super().run(tool, arguments)
        if tool in self.failing:
            raise RuntimeError(self.failing[tool])
        return result

    def result_of(self, call: Call) -> Any:
        """What the model was given as the result of a call; raises `KeyError` where it was given none."""
        for request in range(len(self.asked)):
            found = self.results_sent(request)
            if call.id in found:
                return found[call.id]
        raise KeyError(call.id)

    def ran_tools(self) -> list[str]:
        """The tools that ran, by name: calls of one turn may run in any order."""
        return sorted(tool for tool, _ in self.ran)


@contextmanager
def agent(framework: Framework, way: Way, *turns: Turn) -> Iterator[Agent]:
    """A world whose provider says `turns`, in the conversation of this way."""
    with framework.provide(way.wrap(turns)) as provider:
        yield getattr(provider, "world", Agent)(provider=provider)


@contextmanager
def hooked(
    framework: Framework, decider: Decider, *, on_approval: OnApproval = "wait", alarms: list[str] | None = None
) -> Iterator[None]:
    """The framework and the SDKs under it, hooked to a decider for the block; `alarms` gets the tools of alarms."""
    modules = [import_module(f"aegis.adapters.{name}") for name in framework.adapters]
    with adapters.hooked(*modules, decider=decider, on_approval=on_approval, alarms=alarms):
        yield
