"""The `openai` package: chat completions and responses, sync and async, whole and streamed, and its runners.

What cannot be covered is barred while the hooks are in place: a call over it raises `UnhookedFramework`.
"""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final
from weakref import WeakKeyDictionary

from aegis.enforce.enforcement import Enforced, Enforcer, Steps
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, RunnerGate
from aegis.enforce.scope import within
from aegis.enforce.transport import DEFERRED_HEADER, Transport
from aegis.errors import UnhookedFramework
from aegis.wire.model import ProxyDialect
from aegis.wire.openai_chat import OpenAIChat
from aegis.wire.openai_responses import OpenAIResponses

# Turns of the Responses tool runner whose calls the host may answer itself, with `supply_outputs`.
#
# The host runs those calls out of the turn that it is given, so they are decided before it gets it.

Refuse = Callable[[str, str], dict[str, Any]]


class OfferedTurns:
    """The turns of all runs, without the calls that must not run.

    `execution` says what a run is about to execute for an item, `refuse` makes the output of a refused call. What
    the host supplies is observed in the request that it is sent with.
    """

    def __init__(self, gate: RunnerGate, execution: Callable[[Any, Any], Execution], refuse: Refuse) -> None:
        self._gate = gate
        self._execution = execution
        self._refuse = refuse
        self._decided: WeakKeyDictionary[Any, dict[str, Enforced]] = WeakKeyDictionary()

    def each(self, turns: Generator[Any, None, None]) -> Generator[Any, None, None]:
        """Every turn as the host may see it."""
        with closing(turns):
            for turn in turns:
                yield self._gate.enforcer.run(self._offered(turn))

    async def aeach(self, turns: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """The async twin of `each`."""
        async with aclosing(turns):
            async for turn in turns:
                yield await self._gate.enforcer.arun(self._offered(turn))

    def decided(self, run: Any, call_id: str) -> Enforced | None:
        """What a call was allowed to run with when its turn was given to the host, if it was."""
        return self._decided.get(run, {}).pop(call_id, None)

    def _offered(self, turn: Any) -> Steps[Any]:
        run, supply = turn._supply.func.__self__, turn._supply
        eligible: frozenset[str] = supply.args[1]
        if not eligible:
            return turn
        items: list[Any] = []
        refused: dict[str, dict[str, Any]] = {}
        for item in turn.response.output:
            if item.type == "function_call" and item.call_id in eligible:
                outcome = yield from self._gate.before(self._execution(run, item))
                if isinstance(outcome, str):
                    refused[item.call_id] = self._refuse(item.call_id, outcome)
                    continue
                self._decided.setdefault(run, {})[item.call_id] = outcome
                item = item.model_copy(update={"arguments": outcome.body.decode()})
            items.append(item)
        run.supplied.update(refused)

        def supply_outputs(outputs: Sequence[Any]) -> None:
            supply(outputs)
            # They replace everything that was supplied before.
            run.supplied.update(refused)

        return replace(turn, response=turn.response.model_copy(update={"output": items}), _supply=supply_outputs)


# The runners of the `openai` package: the Responses tool runner and the tools of agent sessions.


def _hook_runners(enforcer: Enforcer, memory: Memory, patches: Patches) -> None:
    """Hook every place where the package runs a tool itself."""
    import openai.lib.beta.agents  # noqa: F401  (its modules import each other; this is the way in)
    from openai.lib.responses_tool_runner import AsyncResponsesToolRunner, ResponsesToolRunner
    from openai.lib.streaming.agents._dispatch import AsyncToolDispatcher, ToolDispatcher

    hooks = _Hooks(RunnerGate(enforcer, memory))
    for runner, each in ((ResponsesToolRunner, hooks.offered.each), (AsyncResponsesToolRunner, hooks.offered.aeach)):
        patches.replace(runner, "iterate", _offering(each))
    patches.replace(ResponsesToolRunner, "_execute_function", hooks.execute)
    patches.replace(AsyncResponsesToolRunner, "_execute_function", hooks.aexecute)
    patches.replace(ResponsesToolRunner, "_dispatch", hooks.browsing)
    patches.replace(AsyncResponsesToolRunner, "_dispatch", hooks.abrowsing)
    patches.replace(ToolDispatcher, "dispatch", hooks.dispatch)
    patches.replace(AsyncToolDispatcher, "dispatch", hooks.adispatch)


def _offering(each: Callable[[Any], Any]) -> Callable[[Method], Method]:
    """Let the transport know which calls the runner is going to enforce when it runs them; give `each` turn."""

    def wrap(original: Method) -> Method:
        def iterate(runner: Any, client: Any, *args: Any, **kwargs: Any) -> Any:
            names = sorted({*runner._functions, *runner._browser_names})
            marked = client.with_options(default_headers={DEFERRED_HEADER: json.dumps(names)})
            return each(original(runner, marked, *args, **kwargs))

        return iterate

    return wrap


_tokens: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _token(run: Any) -> str:
    """A name for an object that no later object can have: addresses are used again."""
    return _tokens.setdefault(run, secrets.token_hex(8))


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: RunnerGate) -> None:
        self._gate = gate
        self._run = gate.enforcer.run
        self._arun = gate.enforcer.arun
        self.offered = OfferedTurns(gate, _execution, _result)

    def execute(self, original: Method) -> Method:
        def execute(runner: Any, run: Any, item: Any) -> Any:
            execution = _execution(run, item)
            outcome = self.offered.decided(run, item.call_id) or self._run(self._gate.before(execution))
            refused = _prepared(run, item, outcome)
            if refused is not None:
                return refused
            with within():
                output = original(runner, run, item)
            seen = self._run(self._gate.after(execution, _enforced(outcome), output["output"]))
            return {**output, "output": _output(seen)}

        return execute

    def aexecute(self, original: Method) -> Method:
        async def execute(runner: Any, run: Any, item: Any) -> Any:
            execution = _execution(run, item)
            outcome: Enforced | str | None = self.offered.decided(run, item.call_id)
            if outcome is None:
                outcome = await self._arun(self._gate.before(execution))
            refused = _prepared(run, item, outcome)
            if refused is not None:
                return refused
            with within():
                output = await original(runner, run, item)
            seen = await self._arun(self._gate.after(execution, _enforced(outcome), output["output"]))
            return {**output, "output": _output(seen)}

        return execute

    def browsing(self, original: Method) -> Method:
        def dispatch(runner: Any, run: Any, browser: Any, *rest: Any) -> Any:
            return original(runner, run, None if browser is None else _GatedBrowser(browser, run, self._gate), *rest)

        return dispatch

    def abrowsing(self, original: Method) -> Method:
        async def dispatch(runner: Any, run: Any, browser: Any, *rest: Any) -> Any:
            gated = None if browser is None else _AsyncGatedBrowser(browser, run, self._gate)
            return await original(runner, run, gated, *rest)

        return dispatch

    def dispatch(self, original: Method) -> Method:
        def dispatch(dispatcher: Any, pending: tuple[str, Any, Method]) -> Any:
            session_id, call, handler = pending

            def gated(parsed: Any) -> Any:
                execution = _agent_execution(session_id, call, parsed)
                outcome = self._run(self._gate.before(execution))
                if isinstance(outcome, str):
                    return outcome
                try:
                    with within():
                        result = _materialised(handler(outcome.arguments()))
                except Exception as error:
                    failed = self._run(self._gate.failed(execution, outcome, error))
                    if failed.changed:
                        return failed.seen
                    raise
                return self._run(self._gate.after(execution, outcome, result))

            return original(dispatcher, (session_id, call, gated))

        return dispatch

    def adispatch(self, original: Method) -> Method:
        async def dispatch(dispatcher: Any, pending: tuple[str, Any, Method]) -> Any:
            session_id, call, handler = pending

            async def gated(parsed: Any) -> Any:
                execution = _agent_execution(session_id, call, parsed)
                outcome = await self._arun(self._gate.before(execution))
                if isinstance(outcome, str):
                    return outcome
                try:
                    with within():
                        result = handler(outcome.arguments())
                        result = _materialised(await result if hasattr(result, "__await__") else result)
                except Exception as error:
                    failed = await self._arun(self._gate.failed(execution, outcome, error))
                    if failed.changed:
                        return failed.seen
                    raise
                return await self._arun(self._gate.after(execution, outcome, result))

            return await original(dispatcher, (session_id, call, gated))

        return dispatch


