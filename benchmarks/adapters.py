"""What an adapter costs beside the decision: calls hooked and not, in turns, in the processor time of their thread."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

from aegis.core.call import ToolCall, ToolResult
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.sdk.coverage.firing import Allowing

ROUNDS: Final = 30
CALLS: Final = 20  # calls of one round, hooked and not
_TOOL: Final = "send_email"
_ARGUMENTS: Final = {"to": "a@example.com", "subject": "hello"}

HTTP: Final[Any] = import_module("httpx2")  # the generation that both packages use

_numbers = count()


def adapters(folder: Path, quick: bool) -> dict[str, Any]:
    """Microseconds of each adapter beyond the decision, which allows at once."""
    works = {"langchain": _langchain(), "openai": _openai(), "anthropic": _anthropic()}
    return {name: _beyond(name, work, ROUNDS // 10 if quick else ROUNDS) for name, work in works.items()}


def _beyond(name: str, work: Callable[[], object], rounds: int) -> dict[str, float]:
    decider, memory, adapter = Allowing(), Memory(), import_module(f"aegis.adapters.{name}")
    enforcer, executes = Enforcer(decider), name == "langchain"

    def bare() -> None:
        call = ToolCall(tool=_TOOL, arguments=_ARGUMENTS, call_id=f"call_{next(_numbers):020d}")
        decision = decider.decide(call)
        if executes:
            decider.observe(ToolResult(decision_id=decision.decision_id, result="sent"))

    spent: list[float] = []
    whole: list[float] = []
    for _ in range(rounds):
        without, decision = _timed(work), _timed(bare)
        patches = Patches()
        adapter.hook(enforcer, memory, patches, bar=False)
        try:
            spent.append(_timed(work) - without - decision)
        finally:
            patches.undo()
        whole.append(without)
    return {"beyond_us": round(statistics.median(spent), 1), "unhooked_us": round(statistics.median(whole), 1)}


def _timed(work: Callable[[], object]) -> float:
    """Microseconds of the processor for one call."""
    started = time.thread_time_ns()
    for _ in range(CALLS):
        work()
    return (time.thread_time_ns() - started) / CALLS / 1_000


def _langchain() -> Callable[[], object]:
    from langchain_core.tools import tool

    @tool
    def send_email(to: str, subject: str) -> str:
        """Send a mail."""
        return "sent"

    def work() -> object:
        call = {"name": _TOOL, "args": _ARGUMENTS, "id": f"call_{next(_numbers):020d}", "type": "tool_call"}
        return send_email.invoke(call)

    return work


def _openai() -> Callable[[], object]:
    import openai

    def answer(request: Any) -> Any:
        number = f"{next(_numbers):020d}"
        function = {"name": _TOOL, "arguments": json.dumps(_ARGUMENTS)}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
        body = {"id": f"c-{number}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return HTTP.Response(200, json=body)

    http = HTTP.Client(transport=HTTP.MockTransport(answer))
    client = openai.OpenAI(api_key="k", base_url="http://provider/v1", http_client=http)
    return lambda: client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}])


def _anthropic() -> Callable[[], object]:
    import anthropic

    def answer(request: Any) -> Any:
        number = f"{next(_numbers):020d}"
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": _TOOL, "input": _ARGUMENTS}
        usage = {"input_tokens": 1, "output_tokens": 1}
        body = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": [block]}
        return HTTP.Response(200, json={**body, "stop_reason": "tool_use", "stop_sequence": None, "usage": usage})

    http = HTTP.Client(transport=HTTP.MockTransport(answer))
    client = anthropic.Anthropic(api_key="k", base_url="http://provider", http_client=http)
    return lambda: client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "go"}])
