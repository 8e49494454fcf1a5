"""`aegis judge`: how well a judge agrees with people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from aegis.cli.options import ConfigFile, Home, Json, home_of
from aegis.cli.output import Column, note, print_json, show_list

app = typer.Typer(help="Judges.")

_COLUMNS = (
    Column(title="THRESHOLD", member="threshold", write=str),
    Column(title="AGREEMENT", member="agreement", write=lambda value: "-" if value is None else f"{value:.2f}"),
    Column(title="PRECISION", member="precision", write=lambda value: "-" if value is None else f"{value:.2f}"),
    Column(title="RECALL", member="recall", write=lambda value: "-" if value is None else f"{value:.2f}"),
)


@app.callback()
def judges() -> None:
    """Judges."""


@app.command(name="eval")
def evaluate(
    cases: Annotated[Path, typer.Argument(metavar="CASES", help="labelled calls, one JSON object a line")],
    judge: Annotated[
        Path | None, typer.Option("--judge", metavar="FILE", help="the judge's file; not needed for a replay")
    ] = None,
    criteria: Annotated[str, typer.Option("--criteria", metavar="TEXT", help="what a call has to meet")] = "",
    record: Annotated[Path | None, typer.Option("--record", metavar="FILE", help="keep the runs")] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="count kept runs again, without the judge")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="draw the reliability curve")] = None,
    min_confidence: Annotated[float, typer.Option("--min-confidence", min=0, max=1, help="as in `judges`")] = 0.0,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=64, help="runs at a time")] = 4,
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Run a judge over labelled calls: agreement, precision and recall of its rejections at each threshold.

    A line is {"tool": ..., "arguments": {...}, "label": "allow" or "reject"}, with `task`, `server`, `mounts` and
    `available_tools` where they matter. The judge's own tool calls pass the gate of the home.
    """
    from aegis.judges.evaluate import Labelled, calibrate, read_lines, read_runs, reliability_svg, scored

    labelled = read_lines(cases.read_text(encoding="utf-8"), Labelled)
    if replay is not None:
        runs = _matching(labelled, read_runs(replay.read_text(encoding="utf-8")))
    elif judge is None:
        raise typer.BadParameter("`--judge` names the judge that is run, or `--replay` runs that were kept")
    else:
        runs = _run(judge, labelled, criteria, concurrency, config, home)
    if record is not None:
        import msgspec

        record.write_bytes(b"".join(msgspec.json.encode(run) + b"\n" for run in runs))
    figures = calibrate([scored(run) for run in runs], min_confidence=min_confidence)
    if svg is not None:
        svg.write_text(reliability_svg(figures["reliability"], runs[0].judge if runs else "nothing"), encoding="utf-8")
    if as_json:
        print_json(figures)
        return
    show_list(figures["thresholds"], _COLUMNS, as_json=False, empty="there are no cases")
    latency = figures["latency_ms"]
    note(
        f"{figures['cases']} cases, {figures['answered']} answered; median {latency['median']} ms, "
        f"p95 {latency['p95']} ms; {figures['tokens']} tokens, cost {figures['cost']:.4f}"
    )
    for cause, count in figures["failures"].items():
        note(f"{count} without an answer: {cause}")


def _matching(labelled: list[Any], runs: list[Any]) -> list[Any]:
    """The kept runs of exactly these cases, with the labels as they are now."""
    import msgspec

    from aegis.core.canonical import call_digest, canonical
    from aegis.errors import InvalidCall

    by_digest = {run.call_digest: run for run in runs}
    found = []
    for case in labelled:
        digest = call_digest(server=case.server, tool=case.tool, arguments=canonical(case.arguments))
        if digest not in by_digest:
            raise InvalidCall("a case has no run in the file", hint="record the runs anew")
        found.append(msgspec.structs.replace(by_digest[digest], label=case.label))
    return found


def _run(
    judge: Path, labelled: list[Any], criteria: str, concurrency: int, config: Path | None, home: Path | None
) -> list[Any]:
    import asyncio

    from aegis.bootstrap import open_deployment
    from aegis.cli.output import counted
    from aegis.config.compile_reviews import read_judge
    from aegis.judges.evaluate import evaluate as run_all
    from aegis.judges.records import Masker

    spec = read_judge(judge)
    deployment = open_deployment(config, home_of(home))
    gate = deployment.gate
    try:
        with counted(len(labelled), title="judging") as count:
            return asyncio.run(
                run_all(
                    spec,
                    labelled,
                    criteria=criteria,
                    door=gate.judge_door(),
                    mask=Masker(deployment.policy.current.scanner),
                    concurrency=concurrency,
                    done=count or (lambda _: None),
                )
            )
    finally:
        deployment.close()
