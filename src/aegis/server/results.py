"""`POST /v1/results`: what a tool gave back is judged before a model sees it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from aegis.core.call import ReadResult, ToolResult
from aegis.core.decision import ResultDecision
from aegis.core.json import parse
from aegis.errors import InvalidCall
from aegis.gate.streams import FRAMINGS, ResultStream, ticking
from aegis.policy.guards.stream import HOLD_SECONDS
from aegis.server.admission import DECIDE
from aegis.server.endpoint import ApiRequest, Body, Endpoint, Param, Reply
from aegis.server.http import answer, encode
from aegis.server.schemas import RETRY, failing, ref
from aegis.server.wire import result_status

# `POST /v1/results/{decision_id}/stream`: a result that arrives in pieces, judged while it arrives.
#
# In come lines of JSON: `{"chunk": "text"}`, `{"base64": "..."}`, and at the end, where the tool signed the result,
# `{"provenance": "..."}`. Out go lines of JSON, one for each that came: how many bytes came, and how many of them,
# from the first on, may be passed on. Silence releases what is held back. The last line is the answer of `POST
# /v1/results`: the stream ended, broke off, or was cut.

MAX_LINE_BYTES: Final = 1_048_576  # one line is held until it is complete: bounds memory
MEDIA: Final = "application/x-ndjson"
_SHAPE: Final = 'a line must be `{"chunk": TEXT}`, `{"base64": TEXT}` or at the end `{"provenance": TOKEN}`'


async def judge_stream(request: ApiRequest) -> Response:
    """Judge a streamed result as it arrives."""
    gate, framing = request.services.gate, request.query.get("framing", "plain")
    if request.pieces is None:
        raise InvalidCall("the body is a stream")
    stream = await asyncio.to_thread(
        gate.stream, request.path["decision_id"], principal=request.principal, framing=framing
    )
    if request.slow is not None:
        request.slow()
    # The head goes out once something came: a client that waits for leave to send is given it first.
    lines = _lines(request.pieces)
    answers = _answers(stream, lines, findings="auditor" in request.principal.roles)
    first = await anext(answers)

    async def all_answers() -> AsyncIterator[bytes]:
        async with aclosing(answers):
            yield first
            async for one in answers:
                yield one

    return _Answer(all_answers(), media_type=MEDIA, headers={"cache-control": "no-store"})


JUDGE_STREAM: Final = Endpoint(
    method="POST",
    path="/v1/results/{decision_id}/stream",
    operation="judgeStream",
    tag="judging",
    summary="Judge a result while it arrives: lines of chunks in, lines of verdicts out",
    permission=DECIDE,
    handler=judge_stream,
    path_params=(Param(name="decision_id", schema={"type": "string"}, text="the call that was allowed"),),
    query=(
        Param(
            name="framing",
            schema={"type": "string", "enum": list(FRAMINGS)},
            text="what the chunks hold: plain bytes, server-sent events, or lines of JSON as MCP writes them",
        ),
    ),
    body=Body(schema=ref("StreamChunks"), media=MEDIA, streamed=True),
    replies={
        200: Reply(
            text="one line for each that came, and the answer of `judgeResult` as the last one; `released` bytes "
            "of the result, from the first on, may be passed on",
            schema=ref("StreamVerdicts"),
            media=MEDIA,
        ),
        **failing(
            s404="the decision is none of this principal",
            s409="the call was not allowed to run, or a result was given for it",
        ),
    },
)


class _Answer(StreamingResponse):
    """Leaves the request to who reads its body: that a client went away is heard there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


class _Input:
    """What the lines of one stream said so far."""

    def __init__(self) -> None:
        self.provenance: str | None = None

    def piece(self, line: bytes) -> bytes:
        """Return the bytes of a line; raises `InvalidCall` for one that is malformed or comes after the end."""
        value = parse(line)
        if self.provenance is not None or not isinstance(value, dict) or len(value) != 1:
            raise InvalidCall(_SHAPE)
        ((name, text),) = value.items()
        if not isinstance(text, str):
            raise InvalidCall(_SHAPE)
        if name == "chunk":
            return text.encode()
        if name == "base64":
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:
                raise InvalidCall("`base64` is not base64") from error
        if name != "provenance":
            raise InvalidCall(_SHAPE)
        self.provenance = text
        return b""


