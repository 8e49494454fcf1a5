"""Tools that a framework executes: enforced where the body runs, once, and the result observed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from aegis.core.bounded import Bounded
from aegis.core.canonical import canonical
from aegis.core.json import parse
from aegis.enforce.arguments import jsonable
from aegis.enforce.enforcement import Enforced, Enforcer
from aegis.enforce.failures import is_one_of
from aegis.enforce.memory import Memory
from aegis.enforce.runner import Execution, Judged, RunnerGate, View
from aegis.enforce.scope import (
    Holding,
    ScopePassage,
    body_of,
    current_scope,
    inside,
    passing,
    permit_context,
    reached,
    scoped,
)
from aegis.errors import CallRefused

# One execution for one decision: whoever comes again with the same call gets what the first one got.

MAX_RESULTS: Final = 1_000  # results are kept alive as they are, whatever their size


# The executions in whose bodies this code runs.
_around: ContextVar[frozenset[str]] = ContextVar("aegis_around", default=frozenset())


class WaitsForItself(Exception):
    """An execution was begun again inside its own body, which cannot end before it."""


class _Run:
    """One execution: its result once it is `done`, and those who wait for it until then."""

    __slots__ = ("done", "result", "waiting")

    def __init__(self) -> None:
        self.done = False
        self.result: Any = None
        self.waiting: list[Future[Any]] = []


class Once:
    """Remembers the executions of this process by decision; what failed may be tried again."""

    def __init__(self, max_results: int = MAX_RESULTS) -> None:
        self._lock = threading.Lock()
        self._runs: Bounded[str, _Run] = Bounded(max_results, 0)

    def run(self, key: str, body: Callable[[], Any]) -> Any:
        """The result of `body`, which runs unless it runs or ran under this key; an empty key is never known.

        Raises what `body` raises, and `WaitsForItself`.
        """
        if not key:
            return body()
        run, waiter = self._claim(key)
        if waiter is not None:
            return waiter.result()
        if run.done:
            return run.result
        try:
            with _inside(key):
                result = body()
        except BaseException as error:
            self._failed(key, run, error)
            raise
        self._succeeded(run, result)
        return result

    async def arun(self, key: str, body: Callable[[], Awaitable[Any]]) -> Any:
        """The async twin of `run`."""
        if not key:
            return await body()
        run, waiter = self._claim(key)
        if waiter is not None:
            return await asyncio.wrap_future(waiter)
        if run.done:
            return run.result
        try:
            with _inside(key):
                result = await body()
        except BaseException as error:
            self._failed(key, run, error)
            raise
        self._succeeded(run, result)
        return result

    def knows(self, key: str) -> bool:
        """Whether an execution under this key is running, or has a result."""
        with self._lock:
            return self._runs.get(key) is not None

    def _claim(self, key: str) -> tuple[_Run, Future[Any] | None]:
        """The execution under this key; with something to wait on where it is somebody else's and not done."""
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                run = _Run()
                self._runs.put(key, run)
                return run, None
            if run.done:
                return run, None
            if key in _around.get():
                raise WaitsForItself
            waiter: Future[Any] = Future()
            # Whoever gives up waiting cannot cancel what others are told.
            waiter.set_running_or_notify_cancel()
            run.waiting.append(waiter)
            return run, waiter

    def _succeeded(self, run: _Run, result: Any) -> None:
        with self._lock:
            run.result, run.done = result, True
        for waiter in run.waiting:
            waiter.set_result(result)

    def _failed(self, key: str, run: _Run, error: BaseException) -> None:
        with self._lock:
            self._runs.drop(key)
        for waiter in run.waiting:
            waiter.set_exception(error)


def _inside(key: str) -> Holding[frozenset[str]]:
    return Holding(_around, _around.get() | {key})


_BESIDE: Final = "was refused: its body was given something else than what was decided"
_ANSWERED: Final = "was refused: what was given in place of its result came without a decision"


class Ran(NamedTuple):
    """What became of a call.

    `seen` is what the model may see: the refusal, or the view of the result, changed or not. `result` is
    what the body gave; nothing of it may be used where the call was `refused` or the result `withheld`.
    """

    seen: Any
    result: Any = None
    refused: bool = False
    changed: bool = False
    withheld: bool = False

    @property
    def replaced(self) -> bool:
        """Whether the model sees something else than the body gave."""
        return self.refused or self.changed

    @property
    def failed(self) -> bool:
        """Whether nothing that the body gave may be used."""
        return self.refused or self.withheld

    @property
    def text(self) -> str:
        """What the model may see, as text."""
        return self.seen if isinstance(self.seen, str) else json.dumps(self.seen)

    @property
    def told(self) -> Any:
        """What a framework tells the model: what the body gave, or what stands in its place."""
        return self.seen if self.replaced else self.result

    def output(self) -> Any:
        """Give what the tool gives back; raises `CallRefused` where that is nothing."""
        if self.failed:
            raise CallRefused(self.seen)
        return self.told


