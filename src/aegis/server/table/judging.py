"""What an agent asks: decisions, results, and the opening of sessions."""

from __future__ import annotations

from typing import Final

from aegis.gate.streams import FRAMINGS
from aegis.server.batch import decide_batch
from aegis.server.endpoint import Body, Endpoint, Param, Reply
from aegis.server.permissions import DECIDE, OPEN_SESSION
from aegis.server.result_stream import MEDIA, judge_stream
from aegis.server.results import judge_result
from aegis.server.schemas.common import ref
from aegis.server.sessions import open_session
from aegis.server.table.parts import failing, ok

_DECISION: Final = ref("Decision")
_RETRY: Final = {"Retry-After": "whole seconds"}

ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/v1/decisions",
        operation="decide",
        tag="judging",
        summary="Decide one tool call, on record, before it runs",
        permission=DECIDE,
        body=Body(schema=ref("ToolCall"), shape="call"),
        replies={
            200: Reply(text="allow, sanitize or block", schema=_DECISION),
            202: Reply(text="the call is held for approval", schema=_DECISION, headers={"Location": "the approval"}),
            409: Reply(text="the same `call_id` with another call: block, `conflict`", schema=_DECISION),
            429: Reply(text="rate limited: block, `rate_limited`, on record", schema=_DECISION, headers=_RETRY),
            503: Reply(text="the log cannot be written: block, `unavailable`", schema=_DECISION, headers=_RETRY),
        },
    ),
    Endpoint(
        method="POST",
        path="/v1/decisions:batch",
        operation="decideBatch",
        tag="judging",
        summary="Decide several tool calls in one request",
        permission=DECIDE,
        handler=decide_batch,
        body=Body(schema=ref("Batch"), shape="batch"),
        waits=True,
        replies={
            200: Reply(text="one decision for each call, in order", schema=ref("BatchDecision")),
            503: Reply(
                text="the log cannot be written: some are block, `unavailable`",
                schema={"anyOf": [ref("BatchDecision"), ref("Error")]},
                headers=_RETRY,
            ),
            **failing(s429="too many requests of this key wait"),
        },
    ),
    Endpoint(
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
                headers=_RETRY,
            ),
            503: Reply(
                text="the log cannot be written: block, `unavailable`",
                schema={"anyOf": [ref("ResultDecision"), ref("Error")]},
                headers=_RETRY,
            ),
            **failing(
                s404="the decision is none of this principal",
                s409="the call was not allowed to run, or another result was given for it",
            ),
        },
    ),
    Endpoint(
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
    ),
    Endpoint(
        method="POST",
        path="/v1/sessions",
        operation="openSession",
        tag="judging",
        summary="Open a session with the task that the host trusts",
        permission=OPEN_SESSION,
        handler=open_session,
        body=Body(schema=ref("SessionOpening")),
        replies={
            **ok("opened", "SessionOpened", 201),
            **ok("it was open already, with the same words", "SessionOpened"),
            **failing(s404="there is no such mission", s409="it is open with another task, mission or list of tools"),
        },
    ),
)
