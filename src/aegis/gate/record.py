"""Between an evaluation and the log: the receipt's members, the payload beside it, and the way back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import Struct

from aegis.core.call import ToolCall
from aegis.core.canonical import SALT_BYTES, call_commitment, call_digest, payload_commitment
from aegis.core.combine import Combined
from aegis.core.decision import ApprovalRef, Decision, GuardTime, ReceiptRef
from aegis.core.finding import Finding
from aegis.core.outcome import Outcome, Reason, message_for, outcome_of, risk_of, verdict_of
from aegis.core.ports import Entry
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, agent_signer
from aegis.policy.model import Evaluation

# Members that are the caller's word alone.
_CLAIMS: Final = (
    "parent", "turn", "task", "messages_digest", "unresolved", "depends_on", "resolves", "handoff", "reasoning",
)  # fmt: skip
_NO_RULES: Final[tuple[str, ...]] = ()
_NO_CLAIMS: Final = (None,) * len(_CLAIMS)

_last: tuple[Combined | None, list[dict[str, Any]]] = (None, [])  # what `guard_members` said last, and of what


class Subject(Struct, frozen=True, kw_only=True):
    """One call on its way: who asks, and its arguments as canonical bytes.

    `worker` is set on a judge's own call: the call that it looks at. `decision_id` is that of the one decision of a
    call whose host gave it no id, which names the call as well.
    """

    call: ToolCall
    call_id: str
    principal: Principal
    agent: str
    session: str
    canonical: bytes
    request_digest: str
    decision_id: str | None = None
    worker: Subject | None = None


class Made(Struct, frozen=True, kw_only=True):
    """A decision that is ready to be recorded: its draft, and the decision's members but for the receipt."""

    draft: Draft
    decision_id: str
    call_digest: str
    members: dict[str, Any]


def make(
    subject: Subject,
    evaluation: Evaluation,
    *,
    decision_id: str,
    policy_digest: str,
    settings: Mapping[str, str],
    epoch: int,
    parent: str | None,
    approval: ApprovalRef | None,
    members: Mapping[str, Any],
) -> Made:
    """Draft the decision of `evaluation` for `subject`; nothing is recorded yet.

    `members` holds what the receipt says for those who take part in the decision.
    """
    combined, call = evaluation.combined, subject.call
    salt = os.urandom(SALT_BYTES)
    digest = subject.request_digest
    if evaluation.canonical is not None:
        digest = call_digest(server=call.server, tool=call.tool, arguments=evaluation.canonical)
    risk = max(combined.risk, evaluation.tier)
    released: dict[str, Any] = {
        "outcome": combined.outcome,
        "verdict": combined.verdict,
        "risk": risk,
        "reason": combined.reason,
        "message": evaluation.message or message_for(combined.outcome, combined.reason),
        "decision_id": decision_id,
        "call_id": subject.call_id,
        "request_digest": subject.request_digest,
        "call_digest": digest,
        "policy_digest": policy_digest,
        "salt": salt.hex(),
        "arguments": evaluation.arguments if combined.outcome is Outcome.SANITIZE else None,
        "approval": approval,
        "findings": combined.findings,
        "guards": evaluation.times,
        "retry_after": combined.retry_after,
        "missing": tuple(dict.fromkeys(combined.missing)),  # two guards can name the same
    }
    payload = _payload(subject, evaluation, digest, approval, epoch)
    said: dict[str, Any] = {
        "kind": "decision",
        "receipt_id": decision_id,
        "agent": subject.agent,
        "principal": subject.principal.id,
        "roles": sorted(subject.principal.roles),
        "call_id": subject.call_id,
        "tool": call.tool,
        "call_commitment": call_commitment(salt, subject.request_digest, digest),
        "payload_commitment": payload_commitment(salt, payload),
        "effects": sorted(evaluation.effects),
        "risk": risk.word,
        "decision": combined.outcome.word,
        "verdict": combined.verdict.word,
        "reason": combined.reason.word,
        "guards": guard_members(combined),
        "policy_digest": policy_digest,
        "settings": settings,
    }
    if subject.session:
        said["session"] = subject.session
    if call.server is not None:
        said["server"] = call.server
    if parent is not None:
        said["parent"] = parent
    if evaluation.judge:
        said["judge"] = evaluation.judge
    if combined.missing:
        said["missing"] = _closed_names(combined.missing)
    if call.reasoning is not None:
        said["provenance"] = {"reasoning": call.reasoning.facts(salt)}
    said.update(members)
    draft = Draft(members=said, signer=agent_signer(subject.agent), payload=payload, salt=salt)
    return Made(draft=draft, decision_id=decision_id, call_digest=digest, members=released)


def _closed_names(missing: Sequence[str]) -> list[str]:
    """What was missing, in words of ours: pointers hold names that the caller chose."""
    return sorted({_closed_name(name) for name in missing})


def _closed_name(name: str) -> str:
    if not name or name.startswith("/"):
        return "argument"
    return "result" if name.startswith("result:") else name


