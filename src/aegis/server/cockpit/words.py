"""The words and numbers of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aegis.core.times import rfc3339

OUTCOMES: Final = {
    "allow": "allowed",
    "sanitize": "changed",
    "require_approval": "held",
    "block": "blocked",
}
STATES: Final = {
    "pending": "waits",
    "approved": "approved",
    "denied": "denied",
    "expired": "expired",
    "cancelled": "cancelled",
    "redeemed": "ran",
}
_EFFECTS: Final = {
    "read": "reads data",
    "write": "writes data",
    "network": "reaches the network",
    "exec": "runs a program",
    "external_send": "sends to others",
}
_ROWS: Final = {"insert": ("inserts", "into"), "update": ("updates", "of"), "delete": ("deletes", "of")}
_SHARED: Final = {
    "none": "", "policy_denied": "denied by policy", "unregistered_tool": "unregistered tool",
    "risk_ceiling": "above the risk ceiling", "irreversible": "cannot be undone",
    "schema_invalid": "arguments do not fit", "attack_detected": "attack detected",
    "sensitive_data": "sensitive data", "exfiltration": "data leaving",
    "scope_violation": "outside its mission", "budget_exhausted": "budget exhausted", "rate_limited": "rate limited",
    "revoked": "agent stopped", "insufficient_evidence": "cannot be evaluated", "judge_rejected": "rejected by a judge",
    "judge_failed": "a judge failed", "approval_required": "needs approval", "approval_denied": "approval denied",
    "approval_expired": "approval expired", "approval_cancelled": "approval cancelled",
    "chain_blocked": "chain blocked", "proof_invalid": "proof invalid",
    "mission_invalid": "mission invalid", "tool_changed": "tool changed",
    "postcondition_failed": "postcondition failed", "conflict": "conflicting call", "anomaly": "unusual",
    "unavailable": "log unavailable",
}  # fmt: skip


def outcome(word: str) -> str:
    """What an outcome is called on a page."""
    return OUTCOMES.get(word, word)


def state(word: str) -> str:
    """What the state of an approval is called."""
    return STATES.get(word, word)


def reason(word: str) -> str:
    """What a reason is called."""
    return _SHARED.get(word, word.replace("_", " "))


def effects(names: Sequence[str]) -> str:
    """What a call does, in one phrase."""
    return ", ".join(_EFFECTS.get(name, name) for name in names)


def rules(guards: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rules that a receipt's guards found broken."""
    return sorted({rule for guard in guards for rule in guard.get("rules", ())})


_SAID: Final = {
    ("config", "start"): "the configuration at the start",
    ("config", "api"): "the configuration was changed",
    ("config", "file"): "the file of the configuration changed",
    ("config", "signal"): "the configuration was read again",
    ("config", "draft"): "a model was asked to draft a policy",
    ("config", "alert_add"): "an alert was made",
    ("config", "alert_remove"): "an alert was removed",
    ("access", "sign_in"): "signed in",
    ("access", "reveal"): "values were revealed",
    ("access", "export"): "every payload was written out",
    ("erasure", "erase"): "a payload was erased",
    ("approval", "previewed"): "its effect was looked at beforehand",
    ("approval", "approved"): "approved",
    ("approval", "denied"): "denied",
    ("approval", "voted"): "one of several said yes",
    ("approval", "narrowed"): "approved with less",
    ("approval", "expired"): "nobody answered in time",
    ("judge", "started"): "a judge began",
    ("judge", "ended"): "a judge came to its end",
    ("approval", "cancelled"): "no longer asked for",
    ("redemption", "redeemed"): "its approval was used, once",
    ("redemption", "permit_redeemed"): "its permit was used, once",
    ("session", "open"): "a session was opened",
    ("mission", "issue"): "a mission was given",
    ("mission", "delegate"): "a mission was handed on",
    ("revocation", "revoke"): "stopped",
    ("revocation", "restore"): "let go on",
    ("revocation", "suspend"): "a mission was suspended",
    ("revocation", "resume"): "a mission was resumed",
    ("grant", "open"): "the same call may run again in its session",
    ("grant", "create"): "an account or a key was made",
    ("grant", "password"): "a password was set",
    ("grant", "roles"): "an account was given other roles",
    ("grant", "disable"): "an account was disabled",
    ("grant", "enable"): "an account was let in again",
    ("grant", "revoke"): "rights were taken back",
    ("key", "add"): "a signing key was introduced",
    ("key", "rotate"): "a signing key took over",
    ("alarm", "alert_blocks"): "an alert told that many calls are blocked",
    ("alarm", "alert_new_rule"): "an alert told of a rule broken for the first time",
    ("alarm", "alert_waiting"): "an alert told that a held call waits",
    ("alarm", "alert_budget"): "an alert told of a budget near its end",
    ("alarm", "alert_silent"): "an alert told that nothing was recorded",
    ("alarm", "uncovered"): "a tool ran without a decision",
    ("alarm", "documents_adopted"): "what an older version had stored was sealed as it was found",
    ("alarm", "mark_missing"): "the log was opened by a home that had no mark of it",
    ("alarm", "rollback_accepted"): "a store that does not continue what the home saw was accepted",
}

_BY: Final = frozenset(
    {("config", "api"), ("config", "draft"), ("config", "alert_add"), ("config", "alert_remove"),
     ("access", "sign_in"), ("access", "reveal"), ("access", "export"),
     ("erasure", "erase"), ("revocation", "revoke"), ("revocation", "restore"), ("revocation", "suspend"),
     ("revocation", "resume"), ("grant", "create"), ("grant", "password"), ("grant", "roles"), ("grant", "disable"),
     ("grant", "enable"), ("grant", "revoke"), ("grant", "open")}
)  # fmt: skip


def summary(receipt: Mapping[str, Any]) -> str:
    """One line about a receipt, without any value that an agent chose."""
    kind = receipt["kind"]
    if kind in ("decision", "result"):
        parts = [effects(receipt.get("effects", ())) or ("a result" if kind == "result" else "no known effect")]
        why = reason(receipt.get("reason", "none"))
        if why:
            parts.append(why)
        found = rules(receipt.get("guards", ()))
        if found:
            parts.append(", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else ""))
        return " · ".join(parts)
    action = str(receipt.get("action", ""))
    said = _SAID.get((kind, action))
    if said is not None:
        return f"{said}, by {receipt['principal']}" if (kind, action) in _BY else said
    return f"{kind}: {action.replace('_', ' ')}" if action else str(kind)


def time(micros: int) -> str:
    """RFC 3339, which pages put into local time."""
    return rfc3339(micros)


def count(number: float) -> str:
    """A number with thin groups of three digits."""
    return f"{number:,.0f}".replace(",", "\u202f")


def many(number: int, one: str) -> str:
    """How many of what."""
    return f"{count(number)} {one}{'' if number == 1 else 's'}"


def rows(table: str, touched: Mapping[str, int]) -> str:
    """What a statement did to the rows of one table, by the name of what it did."""
    return ", ".join(
        f"removes the table {table} with its {many(number, 'row')}"
        if word == "removed"
        else f"{_ROWS[word][0]} {many(number, 'row')} {_ROWS[word][1]} {table}"
        for word, number in touched.items()
    )


def micros(value: float | None) -> str:
    """A duration given in microseconds."""
    if value is None:
        return "–"
    if value < 1_000:
        return f"{value:.0f} µs"
    if value < 1_000_000:
        return f"{value / 1_000:.1f} ms".replace(".0 ", " ")
    return f"{value / 1_000_000:.1f} s"


def duration(seconds: float) -> str:
    """A span of time in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
