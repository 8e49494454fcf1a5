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
from aegis.gate.streams import ResultStream, ticking
from aegis.policy.guards.stream import HOLD_SECONDS
from aegis.server.endpoint import Asked
from aegis.server.http import answer, encode
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


async def judge_stream(asked: Asked) -> Response:
    """The verdicts on a streamed result, as it arrives."""
    gate, framing = asked.services.gate, asked.query.get("framing", "plain")
    if asked.pieces is None:
        raise InvalidCall("the body is a stream")
    stream = await asyncio.to_thread(gate.stream, asked.path["decision_id"], principal=asked.principal, framing=framing)
    if asked.slow is not None:
        asked.slow()
    # The head goes out once something came: a client that waits for leave to send is given it first.
    lines = _lines(asked.pieces)
    answers = _answers(stream, lines, findings="auditor" in asked.principal.roles)
    first = await anext(answers)

    async def all_answers() -> AsyncIterator[bytes]:
        async with aclosing(answers):
            yield first
            async for one in answers:
                yield one

    return _Answer(all_answers(), media_type=MEDIA, headers={"cache-control": "no-store"})


class _Answer(StreamingResponse):
    """Leaves the request to who reads its body: that a client went away is heard there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


class _Input:
    """What the lines of one stream said so far."""

    def __init__(self) -> None:
        self.provenance: str | None = None

    def piece(self, line: bytes) -> bytes:
        """The bytes that a line brings; raises `InvalidCall` for one that is malformed or comes after the end."""
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
    """Every line of a body that is not blank; the last one needs no ending."""
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


async def judge_result(asked: Asked) -> Response:
    """The verdict on one result, recorded and chained to its call."""
    result = ToolResult(
        decision_id=asked.body["decision_id"],
        result=asked.body["result"],
        provenance=asked.body.get("provenance"),
        further=asked.body.get("further", False),
    )
    if asked.apart:
        (data,) = asked.apart
        if data is not None:
            result = ReadResult(
                decision_id=result.decision_id,
                result=None,
                provenance=result.provenance,
                further=result.further,
                canonical=data,
            )
    await asked.services.turns.take(asked.principal.id)
    decision = await asked.services.gate.aobserve(result, principal=asked.principal)
    status, headers = result_status(decision)
    reads_findings = "auditor" in asked.principal.roles
    return answer(
        decision.to_wire(findings=reads_findings),
        status,
        {name.decode(): value.decode() for name, value in headers},
    )
