"""The configuration as text that a person edits: as it is in force, and with one thing more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from aegis.config.document import dump, plain, read
from aegis.config.reload import PolicyHolder
from aegis.config.trusted import read_trusted
from aegis.errors import ConfigError, InvalidCall, Problem

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
