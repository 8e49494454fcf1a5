"""Answers that the proxy gives by itself, without asking a model: whole, and as the events of a stream."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from aegis.core.outcome import Outcome
from aegis.core.times import MICROS, rfc3339
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer
from aegis.enforce.scope import Session
from aegis.proxies.models.book import Book, BookScope, Kind, Record, State, TakenOut
from aegis.wire.bedrock import converse_events
from aegis.wire.model import Removal, Wire, WireEvent
from aegis.wire.ollama import ollama_calls

# Held calls that a later request asks about: given to the client once a person agreed, refused once one did not.


class FoundHeld:
    """The recall of one request, which notes what it found."""

    def __init__(self, book: Book, scope: BookScope):
        self._book = book
        self._scope = scope
        self._removals: dict[str, Removal] = {}
        self.records: list[Record] = []

    def by_call(self, key: str) -> Removal | None:
        return self._look("call", key)

    def by_ref(self, ref: str) -> Removal | None:
        return self._look("ref", ref)

    def by_anchor(self, anchor: str) -> Removal | None:
        return self._look("anchor", anchor)

    def _look(self, kind: Kind, key: str) -> Removal | None:
        record = self._book.record(self._scope, kind, key)
        if record is None:
            return None
        if record.ref not in self._removals:
            self.records.append(record)
            # One object for one record: what was put back is known again by its identity.
            self._removals[record.ref] = record.removal
        removal = self._removals[record.ref]
        return removal if removal.refused else None


class Resumptions:
    """Moves held calls on; one at a time for each record, so that a call is given out once."""

    def __init__(self, book: Book):
        self._book = book
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def move(
        self, record: Record, scope: BookScope, enforcer: Enforcer, session: Session | None
    ) -> tuple[Record, list[tuple[TakenOut, Enforced]]]:
        """The record as it is now, and the calls that are to be given out now, in order."""
        lock = self._locks.setdefault(record.ref, asyncio.Lock())
        async with lock:
            self._book.forget(scope, record)
            record = self._book.record(scope, "ref", record.ref) or record
            held = record.held
            attempts = [
                Attempt(
                    tool=one.tool,
                    server=one.server,
                    arguments=self._book.arguments(one.decision_id),
                    call_id=one.gate_id,
                )
                for one in held
            ]
            enforced = await enforcer.arun(enforcer.enforce(attempts, session))
            changes: dict[str, tuple[State, str]] = {}
            for one, now in zip(held, enforced, strict=True):
                if now.allowed:
                    changes[one.gate_id] = ("released", "")
                elif now.decision.outcome is not Outcome.REQUIRE_APPROVAL:
                    changes[one.gate_id] = ("refused", now.refusal)
            if changes:
                record = record.moved(changes)
                await self._book.write(self._book.remember(scope, record))
            return record, [(one, now) for one, now in zip(held, enforced, strict=True) if now.allowed]


def answer_of(format_: str, calls: Sequence[Wire], *, model: str, now: int, answer_id: str = "") -> Wire:
    """An answer of `format_` that holds exactly `calls`; `answer_id` where the provider keeps the conversation."""
    return _WHOLE[format_](list(calls), model, now, answer_id)


def events_of(format_: str, answer: Wire) -> Iterator[WireEvent]:
    """The stream that spells `answer`."""
    return _EVENTS[format_](answer)


def _name(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(12)}"


def _chat(calls: list[Wire], model: str, now: int, answer_id: str) -> Wire:
    message: Wire = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    return {
        "id": answer_id or _name("chatcmpl-"),
        "object": "chat.completion",
        "created": now,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _responses(calls: list[Wire], model: str, now: int, answer_id: str) -> Wire:
    return {
        "id": answer_id or _name("resp_"),
        "object": "response",
        "created_at": now,
        "status": "completed",
        "model": model,
        "output": calls,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": None,
        "top_p": None,
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        },
    }


def _messages(calls: list[Wire], model: str, now: int, answer_id: str) -> Wire:
    return {
        "id": answer_id or _name("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": calls,
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _candidates(calls: list[Wire], model: str, now: int, answer_id: str) -> Wire:
    content = {"role": "model", "parts": calls}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "modelVersion": model,
        "responseId": answer_id or _name("aegis-"),
        "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
    }


def _ollama(calls: list[Wire], model: str, now: int, answer_id: str) -> Wire:
    message = {"role": "assistant", "content": "", "tool_calls": ollama_calls(calls)}
    created = rfc3339(now * MICROS)
    return {"model": model, "created_at": created, "message": message, "done": True, "done_reason": "stop"}


def _converse(calls: list[Wire], model: str, now: int, answer_id: str) -> Wire:
    usage = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
    message = {"role": "assistant", "content": calls}
    return {"output": {"message": message}, "stopReason": "tool_use", "usage": usage, "metrics": {"latencyMs": 0}}


def _one_event(answer: Wire) -> Iterator[WireEvent]:
    """The stream of a format whose events are answers: this one."""
    yield WireEvent(data=json.dumps(answer, separators=(",", ":")))


def _event(wire: Wire) -> WireEvent:
    return WireEvent(event=str(wire["type"]), data=json.dumps(wire, separators=(",", ":")))


def _chat_events(answer: Wire) -> Iterator[WireEvent]:
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: Wire, reason: str | None = None) -> WireEvent:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return WireEvent(data=json.dumps({**head, "choices": [choice]}, separators=(",", ":")))

    (choice,) = answer["choices"]
    message = choice["message"]
    yield chunk({"role": "assistant", "content": message.get("content")})
    if message.get("refusal"):
        yield chunk({"refusal": message["refusal"]})
    for index, call in enumerate(message.get("tool_calls") or []):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])
    yield WireEvent(data="[DONE]")


def _responses_events(answer: Wire) -> Iterator[WireEvent]:
    for number, wire in enumerate(_responses_wires(answer)):
        yield _event({**wire, "sequence_number": number})


def _responses_wires(answer: Wire) -> Iterator[Wire]:
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(answer["output"]):
        at: Wire = {"output_index": index, "item_id": item.get("id")}
        blank: Wire = (
            {"arguments": ""} if item["type"] == "function_call" else {"content": []} if "content" in item else {}
        )
        yield {"type": "response.output_item.added", "output_index": index,
               "item": {**item, **blank, "status": "in_progress"}}  # fmt: skip
        if item["type"] == "function_call":
            kind = "response.function_call_arguments"
            yield {"type": f"{kind}.delta", **at, "delta": item["arguments"]}
            yield {"type": f"{kind}.done", **at, "arguments": item["arguments"], "name": item["name"]}
        for place, part in enumerate(item.get("content") or []):
            yield from _part_wires({**at, "content_index": place}, part)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": answer}


def _part_wires(at: Wire, part: Wire) -> Iterator[Wire]:
    name = "refusal" if part["type"] == "refusal" else "text"
    kind = "response.refusal" if name == "refusal" else "response.output_text"
    extra: dict[str, Any] = {} if name == "refusal" else {"logprobs": []}
    yield {"type": "response.content_part.added", **at, "part": {**part, name: ""}}
    yield {"type": f"{kind}.delta", **at, "delta": part[name], **extra}
    yield {"type": f"{kind}.done", **at, name: part[name], **extra}
    yield {"type": "response.content_part.done", **at, "part": part}


def _messages_events(answer: Wire) -> Iterator[WireEvent]:
    start = {**answer, "content": [], "stop_reason": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
    yield _event({"type": "message_start", "message": start})
    for index, block in enumerate(answer["content"]):
        if block["type"] == "text":
            blank, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            spelled = json.dumps(block["input"], separators=(",", ":"))
            blank, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": spelled}
        yield _event({"type": "content_block_start", "index": index, "content_block": blank})
        yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    ended = {name: answer[name] for name in ("stop_reason", "stop_sequence", "stop_details") if name in answer}
    yield _event({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 0}})
    yield _event({"type": "message_stop"})


_WHOLE: Final[dict[str, Callable[[list[Wire], str, int, str], Wire]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _candidates,
    "ollama": _ollama,
    "converse": _converse,
}
_EVENTS: Final[dict[str, Callable[[Wire], Iterator[WireEvent]]]] = {
    "chat": _chat_events,
    "responses": _responses_events,
    "messages": _messages_events,
    "gemini": _one_event,
    "ollama": _one_event,
    "converse": converse_events,
}
