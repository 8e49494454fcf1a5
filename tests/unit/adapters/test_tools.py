"""A call that its own body makes again ends, whatever becomes of reading its arguments."""

from __future__ import annotations

from typing import Any

from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.runner import Execution
from aegis.enforce.tools import Ran, ToolGate
from support.decider import ScriptedDecider

GIVEN = {"path": "a.txt"}


class ReadOnce:
    """Arguments that cannot be read the first time."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 1:
            raise OSError("for a moment")
        return GIVEN


def execution(arguments: Any) -> Execution:
    return Execution(tool="read_file", call_id="call_read_0123456789", answer_id=None, arguments=arguments)


def test_a_call_in_its_own_body_that_is_not_known_again_at_once_is_refused() -> None:
    gate, inner = ToolGate(Enforcer(ScriptedDecider()), Memory()), list[Ran]()

    def body(given: dict[str, Any]) -> str:
        inner.append(gate.call(execution(ReadOnce()), lambda _: "the inner body ran"))
        return "the words of the file"

    ran = gate.call(execution(lambda: GIVEN), body)
    assert (ran.seen, ran.refused) == ("the words of the file", False)
    assert [(one.refused, one.result) for one in inner] == [(True, None)]


async def test_the_same_in_an_event_loop() -> None:
    gate, inner = ToolGate(Enforcer(ScriptedDecider()), Memory()), list[Ran]()

    async def never(given: dict[str, Any]) -> str:
        return "the inner body ran"

    async def body(given: dict[str, Any]) -> str:
        inner.append(await gate.acall(execution(ReadOnce()), never))
        return "the words of the file"

    ran = await gate.acall(execution(lambda: GIVEN), body)
    assert (ran.seen, ran.refused) == ("the words of the file", False)
    assert [(one.refused, one.result) for one in inner] == [(True, None)]
