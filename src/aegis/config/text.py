"""The configuration as text that a person edits, and what a person can change in it so that a refused call runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from aegis.config.document import dump, plain, read
from aegis.config.reload import PolicyHolder
from aegis.config.trusted import read_trusted
from aegis.core.finding import Finding
from aegis.core.outcome import Outcome, Reason
from aegis.errors import ConfigError, InvalidCall, Problem

# The configuration as text that a person edits: as it is in force, and with one thing more.

MAX_REPLAYED: Final = 1_000  # calls in one dry run: bounds how long it keeps a core busy


def text_of(body: bytes) -> str:
    """Return the body as text; raises `InvalidCall` where it is none."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidCall("the configuration is not UTF-8 text") from error


def problem_of(problem: Problem) -> dict[str, Any]:
    """Return a problem as the API shows it."""
    return {
        "message": problem.message,
        "line": problem.line,
        "pointer": problem.pointer,
        "hint": problem.hint,
    }


def text_in_force(holder: PolicyHolder) -> str:
    """Return the configuration in force as text: its file where there is one, else everything that it says."""
    if holder.path is not None:
        return read_trusted(holder.path)
    return dump(plain(holder.config.node))


def with_exception(text: str, exception: dict[str, Any]) -> str:
    """`text` with one more exception of the content guard; comments around it stay where they can.

    The file is a person's: it is edited in place where its shape is plain, and written anew otherwise.
    """
    parsed = _parsed(text)
    content = parsed.setdefault("guards", {}).setdefault("content", {})
    item = [f"- {dump(exception, flow=True).strip()}"]
    if content.get("exceptions"):
        placed = _into_list(text.splitlines(), "exceptions:", item)
    elif "guards" in _parsed(text):
        placed = None
    else:
        placed = _joined([*text.splitlines(), "", "guards:", "  content:", "    exceptions:", f"      {item[0]}"])
    content["exceptions"] = [exception, *content.get("exceptions", ())]
    return _as_meant(placed, parsed)


def with_policy(text: str, policy: dict[str, Any]) -> str:
    """`text` with one more policy, in front of the others; written anew where its shape is not plain."""
    parsed = _parsed(text)
    item = dump([policy]).splitlines()
    lines = text.splitlines()
    if parsed.get("policies"):
        placed = _into_list(lines, "policies:", item)
    else:
        kept = [line for line in lines if line.split("#")[0].strip() not in ("policies:", "policies: []")]
        placed = _joined([*kept, "", "policies:", *(f"  {line}" for line in item)])
    parsed["policies"] = [policy, *(parsed.get("policies") or ())]
    return _as_meant(placed, parsed)


def with_standing(text: str, standing: dict[str, Any]) -> str:
    """`text` with one more standing approval, in front of the others; written anew where its shape is not plain."""
    parsed = _parsed(text)
    approvals = parsed.setdefault("approvals", {})
    item = dump([standing]).splitlines()
    lines = text.splitlines()
    if approvals.get("standing"):
        placed = _into_list(lines, "standing:", item)
    elif approvals:
        placed = _into_list(lines, "approvals:", ["standing:", *item])
    else:
        placed = _joined([*lines, "", "approvals:", "  standing:", *(f"  {line}" for line in item)])
    approvals["standing"] = [standing, *approvals.get("standing", ())]
    return _as_meant(placed, parsed)


def _parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = plain(read(text, file="aegis.yaml")) or {}
    return found


def _into_list(lines: Sequence[str], key: str, item: Sequence[str]) -> str | None:
    """Return the item as the first of the list below a `key` that has a line of its own."""
    for at, line in enumerate(lines):
        if line.strip() == key and at + 1 < len(lines):
            indent = " " * (len(lines[at + 1]) - len(lines[at + 1].lstrip()))
            return _joined([*lines[: at + 1], *(f"{indent}{one}" for one in item), *lines[at + 1 :]])
    return None


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _as_meant(placed: str | None, meant: dict[str, Any]) -> str:
    """Return the edited text where it says what is meant, and otherwise what is meant, written anew."""
    try:
        if placed is not None and _parsed(placed) == meant:
            return placed
    except ConfigError:  # the shape was not as plain as it looked
        return dump(meant)
    return dump(meant)