def guard_members(combined: Combined) -> list[dict[str, Any]]:
    """What a receipt says of each guard: its outcome, and the rules that it found broken.

    The list is nobody's to change: where nothing was found, call after call comes to the same `combined`.
    """
    global _last
    known, members = _last
    if known is not combined:
        members = _guard_members(combined)
        if not combined.findings:  # what was found of a call is kept no longer than the call
            _last = (combined, members)
    return members


def _guard_members(combined: Combined) -> list[dict[str, Any]]:
    return [
        {
            "guard": report.guard,
            "outcome": report.outcome.word,
            "rules": sorted({finding.rule for finding in report.findings}) if report.findings else _NO_RULES,
        }
        for report in combined.reports
    ]


def _payload(subject: Subject, evaluation: Evaluation, digest: str, approval: ApprovalRef | None, epoch: int) -> bytes:
    call, findings = subject.call, evaluation.combined.findings
    value: dict[str, Any] = {
        "tool": call.tool,
        "server": call.server,
        "arguments": orjson.Fragment(subject.canonical),
        "request_digest": subject.request_digest,
        "call_digest": digest,
        "epoch": epoch,
    }
    if evaluation.unread:  # a flood that is refused is not stored: its digest says which call it was
        del value["arguments"]
        value["size"] = len(subject.canonical)
    if evaluation.canonical is not None:
        value["patched"] = orjson.Fragment(evaluation.canonical)
    if evaluation.irreversible:
        value["irreversible"] = True
    if evaluation.roles:
        value["roles"] = dict(evaluation.roles)
    if evaluation.combined.missing:
        value["missing"] = tuple(dict.fromkeys(evaluation.combined.missing))
    if evaluation.message:
        value["message"] = evaluation.message
    if findings:
        value["findings"] = [finding_record(finding) for finding in findings]
    if evaluation.times:
        value["guards"] = [[time.guard, time.outcome.word, time.us] for time in evaluation.times]
    if approval is not None:
        value["approval"] = [approval.id, approval.expires_at]
        if approval.waiting_for:
            value["approval"].append(approval.waiting_for)
        if call.proof is not None:  # whoever narrows the call is judged under the same proof
            value["proof"] = call.proof
    claimed = (
        call.parent, call.turn, call.task, call.messages_digest, call.unresolved or None, call.depends_on or None,
        call.resolves, call.handoff or None, None if call.reasoning is None else call.reasoning.claims(),
    )  # fmt: skip
    if claimed != _NO_CLAIMS and not evaluation.unread:
        value["claimed"] = {name: member for name, member in zip(_CLAIMS, claimed, strict=True) if member is not None}
    return orjson.dumps(value)


def finding_record(finding: Finding) -> dict[str, Any]:
    """A finding as the encrypted payload keeps it, evidence unmasked."""
    record: dict[str, Any] = {
        "guard": finding.guard,
        "rule": finding.rule,
        "category": finding.category,
        "severity": finding.severity.word,
        "outcome": finding.outcome.word,
        "path": finding.path,
        "message": finding.message,
        "evidence": finding.evidence,
    }
    if finding.origins:
        record["origins"] = finding.origins
    return record


def findings_of(payload: dict[str, Any]) -> tuple[Finding, ...]:
    """The findings that a stored payload holds."""
    return tuple(
        Finding(
            guard=row["guard"],
            rule=row["rule"],
            category=row["category"],
            severity=risk_of(row["severity"]),
            outcome=outcome_of(row["outcome"]),
            path=row["path"],
            message=row["message"],
            evidence=row["evidence"],
            origins=tuple((receipt, path) for receipt, path in row.get("origins", ())),
        )
        for row in payload.get("findings", ())
    )


def _approval(kept: Sequence[Any]) -> ApprovalRef:
    return ApprovalRef(id=kept[0], expires_at=kept[1], waiting_for=tuple(kept[2]) if len(kept) > 2 else ())


def recall(entry: Entry, payload: dict[str, Any], salt: bytes) -> Decision:
    """The decision that a recorded entry and its payload stand for, as it was released."""
    body = orjson.loads(entry.body)
    outcome, reason = outcome_of(body["decision"]), Reason(body["reason"])
    approval = payload.get("approval")
    return Decision(
        outcome=outcome,
        verdict=verdict_of(body["verdict"]),
        risk=risk_of(body["risk"]),
        reason=reason,
        message=payload.get("message") or message_for(outcome, reason),
        decision_id=entry.receipt_id,
        call_id=body["call_id"],
        request_digest=payload["request_digest"],
        call_digest=payload["call_digest"],
        policy_digest=body["policy_digest"],
        salt=salt.hex(),
        arguments=payload["patched"] if outcome is Outcome.SANITIZE else None,
        approval=None if approval is None else _approval(approval),
        receipt=ReceiptRef(id=entry.receipt_id, index=entry.index, leaf_hash=entry.leaf_hash.hex()),
        findings=findings_of(payload),
        missing=tuple(payload.get("missing", ())),
        guards=tuple(
            GuardTime(guard=guard, outcome=outcome_of(word), us=us) for guard, word, us in payload.get("guards", ())
        ),
    )
