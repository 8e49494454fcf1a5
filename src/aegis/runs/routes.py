"""Governed runs over HTTP, and the same behind the shape of chat completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import Response, StreamingResponse

from aegis.core.times import MICROS
from aegis.gate.events import new_id
from aegis.runs.state import RunAnswer, RunRequest
from aegis.server.admission import RUN
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import answer
from aegis.server.schemas import NAME, TEXT, WHOLE, Schema, closed, failing, named, nullable, ok, optional, ref

if TYPE_CHECKING:
    from aegis.runs.service import Runs


# Governed runs.

MAX_MESSAGES: Final = 2_000
MAX_DOCUMENTS: Final = 1_000

_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_MESSAGES: Final[Schema] = {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": ref("RunMessage")}

SCHEMAS: Final[dict[str, Schema]] = {
    "RunMessage": closed(
        {
            "role": {"type": "string", "enum": ["system", "developer", "user", "assistant"]},
            "content": {
                "description": "a text, or its parts; calls and results are made by the run itself",
                "anyOf": [TEXT, {"type": "array", "items": closed({"type": {"const": "text"}, "text": TEXT})}],
            },
        },
        "role",
        "content",
    ),
    "RunOpening": closed(
        {
            "messages": _MESSAGES,
            "documents": {
                "type": "array",
                "maxItems": MAX_DOCUMENTS,
                "items": {"type": "string"},
                "description": "texts that the caller retrieved; they are untrusted",
            },
            "route": {**NAME, "description": "a route of the configuration; `default` where it is left out"},
            "id": {**NAME, "description": "makes the request idempotent; drawn where it is left out"},
        },
        "messages",
    ),
    "Run": closed(
        {
            "id": TEXT,
            "status": {"type": "string", "enum": ["running", "paused", "completed", "refused", "failed"]},
            "route": TEXT,
            "output": nullable(TEXT),
            "reason": TEXT,
            "message": TEXT,
            "model": nullable(TEXT),
            "labels": {"type": "object"},
            "usage": {"type": "object"},
            "cost": {**WHOLE, "description": "in millionths of the price list's currency"},
            "approvals": _OBJECTS,
            "events": _OBJECTS,
        },
        "id",
        "status",
    ),
    "ChatRequest": {
        **optional(
            {
                "model": {**NAME, "description": "the route"},
                "messages": _MESSAGES,
                "stream": {"type": "boolean"},
                "stream_options": {"type": "object"},
                "max_tokens": WHOLE,
                "max_completion_tokens": WHOLE,
                "temperature": {"type": "number"},
                "top_p": {"type": "number"},
                "user": TEXT,
            }
        ),
        "required": ["model", "messages"],
    },
    "ChatAnswer": {"type": "object", "description": "an answer in the shape of chat completions, and `aegis`"},
}


_ROLES: Final = {"developer": "system"}


_ID: Final = named("the run's id")
_RUN: Final = {**ok("it ended", "Run"), **ok("a person has to answer, or it is at work", "Run", 202)}
_NONE: Final = failing(s404="there is no such run, or no route is configured")


async def start_run(request: ApiRequest) -> Response:
    """Begin a run; 200 with its end, or 202 while a person has to answer."""
    body = request.body
    runs = await request.services.runs.runs()
    wanted = RunRequest(
        messages=_messages(body["messages"]),
        documents=tuple(body.get("documents", ())),
        route=body.get("route", "default"),
        run_id=body.get("id"),
    )
    return _answer(await runs.start(request.principal, wanted))


START_RUN: Final = Endpoint(
    method="POST",
    path="/v1/runs",
    operation="startRun",
    tag="runs",
    summary="Run a request through the guards of a route, a model and its tools",
    permission=RUN,
    handler=start_run,
    body=Body(schema=ref("RunOpening")),
    replies={**_RUN, **failing(s404="there is no such route", s409="the id belongs to another run")},
)


async def get_run(request: ApiRequest) -> Response:
    """Show where a run stands."""
    return _answer(await (await request.services.runs.runs()).get(request.principal, request.path["id"]))


GET_RUN: Final = Endpoint(
    method="GET",
    path="/v1/runs/{id}",
    operation="getRun",
    tag="runs",
    summary="Where a run stands",
    permission=RUN,
    handler=get_run,
    path_params=_ID,
    replies={**_RUN, **_NONE},
)


async def resume_run(request: ApiRequest) -> Response:
    """Go on with a paused run."""
    return _answer(await (await request.services.runs.runs()).resume(request.principal, request.path["id"]))


RESUME_RUN: Final = Endpoint(
    method="POST",
    path="/v1/runs/{id}/resume",
    operation="resumeRun",
    tag="runs",
    summary="Go on with a paused run: what was approved runs, what was denied is told to the model",
    permission=RUN,
    handler=resume_run,
    path_params=_ID,
    replies={**_RUN, **_NONE},
)


async def complete_chat(request: ApiRequest) -> Response:
    """Show a run in the shape of chat completions: `model` names the route.

    A refusal ends with `content_filter`; a run that waits for a person says so in its text, and `aegis` names it.
    """
    body = request.body
    runs = await request.services.runs.runs()
    wanted = RunRequest(messages=_messages(body["messages"]), route=body["model"], run_id=new_id())
    if body.get("stream"):
        return await _streamed(runs, request, wanted)
    return answer(_completion(await runs.start(request.principal, wanted), request.services.clock() // MICROS))


COMPLETE_CHAT: Final = Endpoint(
    method="POST",
    path="/v1/runs/chat/completions",
    operation="completeChat",
    tag="runs",
    summary="The same in the shape of chat completions; `model` names the route",
    permission=RUN,
    handler=complete_chat,
    body=Body(schema=ref("ChatRequest")),
    replies={**ok("the answer, a refusal, or word that it waits", "ChatAnswer"), **_NONE},
)


def _messages(given: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the caller's messages: what people and the model said. Calls and results are made here, never claimed."""
    return tuple({"role": _ROLES.get(message["role"], message["role"]), "content": _text(message)} for message in given)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def _streamed(runs: Runs, request: ApiRequest, wanted: RunRequest) -> Response:
    """Show the answer as it comes; a run that is refused before a word of it is an ordinary error."""
    pieces: asyncio.Queue[str] = asyncio.Queue()
    run = runs.begin(request.principal, wanted, pieces.put_nowait)
    first = asyncio.ensure_future(pieces.get())
    try:
        await asyncio.wait({run, first}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not first.done():
            first.cancel()
    if run.done():
        run.result()  # raises
    head = {"id": wanted.run_id, "created": request.services.clock() // MICROS, "model": wanted.route}
    said = [] if first.cancelled() or not first.done() else [first.result()]
    return StreamingResponse(_chunks(head, run, pieces, said), media_type="text/event-stream")


async def _chunks(
    head: dict[str, Any], run: asyncio.Task[RunAnswer], pieces: asyncio.Queue[str], said: list[str]
) -> AsyncIterator[bytes]:
    yield _chunk(head, {"role": "assistant", "content": ""}, None)
    heard = bool(said)
    for piece in said:
        yield _chunk(head, {"content": piece}, None)
    while not (run.done() and pieces.empty()):
        waiting = asyncio.ensure_future(pieces.get())
        try:
            await asyncio.wait({run, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not waiting.done():
                waiting.cancel()
        if waiting.done():
            heard = True
            yield _chunk(head, {"content": waiting.result()}, None)
    ended = _completion(run.result(), head["created"])
    choice = ended["choices"][0]
    if not heard:
        yield _chunk(head, {"content": choice["message"]["content"]}, None)
    elif ended["aegis"]["status"] != "completed":  # why what was heard is not the whole answer
        yield _chunk(head, {"content": "\n\n" + choice["message"]["content"]}, None)
    yield _chunk(head, {}, choice["finish_reason"], usage=ended["usage"], aegis=ended["aegis"])
    yield b"data: [DONE]\n\n"


def _chunk(head: dict[str, Any], delta: dict[str, Any], reason: str | None, **last: Any) -> bytes:
    event = {**head, "object": "chat.completion.chunk",
             "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **last}  # fmt: skip
    return b"data: " + orjson.dumps(event) + b"\n\n"


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


# Governed runs.


ENDPOINTS: Final = (
    START_RUN,
    COMPLETE_CHAT,
    GET_RUN,
    RESUME_RUN,
)
