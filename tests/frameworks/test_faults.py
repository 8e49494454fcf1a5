"""What fails between an agent and its tools, inside an adapter or at the gateway, lets nothing run or be seen."""

from __future__ import annotations

import ast
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aegis.cli.demo.provider import Turn
from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer
from aegis.sdk.client import Client
from frameworks.conftest import NAME, framework
from frameworks.model import MAIL, READ, Agent, Way, agent, hooked
from support.decider import ScriptedDecider, blocked, withheld
from support.raw_server import Received, answer, serving
from support.worlds import scripted

DONE = Turn(text="done")
BOTH = Turn(text="let me", calls=(MAIL, READ))
SECRET = "the words of the file"


class Broken(Exception):
    """What no adapter foresees."""


def broken_deciding(enforcer: Enforcer, attempts: Sequence[Attempt], session: Any = None) -> Any:
    if any(attempt.tool == "send_email" for attempt in attempts):
        raise Broken
    return ENFORCE(enforcer, attempts, session)


def broken_observing(enforcer: Enforcer, results: Sequence[ToolResult]) -> Any:
    if SECRET in str(results):
        raise Broken
    return OBSERVE(enforcer, results)


def broken_refusing(_: Enforced) -> str:
    raise Broken


ENFORCE, OBSERVE = Enforcer.enforce, Enforcer.observe
STEPS: dict[str, tuple[type, Any]] = {
    "enforce": (Enforcer, broken_deciding),
    "observe": (Enforcer, broken_observing),
    "refusal": (Enforced, property(broken_refusing)),
}


@contextmanager
def refusing() -> Iterator[tuple[ScriptedDecider, list[Agent]]]:
    """A decider that lets no mail be sent and nothing of the file be seen; then, that this was so in every world."""
    decider, worlds = scripted(send_email=blocked), list[Agent]()
    decider.inspect = lambda value: withheld(value) if SECRET in str(value) else ScriptedDecider().inspect(value)
    yield decider, worlds
    for world in worlds:
        assert "send_email" not in world.ran_tools()
        assert SECRET not in json.dumps([one.body for one in world.asked])


def drive(way: Way, decider: ScriptedDecider, worlds: list[Agent]) -> None:
    """A run to its end, which an exception may be: some frameworks tell it to the model, some to the host."""
    with suppress(Exception), hooked(framework(), decider), agent(framework(), way, BOTH, DONE) as world:
        world.results["read_file"] = SECRET
        worlds.append(world)
        way.drive(world)


@pytest.mark.parametrize("step", STEPS)
def test_an_exception_inside_the_adapter_lets_nothing_run(way: Way, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, broken = STEPS[step]
    monkeypatch.setattr(owner, step, broken)
    with refusing() as (decider, worlds):
        drive(way, decider, worlds)


class Points(ast.NodeTransformer):
    """Every function of a module tells `point` that it is called, before it does anything."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._begun(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._begun(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        both = ast.Tuple(elts=[_told(f"lambda of line {node.lineno}"), node.body], ctx=ast.Load())
        node.body = ast.Subscript(value=both, slice=ast.Constant(1), ctx=ast.Load())
        return node

    def _begun(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(value=_told(f"{node.name} of line {node.lineno}")))
        return node


def _told(name: str) -> ast.expr:
    return ast.Call(func=ast.Name(id="point", ctx=ast.Load()), args=[ast.Constant(name)], keywords=[])


@pytest.fixture
def point(monkeypatch: pytest.MonkeyPatch) -> Point:
    """The adapter under test is one whose functions fail as this says."""
    original = import_module(f"aegis.adapters.{NAME}")
    tree = ast.fix_missing_locations(Points().visit(ast.parse(Path(str(original.__file__)).read_text())))
    module, point = ModuleType(original.__name__), Point()
    monkeypatch.setitem(sys.modules, original.__name__, module)
    module.__dict__.update(__file__=original.__file__, __package__=original.__package__, point=point)
    exec(compile(tree, str(original.__file__), "exec"), module.__dict__)
    return point


@dataclass
class Point:
    """Where functions of the adapter begin: those of the name `broken` fail."""

    met: dict[str, None] = field(default_factory=dict)
    broken: str = ""

    def __call__(self, name: str) -> None:
        self.met[name] = None
        if name == self.broken:
            raise Broken


# AutoGen's agents wait for ever for a call that raises: this function of its adapter is what ends it instead.
LAST_RESORT = ("autogen", "execute")


def test_whichever_function_of_the_adapter_fails_nothing_runs(point: Point) -> None:
    way = framework().ways[0]
    with refusing() as (decider, worlds):
        drive(way, decider, worlds)
    assert worlds[0].ran_tools() == ["read_file"]
    for name in [one for one in point.met if (NAME, one.partition(" ")[0]) != LAST_RESORT]:
        point.met, point.broken = {}, name
        with refusing() as (decider, worlds):
            drive(way, decider, worlds)
        assert name in point.met


RELEASED = threading.Event()


def never() -> None:
    RELEASED.wait(60)


# What a gateway does, and for how many seconds the agent is patient with it; nothing is asked of one that is down.
GATEWAYS: dict[str, tuple[Callable[[Received], bytes | None], float]] = {
    "is-down": (lambda _: None, 60),
    "limits": (lambda _: answer(429, {"error": {"code": "rate_limited"}}, "retry-after: 60"), 60),
    "fails": (lambda _: answer(500, b"oops"), 60),
    "babbles": (lambda _: answer(200, b'{"decision": "allow"}'), 60),
    "is-no-gateway": (lambda _: b"220 mail.example.com ESMTP\r\n\r\n", 60),
    "hangs-up": (lambda _: None, 60),
    "is-slow": (lambda _: never(), 0.05),
}


@dataclass
class Faulty(ScriptedDecider):
    """Asks, about calls that name a fault in an argument, a gateway that has it."""

    gateways: dict[str, Client] = field(default_factory=dict)

    def decide(self, call: ToolCall) -> Decision:
        client = self.gateways.get(str(call.arguments.get("to")))
        return super().decide(call) if client is None else client.decide(call)

    async def adecide(self, call: ToolCall) -> Decision:
        client = self.gateways.get(str(call.arguments.get("to")))
        return await super().adecide(call) if client is None else await client.adecide(call)


def mails() -> Turn:
    """A turn with one call for every fault, and one that nothing is wrong with."""
    faulty = [replace(MAIL, arguments={"to": fault}, id=f"call_mail_{fault}_0123456789") for fault in GATEWAYS]
    return Turn(calls=(*faulty, READ))


def test_a_gateway_that_does_not_decide_lets_nothing_run(way: Way) -> None:
    RELEASED.clear()
    with serving(lambda asked: GATEWAYS[asked.json["arguments"]["to"]][0](asked)) as server:
        urls = {fault: "http://127.0.0.1:9" if fault == "is-down" else server.url for fault in GATEWAYS}
        clients = {fault: Client(urls[fault], api_key="k", timeout=GATEWAYS[fault][1]) for fault in GATEWAYS}
        with hooked(framework(), Faulty(gateways=clients)), agent(framework(), way, mails(), DONE) as world:
            assert way.drive(world) == "done"
        met = {one.json["arguments"]["to"] for one in server.received}
        RELEASED.set()
        for client in clients.values():
            client.close()
    assert world.ran_tools() == ["read_file"]
    assert met | {"is-down", "is-slow"} == set(GATEWAYS)
