"""Text that somebody else wrote, shown so that it reads as what it is.

Controls, characters that turn the direction of text, and letters that look like others are marked; everything
is escaped. What is shown is what an approval binds, so nothing is left out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import orjson
from markupsafe import Markup, escape

from aegis.core.json import resolve
from aegis.core.text import mask
from aegis.core.times import rfc3339
from aegis.detect.fold import ASCII, LOOKALIKES
from aegis.detect.rules.scanner import Scanner

# What is shown by right alone: the texts that findings call private, masked wherever a page would show them.

PRIVATE: Final = frozenset({"secret", "pii"})
LONGEST_SEARCHED: Final = 262_144  # characters of one value in which pieces are masked; a longer one is masked whole
_EMPTY: Final = frozenset({"", "null", "{}", "[]"})


def private_texts(findings: Sequence[Mapping[str, Any]], submitted: Any, scanner: Scanner) -> list[str]:
    """Return the private texts, longest first; `submitted` is what the findings point into.

    A finding keeps the beginning of one match, so its rule is asked for all of them. What was found behind an
    encoding does not stand in the value as it is: then the whole value is private.
    """
    texts: set[str] = set()
    for finding in findings:
        if finding["category"] in PRIVATE:
            for value in _values(submitted, finding["path"]):
                texts.update(_pieces(value, finding["rule"], scanner) or (value,))
    return sorted(texts - _EMPTY, key=len, reverse=True)


def covered(value: Any, hidden: Sequence[str]) -> Any:
    """`value` with the texts of `hidden` masked in every text and key of it."""
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, mask(secret))
        return value
    if isinstance(value, Mapping):
        return {covered(key, hidden): covered(item, hidden) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [covered(item, hidden) for item in value]
    return value


def as_text(value: Any) -> str:
    """Return how a value reads: text as it is, everything else as JSON; integers of any size keep their digits."""
    if isinstance(value, str):
        return value
    wide = isinstance(value, int) and not -(2**63) <= value < 2**64
    return str(value) if wide else orjson.dumps(value).decode()


def _pieces(value: str, rule_id: str, scanner: Scanner) -> set[str]:
    rule = scanner.rules.by_id.get(rule_id)
    if rule is None or len(value) > LONGEST_SEARCHED:
        return set()
    return {value[start:end] for start, end in scanner.spans(rule, value)}


def _values(root: Any, pointer: str) -> Iterator[str]:
    """Return the texts at and below a place."""
    try:
        waiting = [resolve(root, pointer)]
    except (LookupError, ValueError, TypeError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        else:
            yield as_text(value)


# The words and numbers of the pages.

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
    "loop": "a loop",
    "untrusted_value": "value from a document", "unlicensed": "not asked for", "deferred": "waits for evidence",
    "unavailable": "log unavailable",
}  # fmt: skip


_AWAITED: Final = {
    "result": "the result of {}", "turn": "what the user says next", "session": "what the session has of {}",
    "status": "the status of {}", "evidence": "the argument {}",
}  # fmt: skip


def evidence(awaited: Sequence[str]) -> str:
    """Say in words what a deferred call waits for."""
    parts = (word.partition(":") for word in awaited)
    return ", ".join(_AWAITED.get(kind, kind).format(name or "as a whole") for kind, _, name in parts)


def outcome(word: str) -> str:
    """Return what an outcome is called on a page."""
    return OUTCOMES.get(word, word)


def state(word: str) -> str:
    """Return what the state of an approval is called."""
    return STATES.get(word, word)


def reason(word: str) -> str:
    """Return what a reason is called."""
    return _SHARED.get(word, word.replace("_", " "))


def effects(names: Sequence[str]) -> str:
    """Return what a call does, in one phrase."""
    return ", ".join(_EFFECTS.get(name, name) for name in names)


def rules(guards: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rules that a receipt's guards found broken."""
    return sorted({rule for guard in guards for rule in guard.get("rules", ())})


_SAID: Final = {
    ("config", "start"): "the configuration at the start",
    ("config", "api"): "the configuration was changed",
    ("config", "file"): "the file of the configuration changed",
    ("config", "signal"): "the configuration was read again",
    ("config", "draft"): "a model was asked to draft a policy",
    ("config", "alert_add"): "an alert was made",
    ("config", "alert_remove"): "an alert was removed",
    ("config", "alert_mute"): "an alert was muted for a while",
    ("config", "alert_unmute"): "the mute of an alert was taken back",
    ("config", "alert_seen"): "somebody has looked at an alert",
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
    ("alarm", "alert_alarms"): "an alert told of an alarm",
    ("alarm", "alert_digest"): "the digest of a week was sent",
    ("alarm", "alert_escalated"): "nobody had looked at an alert, and somebody else was told",
    ("alarm", "uncovered"): "a tool ran without a decision",
    ("alarm", "drift"): "a session went far from what its user asked for",
    ("alarm", "documents_adopted"): "what an older version had stored was sealed as it was found",
    ("alarm", "mark_missing"): "the log was opened by a home that had no mark of it",
    ("alarm", "rollback_accepted"): "a store that does not continue what the home saw was accepted",
}

