"""The runners of the `openai` package: the Responses tool runner and the tools of agent sessions."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from aegis.adapters._enforce import Enforced, Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution, RunnerGate
from aegis.adapters._transport import DEFERRED_HEADER
from aegis.adapters.openai_supplied import OfferedTurns


def hook(enforcer: Enforcer, memory: Memory, patches: Patches) -> None:
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
