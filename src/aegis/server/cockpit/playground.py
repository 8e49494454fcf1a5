"""The playground: what the policy in force makes of a pasted call. Nothing is recorded, charged or run."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from starlette.responses import Response

from aegis.core.strict_json import parse
from aegis.errors import InvalidCall
from aegis.pipeline.model import Evaluation
from aegis.server.cockpit.arguments import leaves
from aegis.server.cockpit.page import Visit
from aegis.server.cockpit.render import html
from aegis.server.trying import tried

EXAMPLE: Final = '{\n  "tool": "query_db",\n  "arguments": {"sql": "SELECT 1; DROP TABLE invoices; --"}\n}\n'
_KNOWN: Final = frozenset({"tool", "server", "arguments", "agent", "session", "task", "unresolved"})


async def playground(visit: Visit) -> Response:
    """The form with an example."""
    return _shown(visit, text=EXAMPLE)


async def decide(visit: Visit) -> Response:
    """What would be decided."""
    text = visit.form.get("call", "").replace("\r\n", "\n")
    try:
        call = _call(text)
    except InvalidCall as problem:
        return _shown(visit, text=text, problem=problem, status=problem.status)
    policy, now = visit.services.policy.current, visit.services.clock()
    evaluation = await asyncio.to_thread(tried, policy, call, now=now)
    return _shown(visit, text=text, **_result(call, evaluation))


def _shown(
    visit: Visit, *, text: str, problem: InvalidCall | None = None, status: int = 200, **result: Any
) -> Response:
    return html(visit, "playground.html", status, text=text, problem=problem, result=result or None)


def _call(text: str) -> dict[str, Any]:
    """The pasted call; raises `InvalidCall` where it is none."""
    call = parse(text.encode())
    if (
        not isinstance(call, dict)
        or not isinstance(call.get("tool"), str)
        or not isinstance(call.get("arguments"), dict)
    ):
        raise InvalidCall("a call is a JSON object with `tool` and `arguments`")
    unknown = sorted(call.keys() - _KNOWN)
    if unknown:
        raise InvalidCall("the call has a member that is not known here", hint=f"known: {', '.join(sorted(_KNOWN))}")
    for name in ("server", "agent", "session", "task"):
        if not isinstance(call.get(name, ""), str):
            raise InvalidCall(f"`{name}` is not text")
    return call


def _result(call: dict[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    combined = evaluation.combined
    findings = [
        {
            "rule": one.rule, "path": one.path, "message": one.message, "evidence": one.evidence,
            "category": one.category, "severity": one.severity.word, "outcome": one.outcome.word,
        }
        for one in combined.findings
    ]  # fmt: skip
    return {
        "decision": combined.outcome.word,
        "reason": combined.reason.value,
        "verdict": combined.verdict.word,
        "risk": max(combined.risk, evaluation.tier).word,
        "effects": sorted(evaluation.effects),
        "findings": findings,
        "leaves": leaves(call["arguments"], findings),
        "patched": leaves(orjson.loads(evaluation.canonical)) if evaluation.canonical is not None else None,
        "steps": [{"guard": time.guard, "outcome": time.outcome.word, "us": time.us} for time in evaluation.times],
    }