class ToolGate:
    """Runs the bodies of a framework's tools: decided with their final arguments, once, their results observed.

    `pauses` names the framework's exceptions by which a body stops without failing, as `module.Class`.
    """

    def __init__(self, enforcer: Enforcer, memory: Memory, *, pauses: Sequence[str] = ()) -> None:
        self._once = Once()
        self._gate = RunnerGate(enforcer, memory, self._once.knows)
        self._enforcer = enforcer
        self._pauses = frozenset(pauses)

    def call(self, execution: Execution, body: Callable[[dict[str, Any]], Any], view: View = jsonable) -> Ran:
        """Run `body` with the arguments that may run, if any may.

        An exception of the body passes through where its words may be seen; otherwise the call has a withheld result.
        """
        reached(execution.call_id)
        inner = _inner(execution)
        if inner is not None:
            key = _inner_key(execution)

            def pass_on() -> Ran:
                with scoped(inside(key)):
                    result = body(inner)
                return Ran(seen=view(result), result=result)

            passed: Ran = self._once.run(key, pass_on)
            return passed
        outcome = self._enforcer.run(self._gate.before(execution))
        if isinstance(outcome, str):
            return Ran(seen=outcome, refused=True)
        enforced, known_by = outcome, _key(execution, outcome)

        def execute() -> Ran:
            passage = ScopePassage(execution.call_id)
            around = body_of(execution.tool, enforced.body, known_by, passage)
            try:
                with scoped(around), permit_context(enforced.decision.permit):
                    result = body(enforced.arguments())
            except Exception as error:
                if passage.beside:
                    raise _Beside from None
                if self._paused(error):
                    raise
                failed = self._enforcer.run(self._gate.failed(execution, enforced, error))
                if failed.changed:
                    raise _Withheld(failed) from None
                raise
            if passage.beside:
                raise _Beside
            return _ran(result, self._enforcer.run(self._gate.judged(execution, enforced, result, view)))

        try:
            ran: Ran = self._once.run(known_by, execute)
        except _Withheld as failure:
            return _ran(None, failure.judged)
        except _Beside:
            return Ran(seen=self._gate.refused(execution, f"`{execution.tool}` {_BESIDE}"), refused=True)
        except WaitsForItself:
            return _within_itself(execution)
        return ran

    async def acall(
        self, execution: Execution, body: Callable[[dict[str, Any]], Awaitable[Any]], view: View = jsonable
    ) -> Ran:
        """The async twin of `call`."""
        reached(execution.call_id)
        inner = _inner(execution)
        if inner is not None:
            key = _inner_key(execution)

            async def pass_on() -> Ran:
                with scoped(inside(key)):
                    result = await body(inner)
                return Ran(seen=view(result), result=result)

            passed: Ran = await self._once.arun(key, pass_on)
            return passed
        outcome = await self._enforcer.arun(self._gate.before(execution))
        if isinstance(outcome, str):
            return Ran(seen=outcome, refused=True)
        enforced, known_by = outcome, _key(execution, outcome)

        async def execute() -> Ran:
            passage = ScopePassage(execution.call_id)
            around = body_of(execution.tool, enforced.body, known_by, passage)
            try:
                with scoped(around), permit_context(enforced.decision.permit):
                    result = await body(enforced.arguments())
            except Exception as error:
                if passage.beside:
                    raise _Beside from None
                if self._paused(error):
                    raise
                failed = await self._enforcer.arun(self._gate.failed(execution, enforced, error))
                if failed.changed:
                    raise _Withheld(failed) from None
                raise
            if passage.beside:
                raise _Beside
            return _ran(result, await self._enforcer.arun(self._gate.judged(execution, enforced, result, view)))

        try:
            ran: Ran = await self._once.arun(known_by, execute)
        except _Withheld as failure:
            return _ran(None, failure.judged)
        except _Beside:
            return Ran(seen=self._gate.refused(execution, f"`{execution.tool}` {_BESIDE}"), refused=True)
        except WaitsForItself:
            return _within_itself(execution)
        return ran

    def waiting(self, execution: Execution, told: str) -> None:
        """Know `told` again: the model is given it for a call that has no result yet, and it is no result."""
        self._gate.waiting(execution, told)

    def handed(self, tool: str, call_id: Any) -> Handed:
        """The way of a model's call through code of the host, which may answer in the tool's place."""
        return Handed(self._enforcer, self._gate, tool, call_id if isinstance(call_id, str) else "")

    def _paused(self, error: Exception) -> bool:
        """Whether a body only stops here, to be run again or answered for; no model is told of that."""
        return bool(self._pauses) and is_one_of(error, self._pauses)