def _execution(run: Any, item: Any) -> Execution:
    return Execution(
        tool=item.name,
        call_id=item.call_id,
        # A run refuses an id that it has seen, so that the run stands for the answer.
        answer_id=_token(run),
        arguments=lambda: run.arguments[item.call_id],
    )


class _GatedBrowser:
    """A browser toolset as a runner uses it, with every action decided before it is taken."""

    def __init__(self, browser: Any, run: Any, gate: RunnerGate) -> None:
        self._browser = browser
        self._gate = gate
        self._answer_id = _token(run)

    def _execute(self, call: Any, **options: Any) -> Any:
        execution = self._execution(call)
        run = self._gate.enforcer.run
        outcome = run(self._gate.before(execution))
        if isinstance(outcome, str):
            return _result(call.call_id, outcome), True
        output, done = self._browser._execute(_with_arguments(call, outcome), **options)
        seen = run(self._gate.after(execution, outcome, output["output"]))
        return {**output, "output": _output(seen)}, done

    def _execution(self, call: Any) -> Execution:
        return Execution(
            tool=call.name,
            call_id=call.call_id,
            answer_id=self._answer_id,
            arguments=lambda: json.loads(call.arguments),
        )


class _AsyncGatedBrowser(_GatedBrowser):
    """The async twin of `_GatedBrowser`."""

    async def _execute(self, call: Any, **options: Any) -> Any:
        execution = self._execution(call)
        run = self._gate.enforcer.arun
        outcome = await run(self._gate.before(execution))
        if isinstance(outcome, str):
            return _result(call.call_id, outcome), True
        output, done = await self._browser._execute(_with_arguments(call, outcome), **options)
        seen = await run(self._gate.after(execution, outcome, output["output"]))
        return {**output, "output": _output(seen)}, done


