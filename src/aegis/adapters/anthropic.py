"""The `anthropic` package: messages and beta messages, sync and async, whole and streamed, and its runners.

What cannot be covered is barred while the hooks are in place: a call over it raises `UnhookedFramework`.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final
from weakref import WeakKeyDictionary

from aegis.enforce.arguments import validated_arguments
from aegis.enforce.enforcement import Enforced, Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, RunnerGate
from aegis.enforce.scope import within
from aegis.enforce.transport import DEFERRED_HEADER, Transport
from aegis.wire.anthropic import AnthropicMessages
from aegis.wire.model import ProxyDialect

# The runners of the `anthropic` package: the beta tool runners and the tools of managed sessions.


def _hook_runners(enforcer: Enforcer, memory: Memory, patches: Patches) -> None:
    """Hook every place where the package runs a tool itself."""
    from anthropic.lib.tools._beta_runner import BaseAsyncToolRunner, BaseSyncToolRunner, BaseToolRunner
    from anthropic.lib.tools._beta_session_runner import SessionToolRunner

    hooks = _Hooks(RunnerGate(enforcer, memory))
    patches.replace(BaseToolRunner, "_turn_options", _marked)
    for method in ("_run_tool", "_run_toolset_member"):
        patches.replace(BaseSyncToolRunner, method, hooks.running)
        patches.replace(BaseAsyncToolRunner, method, hooks.arunning)
    patches.replace(SessionToolRunner, "_call_tool", hooks.call_tool)


def _marked(original: Method) -> Method:
    """Let the transport know which calls the runner is going to enforce when it runs them."""

    def turn_options(runner: Any, thread: Any) -> Any:
        options = original(runner, thread)
        names = sorted({*runner._runnable_tools(), *(f"toolset:{name}" for name in runner._toolsets_by_family)})
        headers = {**options.get("extra_headers", {}), DEFERRED_HEADER: json.dumps(names)}
        return {**options, "extra_headers": headers}

    return turn_options


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: RunnerGate) -> None:
        self._gate = gate
        self._run = gate.enforcer.run
        self._arun = gate.enforcer.arun
        self._runs: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def running(self, original: Method) -> Method:
        """A tool's use, behind its tool where it is no member of a toolset."""

        def run(runner: Any, *given: Any) -> Any:
            *tool, tool_use = given
            execution = self._execution(runner, tool[0] if tool else None, tool_use)
            outcome = self._run(self._gate.before(execution))
            if isinstance(outcome, str):
                return _result(tool_use, outcome)
            with within():
                result = original(runner, *tool, _with_input(tool_use, outcome))
            return {**result, "content": self._run(self._gate.after(execution, outcome, result.get("content")))}

        return run

    def arunning(self, original: Method) -> Method:
        """The async twin of `running`."""

        async def run(runner: Any, *given: Any) -> Any:
            *tool, tool_use = given
            execution = self._execution(runner, tool[0] if tool else None, tool_use)
            outcome = await self._arun(self._gate.before(execution))
            if isinstance(outcome, str):
                return _result(tool_use, outcome)
            with within():
                result = await original(runner, *tool, _with_input(tool_use, outcome))
            return {**result, "content": await self._arun(self._gate.after(execution, outcome, result.get("content")))}

        return run

    def call_tool(self, original: Method) -> Method:
        async def call_tool(runner: Any, tool: Any, event: Any, input_: dict[str, Any]) -> Any:
            execution = Execution(
                tool=event.name,
                call_id=event.id,
                answer_id=f"session:{runner.session_id}",
                arguments=lambda: _final(tool, input_),
            )
            # Before the SDK's time-out for the tool starts: a person may take longer to approve.
            outcome = await self._arun(self._gate.before(execution))
            gated = _GatedTool(tool, self._gate, execution, outcome)
            return await original(runner, gated, event, input_)

        return call_tool

    def _execution(self, runner: Any, tool: Any, tool_use: Any) -> Execution:
        run = self._runs.setdefault(runner, secrets.token_hex(8))
        family = tool_use.toolset_name
        return Execution(
            tool=tool_use.name,
            server=None if family is None else f"toolset:{family}",
            call_id=tool_use.id,
            # Ids of one run may repeat from reply to reply on some servers.
            answer_id=f"run:{run}/{runner._iteration_count}",
            arguments=lambda: _final(tool, tool_use.input),
        )


class _GatedTool:
    """A tool of a managed session that runs what was allowed, or fails with the refusal."""

    def __init__(self, tool: Any, gate: RunnerGate, execution: Execution, outcome: Enforced | str) -> None:
        self.name = execution.tool
        self._tool = tool
        self._gate = gate
        self._execution = execution
        self._outcome = outcome

    async def call(self, _input: object) -> Any:
        from anthropic.lib.tools import ToolError
        from anthropic.lib.tools._tool_dispatch import run_runnable_tool

        outcome = self._outcome
        if isinstance(outcome, str):
            raise ToolError(outcome)
        try:
            with within():
                result = await run_runnable_tool(self._tool, outcome.arguments())
            if not isinstance(result, str):
                result = list(result)
        except Exception as error:
            failed = await self._gate.enforcer.arun(self._gate.failed(self._execution, outcome, error))
            if failed.changed:
                raise ToolError(str(failed.seen)) from None
            raise
        return await self._gate.enforcer.arun(self._gate.after(self._execution, outcome, result))


def _final(tool: Any, given: Any) -> Any:
    """The arguments with which the tool's function would run; those of other tools as they are."""
    function = getattr(tool, "func", None)
    return given if function is None or not isinstance(given, dict) else validated_arguments(function, given)


def _with_input(tool_use: Any, outcome: Enforced) -> Any:
    return tool_use.model_copy(update={"input": outcome.arguments()})


def _result(tool_use: Any, refusal: str) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": tool_use.id, "content": refusal, "is_error": True}
    return result if tool_use.toolset_name is None else {**result, "toolset_name": tool_use.toolset_name}


DISTRIBUTION: Final = "anthropic"
SUPPORTED: Final = ((2, 10), (3,))

_MESSAGES: Final = AnthropicMessages()


def dialect_of(path: str) -> ProxyDialect | None:
    """The dialect that a request path speaks, or `None` for one that proposes no calls."""
    parts = path.partition("?")[0].split("/")
    return _MESSAGES if "messages" in parts and "batches" not in parts else None


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package when it is loaded; `bar` refuses the paths that are not covered."""
    transport = Transport(enforcer, memory, dialect_of)

    def loaded(_: Any) -> None:
        transport.hook(patches, "anthropic", send="_request")
        _hook_runners(enforcer, memory, patches)

    patches.when("anthropic", loaded)
    return Seams(
        seams=(
            "SyncAPIClient._request", "SyncAPIClient._process_response", "AsyncAPIClient._request",
            "AsyncAPIClient._process_response", "BetaToolRunner", "BetaStreamingToolRunner", "BetaAsyncToolRunner",
            "BetaAsyncStreamingToolRunner", "SessionToolRunner",
        ),
        barred=("streams over Bedrock's event-stream encoding",),
        uncovered=(
            "results of message batches",
            "tool calls read by hand from the events of managed sessions, or out of a tool runner's message",
        ),
    )  # fmt: skip
