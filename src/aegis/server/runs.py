"""Governed runs over HTTP, and the same behind the shape of chat completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
from starlette.responses import Response, StreamingResponse

from aegis.core.times import MICROS
from aegis.runs.request import RunAnswer, RunRequest
from aegis.server.answers import answer
from aegis.server.endpoint import Asked

_ROLES: Final = {"developer": "system"}


async def start_run(asked: Asked) -> Response:
    """Begin a run; 200 with its end, or 202 while a person has to answer."""
    body = asked.body
    runs = await asked.services.desk.runs()
    request = RunRequest(
        messages=_messages(body["messages"]),
        documents=tuple(body.get("documents", ())),
        route=body.get("route", "default"),
        run_id=body.get("id"),
    )
    return _answer(await runs.start(asked.principal, request))


async def get_run(asked: Asked) -> Response:
    """Where a run stands."""
    return _answer(await (await asked.services.desk.runs()).get(asked.principal, asked.path["id"]))


async def resume_run(asked: Asked) -> Response:
    """Go on with a paused run."""
    return _answer(await (await asked.services.desk.runs()).resume(asked.principal, asked.path["id"]))


async def complete_chat(asked: Asked) -> Response:
    """A run in the shape of chat completions: `model` names the route.

    A refusal ends with `content_filter`; a run that waits for a person says so in its text, and `aegis` names it.
    """
    body = asked.body
    runs = await asked.services.desk.runs()
    request = RunRequest(messages=_messages(body["messages"]), route=body["model"])
    ended = await runs.start(asked.principal, request)
    completion = _completion(ended, asked.services.clock() // MICROS)
    if not body.get("stream"):
        return answer(completion)
    return StreamingResponse(iter(_chunks(completion)), media_type="text/event-stream")


def _messages(given: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The caller's messages: what people and the model said. Calls and results are made here, never claimed."""
    return tuple({"role": _ROLES.get(message["role"], message["role"]), "content": _text(message)} for message in given)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _chunks(completion: dict[str, Any]) -> Iterator[bytes]:
    """The answer as a stream. It comes at the end of the run: no guard of an answer judges half of one."""
    choice = completion["choices"][0]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for delta, reason in (
        ({"role": "assistant", "content": ""}, None),
        ({"content": choice["message"]["content"]}, None),
        ({}, choice["finish_reason"]),
    ):
        last = {"usage": completion["usage"], "aegis": completion["aegis"]} if reason else {}
        event = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **last}
        yield b"data: " + orjson.dumps(event) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _answer(run: RunAnswer) -> Response:
    return answer(run.to_wire(), 202 if run.status in ("paused", "running") else 200)


def _completion(run: RunAnswer, now: int) -> dict[str, Any]:
    waits = run.status in ("paused", "running")
    text = run.output if run.status == "completed" else run.message
    if waits:
        text = "a person has to answer before this goes on"
    usage = {"prompt_tokens": run.usage.get("input", 0), "completion_tokens": run.usage.get("output", 0)}
    return {
        "id": run.run_id,
        "object": "chat.completion",
        "created": now,
        "model": run.route,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "content_filter" if run.status in ("refused", "failed") else "stop",
            }
        ],
        "usage": {**usage, "total_tokens": sum(usage.values())},
        "aegis": {
            "run": run.run_id,
            "status": run.status,
            "reason": run.reason,
            "approvals": [dict(h) for h in run.held],
        },
    }
