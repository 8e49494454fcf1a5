"""Proposing a standing approval: the narrowest one that covers what people approved again and again.

Calls are alike where they have the same tool, agent and principal, were held by the same rules, have the same members,
and differ only within one shape a member. All of it is read from the log, so that the same log proposes the same.
"""

# (1) The shape of a value is a pattern as narrow as we can say in one line: an address at one domain, a file in one
#     folder, a page of one folder of a host, a command with another last word, a number behind the same letters.
#     What has no shape is compared as it is.
# (2) Of the calls of this shape that people answered, one no ends it, and fewer than three yes propose nothing.
# (3) The rule covers the values that were approved, and of a shape only where they differed.
# (4) It is replayed against what is in force: what ends otherwise is what it would have let through.

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from msgspec import Struct
from starlette.responses import Response

from aegis.approvals.queue import find, load
from aegis.approvals.values import Approval, payload_of
from aegis.config.document import dump
from aegis.config.text import EXPIRES_DAYS, MAX_REPLAYED, text_in_force, with_standing
from aegis.core.canonical import canonical, sha256
from aegis.core.outcome import Outcome
from aegis.core.patterns import Lazy
from aegis.core.ports import Reader, Search
from aegis.core.times import MICROS
from aegis.detect.roles import is_for_people, named_role, names_any_text, words_of
from aegis.errors import InvalidCall
from aegis.gate.parts import Parts
from aegis.gate.record import findings_of
from aegis.gate.replay import replayed
from aegis.policy.guards.standing import CATEGORIES, GUARDS, REASONS
from aegis.server.administration import replace_config
from aegis.server.admission import ADMINISTER, RESOLVE
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import MAX_REASON_CHARS, answer
from aegis.server.schemas import DIGEST, ID, TEXT, WHOLE, Schema, closed, failing, named, nullable, ok, ref
from aegis.server.services import Services

ENOUGH: Final = 3  # alike calls that people approved before anything is proposed
LOOKED: Final = 300  # answers about one tool that are looked at, the newest: bounds what one page reads
WEEKS: Final = 4  # that a proposal is replayed over
MAX_DAYS: Final = 365
_MAX_CHARS: Final = 2_000  # of a value that has a shape
_DATA: Final = frozenset({"pii", "secret"})

_PLAIN: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]*"  # a name that is neither hidden nor an option, and climbs nowhere
_ADDRESS: Final = Lazy(r"[A-Za-z0-9._%+-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)")
_PAGE: Final = Lazy(rf"(https?://[A-Za-z0-9.-]+(?::[0-9]+)?/(?:{_PLAIN}/)*){_PLAIN}")
_FILE: Final = Lazy(rf"(/?(?:{_PLAIN}/)+){_PLAIN}")
_NUMBERED: Final = Lazy(r"((?:[A-Za-z]{1,16}[-_#]?)?)[0-9]{1,12}")
_COMMAND: Final = Lazy(r"[A-Za-z0-9@%+=:,./_-]+(?: [A-Za-z0-9@%+=:,./_-]+)+")
_ENDING: Final = Lazy(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9]{0,7})")
_EXACT: Final = frozenset({"sql", "code", "query_fragment"})  # one word more is another deed
_COUNTED: Final = frozenset({"id", "number", "no", "order", "ref", "reference", "ticket", "issue", "invoice", "case"})
_WHOSE: Final = frozenset({"account", "payee", "recipient", "iban", "card", "bank", "wallet", "user", "customer"})

Shape = tuple[str, str]


class AlikeCalls(Struct, frozen=True, kw_only=True):
    """What people answered to calls like one: the receipts of those approved and denied, and why nothing is proposed.

    `rule` is the entry of `approvals.standing` without `reason` and `expires`; `digest` is of it.
    """

    approved: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    why_not: str = ""
    rule: dict[str, Any] | None = None

    @property
    def digest(self) -> str | None:
        """What a yes to the rule is bound to."""
        return None if self.rule is None else sha256(canonical(self.rule))


class _Held(Struct, frozen=True, kw_only=True):
    """A held call as the log knows it."""

    receipt: str
    rules: frozenset[str]
    arguments: dict[str, Any]
    shapes: Mapping[str, Shape]


