"""`protect`: any callable is decided before its body runs, on its final arguments, and observed after."""

from __future__ import annotations

import asyncio
import datetime
import io
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

import aegis
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.errors import InvalidCall, ToolCallBlocked
from aegis.sdk.runtime import Runtime, replace_runtime
from support.decider import ScriptedDecider, allowed, blocked, changed, held, sanitized, withheld


@pytest.fixture
def decider() -> Iterator[ScriptedDecider]:
    scripted = ScriptedDecider()
    replace_runtime(
        Runtime(enforcer=Enforcer(scripted), host=scripted, memory=Memory(), gateway="test", authenticated=None)
    )
    yield scripted
    replace_runtime(None)
    assert scripted.closed


class Order(pydantic.BaseModel):
    item: str
    count: int = 1


@dataclass
class Place:
    path: str


def test_the_decision_is_about_the_final_arguments(decider: ScriptedDecider) -> None:
    @aegis.protect
    def order(item: str, /, count: int = 2, *more: str, note: str = "none", **extra: Any) -> str:
        """Order."""
        return f"{item} {count} {more} {note} {extra}"

    assert order("tea", 3, "a", "b", size="big") == "tea 3 ('a', 'b') none {'size': 'big'}"
    assert order.__name__ == "order"
    assert order.__doc__ == "Order."
    (call,) = decider.decided
    assert call.tool == "order"
    assert call.arguments == {"item": "tea", "count": 3, "more": ["a", "b"], "note": "none", "size": "big"}
    assert call.unresolved == ()


def test_a_blocked_body_does_not_run(decider: ScriptedDecider) -> None:
    ran: list[str] = []
    decider.rules["wipe"] = blocked

    @aegis.protect(name="wipe", server="mcp:disk")
    def anything(path: str) -> None:
        ran.append(path)

    with pytest.raises(ToolCallBlocked) as raised:
        anything("/")
    assert ran == []
    assert raised.value.decision.reason is Reason.POLICY_DENIED
    assert decider.decided[0].server == "mcp:disk"


async def test_async_functions_are_decided_and_observed(decider: ScriptedDecider) -> None:
    decider.inspect = lambda value: changed("[masked]")

    @aegis.protect
    async def fetch(url: str) -> str:
        await asyncio.sleep(0)
        return "secret"

    assert await fetch("https://example.com") == "[masked]"
    decider.rules["fetch"] = blocked
    with pytest.raises(ToolCallBlocked):
        await fetch("https://example.com/2")


def test_changed_arguments_are_what_the_body_gets(decider: ScriptedDecider) -> None:
    decider.rules["pay"] = sanitized(to="b", order={"item": "tea", "count": 5}, when="2030-01-02")

    @aegis.protect
    def pay(to: str, order: Order, when: datetime.date, note: str = "default") -> Any:
        return to, order, when, note

    assert pay("a", Order(item="tea", count=9), datetime.date(2029, 1, 1), note="x") == (
        "b",
        Order(item="tea", count=5),
        datetime.date(2030, 1, 2),
        "default",
    )


def test_an_argument_that_was_added_blocks_where_there_is_no_place_for_it(decider: ScriptedDecider) -> None:
    decider.rules.update(dict.fromkeys(("closed", "open_"), sanitized(a=1, b=2)))

    @aegis.protect
    def closed(a: int) -> int:
        return a

    @aegis.protect
    def open_(a: int, **rest: int) -> dict[str, int]:
        return rest

    with pytest.raises(ToolCallBlocked):
        closed(a=0)
    assert open_(a=0) == {"b": 2}


def test_changed_arguments_that_the_function_cannot_take_block(decider: ScriptedDecider) -> None:
    decider.rules["pay"] = sanitized(when="never")

    @aegis.protect
    def pay(when: datetime.date) -> None:
        raise AssertionError("must not run")

    with pytest.raises(ToolCallBlocked) as raised:
        pay(datetime.date(2029, 1, 1))
    assert raised.value.decision.reason is Reason.SCHEMA_INVALID


def test_the_body_runs_on_what_was_decided_and_not_on_what_the_caller_still_holds(decider: ScriptedDecider) -> None:
    shared: dict[str, Any] = {"list": ["a"]}
    order = Order(item="tea")

    def meddle(call: ToolCall) -> Decision:
        shared["list"].append("evil")
        order.item = "evil"
        return allowed(call)

    decider.rules["use"] = meddle

    @aegis.protect
    def use(given: dict[str, Any], order: Order) -> Any:
        return given, order.item

    assert use(shared, order) == ({"list": ["a"]}, "tea")


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([1]),
        lambda: (n for n in [1]),
        lambda: {"deep": [io.StringIO("x")]},
        lambda: object(),
        lambda: open_connection(),
    ],
    ids=["iterator", "generator", "nested file", "no form", "cannot be copied"],
)
def test_what_has_no_json_form_is_declared_unresolved(decider: ScriptedDecider, make: Callable[[], Any]) -> None:
    @aegis.protect
    def send(to: str, body: Any) -> Any:
        return "ok" if body is not None else "lost"

    assert send("a", make()) == "ok"
    (call,) = decider.decided
    assert call.arguments == {"to": "a", "body": None}
    assert call.unresolved == ("/body",)


