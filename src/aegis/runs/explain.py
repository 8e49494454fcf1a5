"""`aegis explain`: what happened in a run, or at one receipt, guard by guard, from the log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

import orjson
import typer
from msgspec import Struct

from aegis.cli import output
from aegis.cli.opening import existing
from aegis.cli.options import ConfigFile, Home, Json
from aegis.cli.output import Column, show_list
from aegis.core.ports import Entry, Reader, Search
from aegis.errors import InvalidCall

_PAGE: Final = 1_000
_KINDS: Final = frozenset({"run", "decision", "result", "approval", "redemption", "judge"})


class ExplainedStep(Struct, frozen=True, kw_only=True):
    """One answer of one guard (or of a person), in the order of the log."""

    index: int
    time: str
    stage: str
    subject: str
    guard: str
    outcome: str
    reason: str
    rules: tuple[str, ...] = ()


def steps_of(reader: Reader, run_id: str, principal: str = "") -> Iterator[ExplainedStep]:
    """Every step of the run, oldest first; nothing where the log holds none of it.

    Only what the run's own principal did in it is told, and what people and judges answered to that: a session of the
    same name that belongs to another principal is another one. `principal` says whose session is meant where the name
    is not that of a run. Raises `InvalidCall` where several principals have such a session and none is named.
    """
    entries = [entry for index in _indexes(reader, run_id) if (entry := reader.entry(index)) is not None]
    yield from steps(_of_one(entries, principal or _owner(entries)))


def steps(entries: Iterable[Entry]) -> Iterator[ExplainedStep]:
    """Every guard that each of these receipts names, with its answer."""
    for entry in entries:
        receipt = orjson.loads(entry.body)
        stage = receipt.get("action", entry.kind) if entry.kind == "run" else entry.kind
        subject = receipt.get("tool", "")
        decided = receipt.get("decision", receipt.get("action", ""))
        rows = receipt.get("guards") or [{"guard": "", "outcome": decided, "rules": []}]
        for row in rows:
            yield ExplainedStep(
                index=entry.index,
                time=receipt["time"],
                stage=stage,
                subject=subject,
                guard=row["guard"],
                outcome=row["outcome"],
                # The receipt's reason is that of the guards that came to its outcome.
                reason=receipt.get("reason", "none") if row["outcome"] == decided else "none",
                rules=tuple(row["rules"]),
            )


def _indexes(reader: Reader, run_id: str) -> list[int]:
    found: list[int] = []
    before: int | None = None
    while page := reader.search(Search(session=run_id, before=before, limit=_PAGE)):
        found += [entry.index for entry in page if entry.kind in _KINDS]
        before = page[-1].index
    return found[::-1]


def _owner(entries: Sequence[Entry]) -> str:
    """Whose run it is; runs have names of their own, sessions of several principals may share one."""
    owners = {entry.principal for entry in entries if entry.kind == "run"}
    owners = owners or {entry.principal for entry in entries if entry.kind == "decision"}
    if len(owners) > 1:
        raise InvalidCall("several principals have a session of this name", hint="name one with `--principal`")
    return next(iter(owners), "")


def _of_one(entries: Iterable[Entry], owner: str) -> Iterator[Entry]:
    """The entries of this principal, and those that answer them."""
    known: set[str] = set()
    for entry in entries:
        if entry.principal == owner or entry.parent in known:
            known.add(entry.receipt_id)
            yield entry


_COLUMNS = (
    Column(title="TIME", member="time"),
    Column(title="STAGE", member="stage"),
    Column(title="TOOL", member="tool"),
    Column(title="GUARD", member="guard"),
    Column(title="OUTCOME", member="outcome"),
    Column(title="REASON", member="reason"),
    Column(title="RULES", member="rules", write=", ".join),
)


def explain(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="the run's id, the name of any session, or an id or index of a receipt")
    ],
    principal: Annotated[
        str, typer.Option(metavar="ID", help="whose session is meant, where several principals have one of this name")
    ] = "",
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> int:
    """Say guard by guard who let what through in a run, oldest first, or at one receipt that `aegis log show` names."""
    from aegis.cli.receipts import find_entry

    with existing(home, config) as state, state.store.reader() as reader:
        found = list(steps_of(reader, run, principal))
        if not found and (entry := find_entry(reader, run)) is not None:
            found = list(steps([entry]))
    if not found:
        raise InvalidCall(
            f"the log holds nothing of a run `{run}`, and no such receipt",
            code="not_found",
            hint="`aegis log show` lists receipts and `aegis log show --json` their sessions",
        )
    rows: list[dict[str, Any]] = [
        {
            "index": step.index,
            "time": step.time,
            "stage": step.stage,
            "tool": step.subject,
            "guard": step.guard,
            "outcome": step.outcome,
            "reason": step.reason,
            "rules": list(step.rules),
        }
        for step in found
    ]
    show_list(rows, _COLUMNS, as_json=as_json, empty="")
    return output.DONE