def alike(services: Services, approval: Approval) -> AlikeCalls:
    """Find what people answered to calls like the held one, and the rule that this proposes."""
    parts = services.gate.parts
    with services.store.reader() as reader:
        held = _held(parts, reader, approval)
        if held is None:
            return AlikeCalls(why_not="calls that are held for such a reason are looked at each time")
        yes: list[_Held] = []
        no: list[str] = []
        seen: set[str] = set()
        for entry in reader.search(Search(kind="approval", tool=approval.tool, limit=LOOKED)):
            body = orjson.loads(entry.body)
            known = body.get("approval_id", "")
            if body.get("action") not in ("approved", "denied") or known in seen:
                continue
            seen.add(known)
            other = find(reader, known)
            if other is None or other.server != approval.server:
                continue
            told = _held(parts, reader, other)
            if told is None or told.shapes != held.shapes:
                continue
            if other.state == "denied":  # whoever asked: the same deed
                no.append(told.receipt)
            elif _is_yes(other) and _asks(other) == _asks(approval) and told.rules == held.rules:
                yes.append(told)
    approved = tuple(one.receipt for one in yes)
    if no:
        return AlikeCalls(approved=approved, denied=tuple(no), why_not="a person denied such a call")
    if len(yes) < ENOUGH:
        return AlikeCalls(
            approved=approved, why_not=f"such calls that people approved: {len(yes)}; {ENOUGH} propose a rule"
        )
    tool = approval.tool if approval.server is None else f"{approval.server}/{approval.tool}"
    rule = {
        "tool": tool,
        "agent": approval.agent,
        "principal": approval.principal,
        "rules": sorted(held.rules),
        "arguments": schema_of([one.arguments for one in yes], held.shapes),
    }
    return AlikeCalls(approved=approved, rule=rule)


def _asks(approval: Approval) -> tuple[str, str]:
    return approval.agent, approval.principal


def _is_yes(approval: Approval) -> bool:
    """Whether people approved the call as it was asked for; a grant or evidence is nobody's yes."""
    return approval.state in ("approved", "redeemed") and bool(approval.votes) and approval.narrowed_by is None


def _held(parts: Parts, reader: Reader, approval: Approval) -> _Held | None:
    """The call of an approval; `None` where it is erased, or was held for more than a standing approval covers."""
    entry, payload = reader.entry_by_id(approval.decision_id), payload_of(parts, reader, approval.decision_id)
    if entry is None or payload is None or not isinstance(payload.get("arguments"), dict):
        return None
    if approval.waiting_for or approval.tool.startswith("aegis:") or any(sign in approval.tool for sign in "*/"):
        return None
    receipt = orjson.loads(entry.body)
    asking = {one["guard"] for one in receipt["guards"] if one["outcome"] != Outcome.ALLOW.word}
    findings = findings_of(payload)
    held = [one for one in findings if one.outcome is not Outcome.ALLOW]
    if (
        not held
        or not asking <= set(GUARDS)
        or receipt["reason"] not in {one.value for one in REASONS}
        or any(one.outcome is not Outcome.REQUIRE_APPROVAL or one.category not in CATEGORIES for one in held)
        or any(one.category in _DATA for one in findings)
    ):
        return None
    arguments = payload["arguments"]
    shapes = {name: shape_of(approval.tool, name, value) for name, value in arguments.items()}
    return _Held(
        receipt=entry.receipt_id, rules=frozenset(one.rule for one in held), arguments=arguments, shapes=shapes
    )


def shape_of(tool: str, name: str, value: Any) -> Shape:
    """The shape of one member: a pattern, text for people, a number, a list of one pattern, or the value itself."""
    if isinstance(value, str):
        pattern = _pattern(tool, name, value)
        if pattern:
            return "pattern", pattern
        spoken = named_role(tool, name)[0] == "content" and (
            not names_any_text(name) or words_of(name)[-1:] == ("text",)
        )
        if spoken and is_for_people(tool):
            return "text", ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", ""
    if isinstance(value, list) and value:
        patterns = {_pattern(tool, name, one) if isinstance(one, str) else "" for one in value}
        if len(patterns) == 1 and "" not in patterns:
            return "list", patterns.pop()
    return "value", canonical(value).decode()


