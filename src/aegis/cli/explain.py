"""`aegis explain`: what happened in a run, or at one receipt, guard by guard, from the log alone."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aegis.cli import output
from aegis.cli.opening import existing
from aegis.cli.options import ConfigFile, Home, Json
from aegis.cli.output import Column, show_list
from aegis.errors import InvalidCall

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
    from aegis.runs.explain import explain as steps_of
    from aegis.runs.explain import steps as steps_at

    with existing(home, config) as state, state.store.reader() as reader:
        steps = list(steps_of(reader, run, principal))
        if not steps and (entry := find_entry(reader, run)) is not None:
            steps = list(steps_at([entry]))
    if not steps:
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
        for step in steps
    ]
    show_list(rows, _COLUMNS, as_json=as_json, empty="")
    return output.DONE
