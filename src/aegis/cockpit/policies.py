"""Policies: the configuration in force, edited with its problems, its difference and what it would have changed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

import orjson
from starlette.responses import RedirectResponse, Response

from aegis.cockpit import editing
from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.rows import leaves
from aegis.cockpit.work import MOST, REPLAY_DAYS, ReplayFound
from aegis.config.text import MAX_REPLAYED, text_in_force, text_of
from aegis.core.json import parse
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.policy.model import Evaluation
from aegis.server.administration import examine_config, replace_config
from aegis.server.http import MAX_WISH_CHARS
from aegis.server.replay import REPLAY_CONFIG, tried
from aegis.server.replay import replay as replay_calls
from aegis.server.validation import query_of

# Drafts of policies from plain words: asked for, tried, and shown with what they would change; never applied here.


async def draft_page(request: PageRequest) -> Response:
    """Show the words, the difference from what is in force, and the test cases."""
    drafts = request.cockpit.drafts
    told = drafts.drafted.told
    before = await asyncio.to_thread(text_in_force, request.services.policy)
    model = request.services.policy.config.settings.drafting.model
    return html(
        request,
        "draft.html",
        standing=drafts.job.standing,
        wish=drafts.drafted.wish,
        draft=told,
        difference=editing.difference(before, told["config"]) if told is not None and told["config"] else [],
        stale=told is not None and told["base"] != request.services.policy.current.digest,
        arguments=[leaves(case["arguments"]) for case in told["cases"]] if told is not None else [],
        model=None if model is None else model.name,
        most=MAX_WISH_CHARS,
    )


async def start_draft(request: PageRequest) -> Response:
    """Ask the configured model for a draft."""
    wish = request.form.get("wish", "").replace("\r\n", "\n").strip()
    if not 1 <= len(wish) <= MAX_WISH_CHARS:
        raise InvalidCall(f"say in 1 to {MAX_WISH_CHARS} characters what is to be refused or held")
    request.cockpit.drafts.start(request.services, wish, by=request.principal.id)
    return RedirectResponse("/policies/draft", 303)


async def cancel_draft(request: PageRequest) -> Response:
    """Wait for the model no longer."""
    request.cockpit.drafts.job.cancel()
    return RedirectResponse("/policies/draft", 303)


# The playground: what the policy in force makes of a pasted call. Nothing is recorded, charged or run.

EXAMPLE: Final = '{\n  "tool": "query_db",\n  "arguments": {"sql": "SELECT 1; DROP TABLE invoices; --"}\n}\n'
_KNOWN: Final = frozenset({"tool", "server", "arguments", "agent", "session", "task", "unresolved"})


async def playground(request: PageRequest) -> Response:
    """Show the form with an example."""
    return _shown(request, text=EXAMPLE)


async def decide(request: PageRequest) -> Response:
    """Show what would be decided."""
    text = request.form.get("call", "").replace("\r\n", "\n")
    try:
        call = _call(text)
    except InvalidCall as problem:
        return _shown(request, text=text, problem=problem, status=problem.status)
    policy, now = request.services.policy.current, request.services.clock()
    evaluation = await asyncio.to_thread(tried, policy, call, now=now)
    return _shown(request, text=text, **_result(call, evaluation))


def _shown(
    request: PageRequest, *, text: str, problem: InvalidCall | None = None, status: int = 200, **result: Any
) -> Response:
    return html(request, "playground.html", status, text=text, problem=problem, result=result or None)


def _call(text: str) -> dict[str, Any]:
    """Return the pasted call; raises `InvalidCall` where it is none."""
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


DAYS: Final = (1, 7, 30)
AT_ONCE: Final = 5  # answers of the API that the editor waits for: what it shows at once is that cheap


async def policies(request: PageRequest) -> Response:
    """Show the editor with what is in force, or with an earlier text."""
    text = await asyncio.to_thread(text_in_force, request.services.policy)
    earlier = request.query.get("from", "")
    if earlier:
        kept = await asyncio.to_thread(editing.kept_text, request.services, earlier)
        if kept is None:
            raise InvalidCall("the text of this configuration was not kept", code="not_found", status=404)
        return await check_text(request, kept, days=DAYS[1], why="An earlier configuration.")
    return await _editor(request, text=text)


async def check(request: PageRequest) -> Response:
    """Show whether the text compiles, what differs, and which recorded calls would have ended otherwise."""
    days = int(request.form["days"]) if request.form.get("days", "").isdigit() else DAYS[1]
    return await check_text(request, editing.text_of_form(request.form), days=days)


async def apply(request: PageRequest) -> Response:
    """Put the text in force, unless another one was meanwhile."""
    text, base = editing.text_of_form(request.form), request.form.get("base", "")
    services = request.services
    if base != services.policy.current.digest:
        problem = InvalidCall(
            "another configuration was put in force meanwhile",
            code="conflict",
            hint="look at the difference",
            status=409,
        )
        return await check_text(request, text, days=DAYS[1], problem=problem)
    before = await asyncio.to_thread(text_in_force, services.policy)
    changed = await asyncio.to_thread(replace_config, services.policy, text, by=request.principal.id)
    await asyncio.to_thread(editing.keep_text, services, changed["before"], before)
    await asyncio.to_thread(editing.keep_text, services, changed["digest"], text)
    return RedirectResponse("/policies?done=1", 303)


async def check_text(
    request: PageRequest,
    text: str,
    *,
    days: int,
    problem: InvalidCall | None = None,
    why: str = "",
    tool: str = "",
) -> Response:
    """Show the editor with `text`, checked against what is in force and replayed."""
    services = request.services
    before = await asyncio.to_thread(text_in_force, services.policy)
    checked = await asyncio.to_thread(examine_config, services.policy, text)
    replay: ReplayFound | None = None
    if checked["valid"]:
        replay = ReplayFound(text=text, days=min(days, REPLAY_DAYS))
        since = services.clock() - int(timedelta(days=replay.days).total_seconds()) * MICROS
        query = {"since": rfc3339(since), "limit": str(MAX_REPLAYED)} | ({"tool": tool} if tool else {})
        candidate = (await asyncio.to_thread(services.policy.check, text)).policy
        for _ in range(AT_ONCE):
            step = await asyncio.to_thread(replay_calls, services, candidate, query_of(REPLAY_CONFIG, query))
            replay.take(step)
            replay.complete = step["next"] is None
            if replay.complete:
                break
            query["cursor"] = step["next"]
    return await _editor(
        request,
        text=text,
        problem=problem,
        why=why,
        days=days,
        problems=checked["problems"],
        difference=editing.difference(before, text),
        replay=replay,
        same=checked["valid"] and checked["digest"] == services.policy.current.digest,
        checked=True,
    )


async def _editor(request: PageRequest, *, text: str, **more: Any) -> Response:
    holder = request.services.policy
    context: dict[str, Any] = {
        "problem": None, "why": "", "days": DAYS[1], "problems": [], "difference": [], "replay": None,
        "same": True, "checked": False,
    }  # fmt: skip
    problems, problem = more.get("problems", []), more.get("problem")
    return html(
        request,
        "policies.html",
        problem.status if problem is not None else 422 if problems else 200,
        text=text,
        lines=text.count("\n") + 1,
        bad={problem["line"] for problem in problems},
        base=holder.current.digest,
        file=None if holder.path is None else holder.path.name,
        history=await asyncio.to_thread(editing.history, request.services),
        done="done" in request.query,
        spans=DAYS,
        **(context | more),
    )


# Replay over every recorded call of a period: in steps, with its progress, and bounded in what it keeps. What is said
# of it says which calls it is about: where it reached back to, and whether that is the whole period.


async def replay_page(request: PageRequest) -> Response:
    """Show where the replay stands, and what it has found so far."""
    replays = request.cockpit.replays
    found, total = replays.found, request.cockpit.rollup.tally.kinds["decision"]
    before = await asyncio.to_thread(text_in_force, request.services.policy)
    return html(
        request,
        "replay.html",
        standing=replays.job.standing,
        found=found,
        share=min(100, found.done * 100 // max(1, min(total, MOST))),
        difference=editing.difference(before, found.text) if found.text else [],
    )


async def start_replay(request: PageRequest) -> Response:
    """Replay the text of the form over all calls of its days."""
    text, days = editing.text_of_form(request.form), request.form.get("days", "")
    if not (days.isascii() and days.isdigit() and 1 <= int(days[:4]) <= REPLAY_DAYS):
        raise InvalidCall(f"the days must be from 1 to {REPLAY_DAYS}")
    candidate = (await asyncio.to_thread(request.services.policy.check, text_of(text.encode()))).policy
    request.cockpit.replays.start(request.services, candidate, text=text, days=int(days[:4]), by=request.principal.id)
    return RedirectResponse("/policies/replay", 303)


async def cancel_replay(request: PageRequest) -> Response:
    """End the replay; what it found stays."""
    request.cockpit.replays.job.cancel()
    return RedirectResponse("/policies/replay", 303)


PAGES: Final = (
    page("GET", "/policies", policies, "admin", query=filters("from", "done")),
    page("POST", "/policies/check", check, "admin"),
    page("POST", "/policies/apply", apply, "admin"),
    page("GET", "/policies/draft", draft_page, "admin"),
    page("POST", "/policies/draft", start_draft, "admin"),
    page("POST", "/policies/draft/cancel", cancel_draft, "admin"),
    page("GET", "/policies/playground", playground, "admin"),
    page("POST", "/policies/playground", decide, "admin"),
    page("GET", "/policies/replay", replay_page, "admin"),
    page("POST", "/policies/replay", start_replay, "admin"),
    page("POST", "/policies/replay/cancel", cancel_replay, "admin"),
)