def open_connection() -> Any:
    class Connection:
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("one of a kind")

    return Connection()


def test_what_a_method_is_called_on_is_not_an_argument(decider: ScriptedDecider) -> None:
    class Mailer:
        def __init__(self) -> None:
            self.sent: list[str] = []

        @aegis.protect
        def send(self, to: str) -> str:
            self.sent.append(to)
            return "sent"

    mailer = Mailer()
    assert mailer.send("a") == "sent"
    assert mailer.sent == ["a"]
    assert decider.decided[0].arguments == {"to": "a"}


def test_results_pass_are_changed_or_withheld(decider: ScriptedDecider) -> None:
    place = Place("/tmp")

    @aegis.protect
    def find() -> Any:
        return place

    assert find() is place
    assert decider.observed[0].result == {"path": "/tmp"}
    decider.inspect = lambda value: changed({"path": "****"})
    assert find() == {"path": "****"}
    decider.inspect = withheld
    with pytest.raises(ToolCallBlocked) as raised:
        find()
    assert (raised.value.decision.outcome, raised.value.decision.reason) == (Outcome.BLOCK, Reason.ATTACK_DETECTED)


def test_a_result_that_is_a_stream_is_withheld(decider: ScriptedDecider) -> None:
    @aegis.protect
    def lines() -> Any:
        return iter(["secret"])

    with pytest.raises(ToolCallBlocked) as raised:
        lines()
    assert raised.value.decision.reason is Reason.INSUFFICIENT_EVIDENCE


async def test_generators_are_decided_first_and_observed_whole(decider: ScriptedDecider) -> None:
    decider.inspect = lambda value: changed([f"<{item}>" for item in value])

    @aegis.protect
    def count(to: int) -> Iterator[Any]:
        yield from range(to)

    @aegis.protect
    async def acount(to: int) -> AsyncIterator[Any]:
        for number in range(to):
            yield number

    assert list(count(2)) == ["<0>", "<1>"]
    assert [item async for item in acount(2)] == ["<0>", "<1>"]
    decider.rules["count"] = blocked
    with pytest.raises(ToolCallBlocked):
        next(count(3))


def test_a_held_call_waits(decider: ScriptedDecider) -> None:
    decider.rules["pay"] = held
    decider.resolve = allowed

    @aegis.protect
    def pay(amount: int) -> int:
        return amount

    assert pay(3) == 3
    assert len(decider.waited) == 1


def test_an_error_of_the_body_is_the_callers(decider: ScriptedDecider) -> None:
    @aegis.protect
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    with pytest.raises(TypeError):
        fail(1)  # type: ignore[call-arg]


async def test_calls_belong_to_the_session_of_their_own_task(decider: ScriptedDecider) -> None:
    @aegis.protect
    async def act(name: str) -> str:
        return name

    async def one(name: str) -> None:
        with aegis.session(name, task=f"task of {name}"):
            await asyncio.sleep(0)
            await act(name)

    await asyncio.gather(*(one(f"s-{number}") for number in range(5)))
    await act("outside")
    assert {(call.arguments["name"], call.session, call.task) for call in decider.decided} == {
        *((f"s-{number}", f"s-{number}", f"task of s-{number}") for number in range(5)),
        ("outside", None, None),
    }


def test_sessions_nest_and_are_checked() -> None:
    from aegis.enforce.scope import current_session

    with aegis.session("outer"), aegis.session("inner") as inner:
        assert current_session() == inner
    assert current_session() is None
    for name in ("", " ", "x" * 1_000):
        with pytest.raises(InvalidCall):
            aegis.session(name)


@pytest.mark.parametrize("form", ["function", "coroutine", "generator", "async generator"])
def test_an_exception_passes_only_where_its_words_may_be_seen(decider: ScriptedDecider, form: str) -> None:
    def pay() -> str:
        raise ValueError("a secret")

    async def apay() -> str:
        return pay()

    def pays() -> Iterator[str]:
        yield pay()

    async def apays() -> AsyncIterator[str]:
        yield pay()

    async def anext_of() -> Any:
        return await anext(aegis.protect(apays)())

    calls: dict[str, Callable[[], Any]] = {
        "function": aegis.protect(pay),
        "coroutine": lambda: asyncio.run(aegis.protect(apay)()),
        "generator": lambda: next(aegis.protect(pays)()),
        "async generator": lambda: asyncio.run(anext_of()),
    }
    with pytest.raises(ValueError, match="a secret"):
        calls[form]()
    for inspect in (withheld, lambda _: changed("[masked]")):
        decider.inspect = inspect
        with pytest.raises(ToolCallBlocked) as raised:
            calls[form]()
        assert raised.value.__suppress_context__
        assert "secret" not in str(raised.value)
    assert {one.result for one in decider.observed} == {"a secret"}
