"""A scripted provider of conversations as Mistral keeps them, beside its completions, on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from aegis.cli.demo.provider import Call, ProviderRequest, ScriptedProvider
from frameworks.model import Agent


class MistralAgent(Agent):
    """A world whose provider also keeps conversations."""

    def result_of(self, call: Call) -> Any:
        for asked in self.asked:
            if asked.format != "conversation":
                continue
            entries = asked.body["inputs"] if isinstance(asked.body["inputs"], list) else []
            for entry in entries:
                if entry.get("type") == "function.result" and entry["tool_call_id"] == call.id:
                    return entry["result"]
        return super().result_of(call)

    def results_sent(self, request: int) -> dict[str, Any]:
        return {} if self.asked[request].format == "conversation" else super().results_sent(request)


class MistralProvider(ScriptedProvider):
    """Answers completions like its base, and conversations whole or as events."""

    world = MistralAgent

    def next_answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Any:
        if "/conversations" not in path:
            answer = super().next_answer(path, headers, {**body, "stream": False})
            self.asked[-1] = ProviderRequest(format="chat", body=body, headers=headers)
            return _events(answer) if body.get("stream") else answer
        with self._lock:
            self.asked.append(ProviderRequest(format="conversation", body=body, headers=headers))
            turn = self._turns.popleft() if self._turns else None
            self._count += 1
        outputs: list[Any] = []
        text = "done" if turn is None else turn.text
        if text:
            outputs.append({"type": "message.output", "role": "assistant", "content": text, "id": "o1"})
        for call in () if turn is None else turn.calls:
            spelled = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            outputs.append(
                {"type": "function.call", "tool_call_id": call.id, "name": call.tool, "arguments": spelled,
                 "id": f"fc_{self._count}"}
            )  # fmt: skip
        if body.get("stream"):
            return _conversation(outputs)
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return {"object": "conversation.response", "conversation_id": "conv", "outputs": outputs, "usage": usage}


def _events(whole: Any) -> Iterator[Any]:
    """The chunks of an answer as Mistral sends them: every call in one piece."""
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    message = whole["choices"][0]["message"]
    calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls", ()))]
    for delta in ({"role": "assistant", "content": message["content"] or ""}, {"content": "", "tool_calls": calls}):
        yield "", json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    reason = whole["choices"][0]["finish_reason"]
    yield "", json.dumps({**head, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": reason}]})
    yield "", "[DONE]"


def _conversation(outputs: list[Any]) -> Iterator[Any]:
    """The events of a conversation's answer."""
    yield _named({"type": "conversation.response.started", "conversation_id": "conv"})
    for index, entry in enumerate(outputs):
        yield _named({**entry, "type": f"{entry['type'].removesuffix('.delta')}.delta", "output_index": index})
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield _named({"type": "conversation.response.done", "usage": usage})


def _named(data: dict[str, Any]) -> Any:
    return data["type"], json.dumps(data)
