"""What a person can change so that a refused call runs the next time: lines of `aegis.yaml`, or what else it takes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aegis.config.document import dump
from aegis.core.finding import Finding
from aegis.core.outcome import Outcome, Reason

SHORT_ID: Final = 14  # characters that tell one id from others made in the same millisecond, but for one in 256
EXPIRES_DAYS: Final = 30  # an exception that nobody looks at again ends by itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One change that takes away one refusal.

    `text` says it in a sentence, `lines` are those of `aegis.yaml` (empty where no configuration does it), `exception`
    is the entry of `guards.content.exceptions` where it is one.
    """

    text: str
    lines: str = ""
    exception: dict[str, Any] | None = None


def remedies(
    receipt: dict[str, Any], findings: Sequence[Finding], *, detectors: Container[str], now: float, reason: str
) -> tuple[Remedy, ...]:
    """Find what would have to change for each guard that did not allow the call of `receipt`.

    `detectors` are the ids of the rules in force, `now` is in seconds since the epoch, `reason` is written into
    exceptions. Values of the call are never part of it.
    """
    found: list[Remedy] = []
    if receipt.get("deferral", {}).get("resolution") == "pending":
        found.append(
            Remedy(text=f"what it waits for, and the same call again; or a person's yes: {_answered(receipt)}")
        )
    tool = f"{receipt['server']}/{receipt['tool']}" if receipt.get("server") else receipt["tool"]
    for guard in receipt["guards"]:
        if guard["outcome"] == Outcome.ALLOW.word:
            continue
        told = [one for one in findings if one.guard == guard["guard"] and one.outcome is not Outcome.ALLOW]
        found += _of_guard(guard["guard"], told, receipt, tool, detectors=detectors, now=now, reason=reason)
    return tuple(one for at, one in enumerate(found) if one not in found[:at])


def _of_guard(
    guard: str,
    findings: Sequence[Finding],
    receipt: dict[str, Any],
    tool: str,
    *,
    detectors: Container[str],
    now: float,
    reason: str,
) -> list[Remedy]:
    if guard == "content":
        until = datetime.fromtimestamp(now, UTC).date() + timedelta(days=EXPIRES_DAYS)
        return [_exception(one, tool, until.isoformat(), reason) for one in findings if one.rule in detectors]
    if guard == "registry":
        return [_of_registry(one, receipt, tool) for one in findings]
    if guard in ("schema", "cedar"):
        return [_of_policy(one, tool) for one in findings]
    if guard == "evidence":
        return [Remedy(text=_EVIDENCE)]
    agent = str(receipt.get("agent", "AGENT"))
    return [Remedy(text=text.format(agent=agent), lines=lines) for text, lines in (_OTHERS.get(guard, _UNKNOWN),)]


def _exception(finding: Finding, tool: str, until: str, reason: str) -> Remedy:
    exception = {"rule": finding.rule, "tool": tool}
    if finding.path:
        exception["path"] = finding.path
    exception |= {"reason": reason, "expires": until}
    return Remedy(
        text=f"an exception for the rule `{finding.rule}` on `{tool}`{_at(finding)}, which ends on {until}",
        lines=_nested(("guards", "content", "exceptions"), [exception]),
        exception=exception,
    )


def _of_registry(finding: Finding, receipt: dict[str, Any], tool: str) -> Remedy:
    entry: dict[str, Any]
    if finding.rule == _word(Reason.UNREGISTERED_TOOL):
        entry = {"risk": receipt["risk"], "effects": [one for one in receipt["effects"] if one != "none"] or ["none"]}
        return Remedy(text=f"an entry of its own for `{tool}`", lines=_nested(("tools", tool), entry))
    if finding.rule == _word(Reason.IRREVERSIBLE):
        return Remedy(
            text=f"a person's yes, once: {_answered(receipt)}; or, for every such call, a higher threshold",
            lines=_nested(("registry", "escalation_threshold"), value="critical"),
        )
    if finding.rule == _word(Reason.APPROVAL_REQUIRED):
        return Remedy(
            text=f"a person's yes, once: {_answered(receipt)}; or `{tool}` without a person",
            lines=_nested(("tools", tool, "approvals", "always"), value=False),
        )
    wanted: tuple[tuple[str, ...], Any] = (("registry", "max_allowed_tier"), receipt["risk"])
    if receipt["risk"] == "critical":
        wanted = (("registry", "allow_critical"), True)
    return Remedy(text="calls of this risk, of every tool", lines=_nested(*wanted))


def _of_policy(finding: Finding, tool: str) -> Remedy:
    return Remedy(
        text=f"a change of the policy `{finding.rule}`, which says of `{tool}`{_at(finding)}: {finding.message}"
    )


def _answered(receipt: dict[str, Any]) -> str:
    return f"`aegis approvals approve {receipt['approval_id'][:SHORT_ID]}`"


def _at(finding: Finding) -> str:
    return f" at `{finding.path}`" if finding.path else ""


def _word(reason: Reason) -> str:
    return reason.value.replace("_", "-")


def _nested(keys: Sequence[str], value: Any) -> str:
    for key in reversed(keys):
        value = {key: value}
    return dump(value).rstrip()


_EVIDENCE: Final = (
    "text that can be read: something of the call would be executed and could not be looked at; where it is no program,"
    " `roles` of the tool says so"
)
_UNKNOWN: Final = ("a change of what this guard is configured to refuse; `aegis config show` prints it", "")
_OTHERS: Final[dict[str, tuple[str, str]]] = {
    "deferral": ("a longer chain of calls that wait for one another", "limits:\n  deferred_chain: 32"),
    "rate": ("more calls in that time, for every agent", "limits:\n  rate: 1000/minute"),
    "protected": ("nothing: no agent may reach the keys, the log, the configuration or the process of Aegis", ""),
    "revocation": ("an administrator, who restores the agent: `aegis agents restore {agent}`", ""),
    "credential": ("another API key: that of the agent is limited to other tools", ""),
    "idempotency": ("a new `call_id`: the same one was used for another call before", ""),
    "mission": ("another mission: what the agent was sent to do does not cover this call", ""),
    "budget": ("a mission with a larger budget: this one is used up", ""),
}