class Handed:
    """A model's call in the hands of middleware or callbacks of the host, whose code it runs.

    Only what came of a decision may be the result: a body that they run themselves is refused, and what they give in
    the tool's place is `refusal`, which raises the alarm.
    """

    def __init__(self, enforcer: Enforcer, gate: RunnerGate, tool: str, call_id: str) -> None:
        self._enforcer = enforcer
        self._gate = gate
        self._execution = Execution(tool=tool, call_id=call_id, answer_id=None, arguments=dict)
        around = current_scope().passage
        same = around is not None and current_scope().decided is None and around.call_id == call_id
        self._passage = around if around is not None and same else ScopePassage(call_id)

    @property
    def beside(self) -> bool:
        """Whether a body began beside the decision; what came of it, or what that raised, is of no account."""
        return self._passage.beside

    def run(self, host: Callable[[], Any]) -> Any:
        """Run the host's code; gives what that gave, or nothing where it raised because a body ran beside."""
        try:
            with scoped(passing(self._passage)):
                return host()
        except Exception:
            if not self.beside:
                raise
            return None

    async def arun(self, host: Awaitable[Any]) -> Any:
        """The async twin of `run`."""
        try:
            with scoped(passing(self._passage)):
                return await host
        except Exception:
            if not self.beside:
                raise
            return None

    def refusal(self, *, answered: bool = True) -> str:
        """What the model is told in place of what the host gave, or nothing; `answered` where that is an answer."""
        passage, tool = self._passage, self._execution.tool
        if passage.beside:
            return self._gate.refused(self._execution, f"`{tool}` {_BESIDE}")
        if passage.reached or not answered:
            return ""
        self._enforcer.uncovered(tool)
        return self._gate.refused(self._execution, f"`{tool}` {_ANSWERED}")


class _Beside(Exception):
    """The body began with something else than what was decided; the alarm was raised there."""


class _Withheld(Exception):
    """The body failed, and what it said may not be seen: the call may be tried again, unlike one with a result."""

    def __init__(self, judged: Judged) -> None:
        super().__init__()
        self.judged = judged


def _inner(execution: Execution) -> dict[str, Any] | None:
    """The arguments, where a body hands the very call that was decided on to the tool of another framework."""
    decided = current_scope().decided
    if decided is None or decided[0] != execution.tool:
        return None
    try:
        body = canonical(jsonable(execution.arguments()))
    except Exception:
        return None  # decided like any other call; refused there, at the latest as one that waits for itself
    arguments: dict[str, Any] = parse(body)
    return arguments if body == decided[1] else None


def _inner_key(execution: Execution) -> str:
    """What an execution inside the body of the very call is known again by: each layer runs the next one once."""
    around = current_scope().key
    return f"{around}/" if around and execution.call_id else ""


def _key(execution: Execution, enforced: Enforced) -> str:
    """What an execution is known again by; nothing where the framework gives the call no id."""
    return enforced.decision.decision_id if execution.call_id else ""


def _within_itself(execution: Execution) -> Ran:
    """What becomes of a call that its own body makes again: the one around it goes on."""
    return Ran(seen=f"`{execution.tool}` was not run: this very call is running around it", refused=True)


def _ran(result: Any, judged: Judged) -> Ran:
    return Ran(seen=judged.seen, result=result, changed=judged.changed, withheld=judged.withheld)


# Results of MCP tools as wire JSON: what of one a model is going to see, and the same result with that replaced.

Wire = dict[str, Any]


def mcp_view(result: Wire) -> Any:
    """What is judged of a result: its text where it is nothing else, otherwise all of its content."""
    content, structured = result.get("content") or [], result.get("structuredContent")
    text = _only_text(content)
    if text is not None and structured in (None, {"result": text}):
        return text
    return content if structured is None else {"content": content, "structuredContent": structured}


def mcp_replaced(result: Wire, ran: Ran) -> Wire:
    """The result with what may be seen in place of what was given; an error where that is a refusal or a notice."""
    if ran.failed:
        return mcp_refusal(str(ran.seen))
    kept = {name: value for name, value in result.items() if name not in ("content", "structuredContent")}
    if isinstance(ran.seen, list):
        return {**kept, "content": ran.seen}
    if isinstance(ran.seen, dict) and set(ran.seen) == {"content", "structuredContent"}:
        return {**kept, **ran.seen}
    structured = {} if result.get("structuredContent") is None else {"structuredContent": {"result": ran.text}}
    return {**kept, "content": [{"type": "text", "text": ran.text}], **structured}


def mcp_refusal(text: str) -> Wire:
    """The result of a call that was not run, or whose result may not be seen."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _only_text(content: list[Any]) -> str | None:
    block = content[0] if len(content) == 1 else None
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        text: str = block["text"]
        return text
    return None