async def _answers(stream: ResultStream, lines: AsyncIterator[bytes], *, findings: bool) -> AsyncGenerator[bytes]:
    said = _Input()
    ended, problem, released = False, "", 0
    try:
        async with aclosing(ticking(lines, HOLD_SECONDS, lambda: stream.holds)) as arriving:
            async for line in arriving:
                if line is None:
                    if stream.due():
                        yield _so_far(stream)
                    continue
                stream.feed(said.piece(line))
                if stream.is_cut:
                    break
                yield _so_far(stream)
        released = stream.released
        if not stream.is_cut:
            stream.rest()
        ended = True
    except InvalidCall as error:
        problem = error.message
    finally:
        if not ended:
            broken = await stream.aclose(broken=True)
    if ended:
        decision = await stream.aclose(provenance=said.provenance)
        yield _final(stream, decision, stream.released if decision.allowed else released, findings=findings)
    else:
        yield _final(stream, broken, stream.released, findings=findings, problem=problem)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return every line of a body that is not blank; the last one needs no ending."""
    rest = bytearray()
    async for piece in pieces:
        searched = len(rest)
        rest += piece
        while (end := rest.find(b"\n", searched)) >= 0:
            line, searched = bytes(rest[:end]), 0
            del rest[: end + 1]
            if line.strip():
                yield line
        if len(rest) > MAX_LINE_BYTES:
            raise InvalidCall(f"a line is over {MAX_LINE_BYTES} bytes")
    if rest.strip():
        yield bytes(rest)


def _so_far(stream: ResultStream) -> bytes:
    return (
        encode(
            {
                "decision": "allow",
                "verdict": "compliant",
                "final": False,
                "bytes": stream.taken,
                "released": stream.released,
            }
        )
        + b"\n"
    )


def _final(
    stream: ResultStream, decision: ResultDecision, released: int, *, findings: bool, problem: str = ""
) -> bytes:
    value: dict[str, Any] = {
        **decision.to_wire(findings=findings),
        "final": True,
        "bytes": stream.taken,
        "released": released,
    }
    if problem:
        value["error"] = problem
    return encode(value) + b"\n"


async def judge_result(request: ApiRequest) -> Response:
    """Judge one result, on record and chained to its call."""
    result = ToolResult(
        decision_id=request.body["decision_id"],
        result=request.body["result"],
        provenance=request.body.get("provenance"),
        further=request.body.get("further", False),
        failed=request.body.get("failed", False),
    )
    if request.apart:
        (data,) = request.apart
        if data is not None:
            result = ReadResult(
                decision_id=result.decision_id,
                result=None,
                provenance=result.provenance,
                further=result.further,
                failed=result.failed,
                canonical=data,
            )
    await request.services.scheduler.turn(request.principal.id)
    decision = await request.services.gate.aobserve(result, principal=request.principal)
    status, headers = result_status(decision)
    reads_findings = "auditor" in request.principal.roles
    return answer(
        decision.to_wire(findings=reads_findings),
        status,
        {name.decode(): value.decode() for name, value in headers},
    )


JUDGE_RESULT: Final = Endpoint(
    method="POST",
    path="/v1/results",
    operation="judgeResult",
    tag="judging",
    summary="Judge what a tool gave back, before a model sees it",
    permission=DECIDE,
    handler=judge_result,
    body=Body(schema=ref("ToolResult"), shape="result"),
    replies={
        200: Reply(text="allow, sanitize or block", schema=ref("ResultDecision")),
        429: Reply(
            text="more bytes than the agent's rate: block, `rate_limited`; nothing of it is on record",
            schema=ref("ResultDecision"),
            headers=RETRY,
        ),
        503: Reply(
            text="the log cannot be written: block, `unavailable`",
            schema={"anyOf": [ref("ResultDecision"), ref("Error")]},
            headers=RETRY,
        ),
        **failing(
            s404="the decision is none of this principal",
            s409="the call was not allowed to run, or another result was given for it",
        ),
    },
)


ENDPOINTS: Final = (JUDGE_RESULT, JUDGE_STREAM)