_BY: Final = frozenset(
    {("config", "api"), ("config", "draft"), ("config", "alert_add"), ("config", "alert_remove"),
     ("config", "alert_mute"), ("config", "alert_unmute"), ("config", "alert_seen"),
     ("access", "sign_in"), ("access", "reveal"), ("access", "export"),
     ("erasure", "erase"), ("revocation", "revoke"), ("revocation", "restore"), ("revocation", "suspend"),
     ("revocation", "resume"), ("grant", "create"), ("grant", "password"), ("grant", "roles"), ("grant", "disable"),
     ("grant", "enable"), ("grant", "revoke"), ("grant", "open")}
)  # fmt: skip


def summary(receipt: Mapping[str, Any]) -> str:
    """Return one line about a receipt, without any value that an agent chose."""
    kind = receipt["kind"]
    if kind in ("decision", "result"):
        parts = [effects(receipt.get("effects", ())) or ("a result" if kind == "result" else "no known effect")]
        why = reason(receipt.get("reason", "none"))
        if why:
            parts.append(why)
        found = [rule for rule in rules(receipt.get("guards", ())) if rule != receipt.get("reason")]  # told above
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
    """Return a number with thin groups of three digits."""
    return f"{number:,.0f}".replace(",", "\u202f")


def many(number: int, one: str) -> str:
    """Return how many of what."""
    return f"{count(number)} {one}{'' if number == 1 else 's'}"


def rows(table: str, touched: Mapping[str, int]) -> str:
    """Return what a statement did to the rows of one table, by the name of what it did."""
    return ", ".join(
        f"removes the table {table} with its {many(number, 'row')}"
        if word == "removed"
        else f"{_ROWS[word][0]} {many(number, 'row')} {_ROWS[word][1]} {table}"
        for word, number in touched.items()
    )


def micros(value: float | None) -> str:
    """Return a duration given in microseconds."""
    if value is None:
        return "–"
    if value < 1_000:
        return f"{value:.0f} µs"
    if value < 1_000_000:
        return f"{value / 1_000:.1f} ms".replace(".0 ", " ")
    return f"{value / 1_000_000:.1f} s"


def duration(seconds: float) -> str:
    """Return a span of time in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PLAIN: Final = frozenset("\n\t")
# Blank, and not the space that everybody expects.
_FILLERS: Final = frozenset(
    "\u115f\u1160\u3164\uffa0\u2800\u034f\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u202f\u205f\u3000"
)


@cache
def _lookalikes() -> dict[str, str]:
    return {char: seen for char, seen in zip(LOOKALIKES, ASCII, strict=True) if unicodedata.category(char)[0] == "L"}


def visible(value: object) -> Markup:
    """`value` as escaped HTML in which nothing is invisible."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return escape(text)
    marks = _lookalikes() if not _speaks_another_script(text) else {}
    parts: list[Markup] = []
    for char in text:
        if (char < "\u0080" and char.isprintable()) or char in _PLAIN:
            parts.append(escape(char))
        elif char in _FILLERS or unicodedata.category(char) in _HIDDEN or "\ufe00" <= char <= "\ufe0f":
            parts.append(_marked("hidden-char", char, f"U+{ord(char):04X}", unicodedata.name(char, "control")))
        elif char in marks:
            parts.append(_marked("lookalike", char, char, f"{unicodedata.name(char, '')}, looks like {marks[char]}"))
        else:
            parts.append(escape(char))
    return Markup("").join(parts)


def ticked(value: str) -> Markup:
    """Return a message of ours: what stands between backticks is somebody else's, and is shown as code."""
    parts = [visible(part) for part in value.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def hint(value: str) -> Markup:
    """Return a hint of an error as a sentence of a page."""
    whole = ticked(value[:1].upper() + value[1:])
    return whole if value.endswith((".", "?")) else whole + "."


def short(value: object, length: int = 80) -> str:
    """Return the beginning of a text for lists; whatever is decided about is shown whole elsewhere."""
    text = str(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def _speaks_another_script(text: str) -> bool:
    """Tell whether the text is mostly not Latin: Greek in a Greek sentence looks like nothing else."""
    letters = [char for char in text if char.isalpha()]
    return len(letters) > 0 and sum(char.isascii() for char in letters) * 2 < len(letters)


def _marked(name: str, char: str, shown: str, told: str) -> Markup:
    title = f"U+{ord(char):04X} {told}".strip()
    return Markup('<span class="{}" title="{}">{}</span>').format(name, title, shown)