def _pattern(tool: str, name: str, text: str) -> str:
    """The pattern of all values that we take for alike, anchored; empty where there is none."""
    if len(text) > _MAX_CHARS:
        return ""
    role = named_role(tool, name)[0]
    if role == "command":
        return _command(text)
    if role in _EXACT:
        return ""
    if found := _ADDRESS.fullmatch(text):
        return rf"^[A-Za-z0-9._%+-]+@{_spelled(found[1])}$"
    words = words_of(name)
    if not _WHOSE.isdisjoint(words):
        return ""
    if found := _PAGE.fullmatch(text) or _FILE.fullmatch(text):
        return f"^{_spelled(found[1])}{_PLAIN}$"
    if words and words[-1] in _COUNTED and (found := _NUMBERED.fullmatch(text)):
        return f"^{_spelled(found[1])}[0-9]{{1,12}}$"
    return ""


def _command(text: str) -> str:
    """The same words with another last one: a file of one folder or one ending, or a number behind the same letters."""
    if not _COMMAND.fullmatch(text):
        return ""
    words = text.split(" ")
    before, last = f"{_spelled(' '.join(words[:-1]))} ", words[-1]
    if found := _FILE.fullmatch(last):
        return f"^{before}{_spelled(found[1])}{_PLAIN}$"
    if found := _ENDING.fullmatch(last):
        return f"^{before}{_PLAIN}{_spelled(found[1])}$"
    found = _NUMBERED.fullmatch(last)
    return f"^{before}{_spelled(found[1])}[0-9]{{1,12}}$" if found and found[1] else ""


def _spelled(text: str) -> str:
    """`text` as a pattern that matches it alone."""
    return "".join(f"\\{char}" if char in r"\.+*?()|[]{}^$" else char for char in text)