def summary_of(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of `tool`, `agent`, `before`, `after` as one row each with its `calls`, the most frequent first.

    A row that was counted already stands for as many calls as it says, so summaries of parts make that of the whole.
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["tool"], row["agent"], *row["before"].values(), *row["after"].values())
        known = found.setdefault(key, {name: row[name] for name in ("tool", "agent", "before", "after")} | {"calls": 0})
        known["calls"] += row.get("calls", 1)
    return sorted(found.values(), key=lambda row: -int(row["calls"]))


# What a person can change so that a refused call runs the next time: lines of `aegis.yaml`, or what else it takes.

SHORT_ID: Final = 14  # characters that tell one id from others made in the same millisecond, but for one in 256
EXPIRES_DAYS: Final = 30  # an exception that nobody looks at again ends by itself


class Remedy(Struct, frozen=True, kw_only=True):
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
    if guard == "paths":
        return [_of_path(one, tool) for one in findings]
    agent = str(receipt.get("agent", "AGENT"))
    text, lines = _OTHERS.get(guard, _UNKNOWN)
    return [Remedy(text=text.format(agent=agent, answered=_answered(receipt)), lines=lines)]


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


def _of_path(finding: Finding, tool: str) -> Remedy:
    argument = finding.path.lstrip("/")
    return Remedy(
        text=f"a path inside the places of `{tool}`{_at(finding)}, or one more place beside them",
        lines=_nested(("tools", tool, "paths", argument), ["/one/more/place/**"]),
    )


def _answered(receipt: dict[str, Any]) -> str:
    """How a person answers; a call that something else refuses as well was never put to one."""
    held = receipt.get("approval_id")
    return f"`aegis approvals approve {held[:SHORT_ID]}`" if held else "asked for once nothing else refuses the call"


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
    "dataflow": (
        "the user's own words for it, said as a turn; a person's yes, once: {answered}; what may be believed declared"
        " under `tools.NAME.result`; or, for every call, a guard that only records",
        "guards:\n  dataflow:\n    mode: observe",
    ),
    "drift": (
        "the user's own words for it, said as a turn; a person's yes, once: {answered}; or a guard that only records",
        "guards:\n  drift:\n    mode: observe",
    ),
    "behaviour": (
        "a person's yes, which teaches what is usual: {answered}; or a guard that only records",
        "guards:\n  behaviour:\n    mode: observe",
    ),
    "loops": (
        "a person's yes, for as many calls again: {answered}; or more of the same before a person is asked",
        "guards:\n  loops:\n    identical: 100/10m\n    similar: 300/10m\n    alternating: 50/10m",
    ),
    "containment": (
        "its end, or an administrator, who releases it: `aegis containment list`, `aegis containment release`",
        "",
    ),
    "judge": ("a judge that accepts it: what is asked of it is its entry under `judges`", ""),
    "deferral": ("a longer chain of calls that wait for one another", "limits:\n  deferred_chain: 32"),
    "rate": ("more calls in that time, for every agent", "limits:\n  rate: 1000/minute"),
    "protected": ("nothing: no agent may reach the keys, the log, the configuration or the process of Aegis", ""),
    "revocation": ("an administrator, who restores the agent: `aegis agents restore {agent}`", ""),
    "credential": ("another API key: that of the agent is limited to other tools", ""),
    "idempotency": ("a new `call_id`: the same one was used for another call before", ""),
    "mission": ("another mission: what the agent was sent to do does not cover this call", ""),
    "budget": ("a mission with a larger budget: this one is used up", ""),
}