def _agent_execution(session_id: str, call: Any, parsed: Any) -> Execution:
    return Execution(
        tool=call.name, call_id=call.call_id, answer_id=f"{session_id}/{call.turn_id}", arguments=lambda: parsed
    )


def _prepared(run: Any, item: Any, outcome: Enforced | str) -> dict[str, Any] | None:
    """Put what may run in place of the runner's own arguments; the refusal where nothing may run."""
    if isinstance(outcome, str):
        return _result(item.call_id, outcome)
    given = run.arguments[item.call_id]
    # Typed tools are given their model again, made anew from the digested bytes.
    validate = getattr(type(given), "model_validate_json", None)
    run.arguments[item.call_id] = outcome.arguments() if validate is None else validate(outcome.body)
    return None


def _enforced(outcome: Enforced | str) -> Enforced:
    if isinstance(outcome, str):
        raise TypeError("a refused call has no result")
    return outcome


def _result(call_id: str, refusal: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": refusal}


def _output(seen: Any) -> Any:
    return seen if isinstance(seen, (str, list)) else json.dumps(seen)


def _with_arguments(call: Any, outcome: Enforced) -> Any:
    return call.model_copy(update={"arguments": outcome.body.decode()})


def _materialised(result: Any) -> Any:
    """A result that can be looked at more than once."""
    return (
        result
        if result is None or isinstance(result, (str, list, Mapping)) or hasattr(result, "__await__")
        else list(result)
    )


DISTRIBUTION: Final = "openai"
SUPPORTED: Final = ((2, 54), (4,))
_RUNNERS_SINCE: Final = 3  # the major version that brought runners

# What arrives over these is not seen.
_CONNECTIONS: Final = (
    "realtime.connect", "beta.realtime.connect", "responses.connect", "beta.responses.connect", "live.connect",
    "live.forks.connect", "live.sideband.connect",
)  # fmt: skip
# The modules that have them; not every version has all.
CONNECTING: Final = (
    "openai.resources.realtime.realtime", "openai.resources.beta.realtime.realtime",
    "openai.resources.responses.responses", "openai.resources.beta.responses.responses",
    "openai.resources.live.live", "openai.resources.live.forks", "openai.resources.live.sideband",
)  # fmt: skip
_DECISIONS: Final = ("DecisionsToolRunner",)
_CLIENTS: Final = (
    "SyncAPIClient.request",
    "SyncAPIClient._process_response",
    "AsyncAPIClient.request",
    "AsyncAPIClient._process_response",
)
_RUNNERS: Final = ("ResponsesToolRunner", "AsyncResponsesToolRunner", "agents session tool dispatch")

_CHAT: Final = OpenAIChat()
_RESPONSES: Final = OpenAIResponses()


def dialect_of(path: str) -> ProxyDialect | None:
    """The dialect that a request path speaks; raises for one that proposes calls and is not covered."""
    parts = path.partition("?")[0].split("/")
    if "threads" in parts:
        raise UnhookedFramework("runs of the Assistants API are not covered; use chat completions or responses")
    if "responses" in parts:
        return _RESPONSES
    if "completions" in parts and "chat" in parts:
        return _CHAT
    return None


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package when it is loaded; `bar` refuses the paths that are not covered."""
    runners = int(version(DISTRIBUTION).partition(".")[0]) >= _RUNNERS_SINCE
    unseen = _CONNECTIONS + (_DECISIONS if runners else ())
    transport = Transport(enforcer, memory, dialect_of)

    def loaded(_: Any) -> None:
        transport.hook(patches, "openai", send="request")
        if runners:
            _hook_runners(enforcer, memory, patches)
        if bar:
            _bar(patches, runners=runners)

    patches.when("openai", loaded)
    return Seams(
        seams=_CLIENTS + (_RUNNERS if runners else ()),
        barred=("beta.threads", *(unseen if bar else ())),
        uncovered=(
            "results of batches",
            "stored completions and items of conversations that are read again",
            "function calls read by hand from agent session events",
        )
        + (() if bar else unseen),
    )


def _bar(patches: Patches, *, runners: bool) -> None:
    """Refuse WebSocket connections and the decisions runner: what arrives over them is not seen."""
    for module in CONNECTING:
        patches.when(module, lambda loaded: _disconnect(loaded, patches))
    if runners:
        from openai.lib.decisions_tool_runner import AsyncDecisionsToolRunner, DecisionsToolRunner

        for runner in (DecisionsToolRunner, AsyncDecisionsToolRunner):
            patches.bar(runner, "run")


def _disconnect(module: Any, patches: Patches) -> None:
    """Refuse the connections that the classes of a module make."""
    for owner in list(vars(module).values()):
        if inspect.isclass(owner) and owner.__module__ == module.__name__ and "connect" in vars(owner):
            patches.bar(owner, "connect")