def schema_of(calls: Sequence[Mapping[str, Any]], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """The JSON Schema of exactly these calls, and of a shape where they differ."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(shapes),
        "properties": {name: _member([call[name] for call in calls], shape) for name, shape in sorted(shapes.items())},
    }


def _member(values: Sequence[Any], shape: Shape) -> dict[str, Any]:
    kind, pattern = shape
    if len({canonical(value) for value in values}) == 1:
        return {"const": values[0]}
    if kind == "number":
        return {"type": "number", "minimum": min(values), "maximum": max(values)}
    if kind == "text":
        return {"type": "string", "maxLength": max(map(len, values))}
    if kind == "list":
        most = max(map(len, values))
        return {"type": "array", "minItems": 1, "maxItems": most, "items": {"type": "string", "pattern": pattern}}
    return {"type": "string", "pattern": pattern}


def entry_of(rule: Mapping[str, Any], *, reason: str, days: int, now: int) -> dict[str, Any]:
    """The entry of `approvals.standing`: the rule with its reason, ending `days` after `now`."""
    until = datetime.fromtimestamp(now / MICROS, UTC).date() + timedelta(days=days)
    return {**rule, "reason": reason, "expires": until.isoformat()}


def proposal(services: Services, approval: Approval) -> dict[str, Any]:
    """Tell what is proposed for calls like the held one, and which recorded calls it would have let through."""
    found = alike(services, approval)
    told: dict[str, Any] = {
        "approved": list(found.approved),
        "denied": list(found.denied),
        "why_not": found.why_not,
        "digest": found.digest,
        "lines": "",
        "replay": None,
    }
    if found.rule is None:
        return told
    entry = entry_of(found.rule, reason="REASON", days=EXPIRES_DAYS, now=services.clock())
    told["lines"] = dump({"approvals": {"standing": [entry]}})
    candidate = services.policy.check(with_standing(text_in_force(services.policy), entry)).policy
    search = Search(
        kind="decision",
        tool=approval.tool,
        agent=approval.agent,
        since=services.clock() - int(timedelta(weeks=WEEKS).total_seconds()) * MICROS,
        limit=MAX_REPLAYED,
    )
    parts = services.gate.parts
    now, then = (replayed(parts, services.evaluate, one, search) for one in (services.policy.current, candidate))
    # What is in force may itself end otherwise than what was: only the difference is the rule's.
    as_now = {one["receipt_id"]: one["after"]["decision"] for one in now["changed"]}
    through = [
        one
        for one in then["changed"]
        if one["after"]["decision"] in ("allow", "sanitize")
        and as_now.get(one["receipt_id"], one["before"]["decision"]) != one["after"]["decision"]
    ]
    others = [one for one in through if one["receipt_id"] not in found.approved]
    told["replay"] = {
        "weeks": WEEKS,
        "replayed": then["replayed"],
        "skipped": then["skipped"],
        "complete": then["replayed"] + then["skipped"] < MAX_REPLAYED,
        "approved": len(through) - len(others),
        "others": len(others),
        "receipts": [{"index": one["index"], "receipt_id": one["receipt_id"]} for one in others],
    }
    return told


def drafted(services: Services, approval: Approval, *, digest: str, reason: str, days: int) -> str:
    """Give the configuration in force with the standing approval that was shown under `digest`.

    Raises `InvalidCall` (409) where nothing is proposed, or something else than what was shown.
    """
    found = alike(services, approval)
    if found.rule is None:
        raise InvalidCall(f"nothing is proposed: {found.why_not}", code="conflict", status=409)
    if found.digest != digest:
        raise InvalidCall(
            "another rule is proposed than the one that was shown", code="conflict", hint="look at it again", status=409
        )
    entry = entry_of(found.rule, reason=reason, days=days, now=services.clock())
    return with_standing(text_in_force(services.policy), entry)


def proposed(services: Services, approval_id: str) -> dict[str, Any]:
    """Tell what the approval of that id proposes; raises `InvalidCall` (404) where there is none."""
    with services.store.reader() as reader:
        approval = load(reader, approval_id)
    return proposal(services, approval)


def write(services: Services, approval_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Put in force what was shown, by a body of `WRITE_STANDING` and who it is `by`; gives the digests of policies."""
    with services.store.reader() as reader:
        approval = load(reader, approval_id)
    days = given.get("days", EXPIRES_DAYS)
    text = drafted(services, approval, digest=given["digest"], reason=given["reason"].strip(), days=days)
    return replace_config(services.policy, text, by=given["by"])


# Over HTTP.

STANDING_SCHEMAS: Final[dict[str, Schema]] = {
    "Standing": closed(
        {
            "approved": {"type": "array", "items": ID, "description": "receipts of such calls that people approved"},
            "denied": {"type": "array", "items": ID, "description": "receipts of such calls that a person denied"},
            "why_not": {**TEXT, "description": "why nothing is proposed, where nothing is"},
            "digest": {**nullable(DIGEST), "description": "of the rule, which writing it names"},
            "lines": {**TEXT, "description": "the rule as lines of `aegis.yaml`"},
            "replay": nullable(
                closed(
                    {
                        "weeks": WHOLE,
                        "replayed": WHOLE,
                        "skipped": WHOLE,
                        "complete": {"type": "boolean", "description": "whether these are all such calls"},
                        "approved": {**WHOLE, "description": "calls that people approved, which it would let through"},
                        "others": {**WHOLE, "description": "other calls that it would have let through"},
                        "receipts": {"type": "array", "items": closed({"index": WHOLE, "receipt_id": ID})},
                    }
                )
            ),
        }
    ),
    "StandingYes": closed(
        {
            "digest": {**DIGEST, "description": "of the rule that was shown; another one is refused (409)"},
            "reason": {"type": "string", "minLength": 1, "maxLength": MAX_REASON_CHARS, "pattern": "\\S"},
            "days": {"type": "integer", "minimum": 1, "maximum": MAX_DAYS, "default": EXPIRES_DAYS},
        },
        "digest",
        "reason",
    ),
}


async def propose_standing(request: ApiRequest) -> Response:
    """Propose a standing approval for calls like this one, and show what it would have let through."""
    return answer(await asyncio.to_thread(proposed, request.services, request.path["id"]))


PROPOSE_STANDING: Final = Endpoint(
    method="GET",
    path="/v1/approvals/{id}/always",
    operation="proposeStanding",
    tag="approvals",
    summary="The standing approval that people's answers to such calls propose; changes nothing",
    permission=RESOLVE,
    handler=propose_standing,
    path_params=named("id of the approval"),
    replies={**ok("what is proposed, or why nothing is", "Standing"), **failing(s404="there is none")},
)


async def write_standing(request: ApiRequest) -> Response:
    """Put the standing approval in force that was shown, with a reason and an end, on record."""
    given = request.body | {"by": request.principal.id}
    return answer(await asyncio.to_thread(write, request.services, request.path["id"], given))


WRITE_STANDING: Final = Endpoint(
    method="POST",
    path="/v1/approvals/{id}/always",
    operation="writeStanding",
    tag="approvals",
    summary="Put the proposed standing approval in force, on record",
    permission=ADMINISTER,
    handler=write_standing,
    path_params=named("id of the approval"),
    body=Body(schema=ref("StandingYes")),
    replies={
        **ok("in force", "ConfigChanged"),
        **failing(s404="there is none", s409="nothing is proposed, or another rule than the one that was shown"),
    },
)
