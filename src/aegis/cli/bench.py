"""`aegis bench`: how a configuration does on labelled calls."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aegis.cli.options import ConfigFile, Json
from aegis.cli.output import Column, counted, note, print_json, show_list
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.bench.report import TableRow
    from aegis.bench.run import TaskRun
    from aegis.bench.suite import Suite
    from aegis.cli.corpus import JudgedRecord

app = typer.Typer(help="Measure a configuration.")


@app.callback()
def _group() -> None:
    """Measure a configuration."""


def _share(value: Any) -> str:
    return "" if value is None else f"{value:.4f}"


_COLUMNS = (
    Column(title="TABLE", member="table"),
    Column(title="SOURCE", member="source"),
    Column(title="STOPPED", member="stopped", write=lambda value: "" if value is None else str(value)),
    Column(title="OF", member="of", write=lambda value: "" if value is None else str(value)),
    Column(title="SHARE", member="share", write=_share),
    Column(title="FROM", member="low", write=_share),
    Column(title="TO", member="high", write=_share),
    Column(title="WAS", member="was", write=_share),
)


@app.command()
def corpus(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a folder of *.jsonl files with labelled records")],
    config: ConfigFile = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SOURCE", help="this source alone; may be repeated")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="write the tables here; what an earlier run wrote there is compared")
    ] = None,
    against: Annotated[Path | None, typer.Option("--against", help="compare with the tables of this file")] = None,
    wrong: Annotated[
        Path | None, typer.Option("--wrong", help="write missed attacks and false alarms here, a record a line")
    ] = None,
    half: Annotated[
        str, typer.Option("--half", help="`look` or `held`: one half of the records, by the hash of their ids")
    ] = "",
    salt: Annotated[str, typer.Option("--salt", help="what is hashed with an id, to cut the halves anew")] = "",
    as_json: Json = False,
) -> None:
    """Measure attacks stopped and benign records stopped, by source, with 95 % intervals.

    Every record is judged by the whole policy of the configuration (the built-in one by default), in this process;
    nothing is recorded. Records are of JSON: id, source, family, tool, args, label, where, needs_context and result.
    """
    from aegis.cli.corpus import half_of, judge, records, rows_of, summarise
    from aegis.config.compile import compile_policy
    from aegis.config.config import load_config
    from aegis.detect.rules.cache import default_cache_folder

    if half not in {"", "look", "held"}:
        raise InvalidCall(f"`{half}` is not a half", hint="`look` or `held`")
    before = _earlier(against or (out if out is not None and out.exists() else None))
    policy = compile_policy(load_config(config), cache=default_cache_folder())
    wanted = [
        record for record in records(folder, frozenset(only or ())) if half in {"", half_of(str(record["id"]), salt)}
    ]
    judged: list[JudgedRecord] = []
    started = time.process_time()
    with counted(len(wanted), title="judging") as done:
        for number, record in enumerate(wanted, 1):
            judged.append(judge(policy, record))
            if done is not None and number % 100 == 0:
                done(number)
    spent = time.process_time() - started
    summary = summarise(judged)
    if out is not None:
        out.write_text(json.dumps(summary, indent=1), encoding="utf-8")
    mistakes = [item for item in judged if item.wrong]
    if wrong is not None:
        _write(mistakes, wrong)
    if as_json:
        print_json({"tables": summary, "before": before, "records": len(judged), "wrong": len(mistakes)})
        return
    show_list(rows_of(summary, before), _COLUMNS, as_json=False, empty="no record")
    each = spent / max(1, len(judged)) * 1e6
    note(f"{len(judged)} records, {len(mistakes)} judged against their label, {each:.0f} us of processor time each")


def _earlier(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidCall(f"`{path}` is not the tables of an earlier run: {error}") from error
    if not isinstance(value, dict):
        raise InvalidCall(f"`{path}` is not the tables of an earlier run")
    return value


def _write(mistakes: list[JudgedRecord], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for item in mistakes:
            head = {"outcome": item.outcome, "rules": item.rules}
            file.write(json.dumps({**head, **item.record}, ensure_ascii=False) + "\n")


def _portion(value: Any) -> str:
    return "" if value is None or not value["of"] else f"{value['share'] * 100:.1f} %"


_ROWS = (
    Column(title="SUITE", member="suite"),
    Column(title="WORDS", member="prompt"),
    Column(title="ATTACK", member="variant", write=lambda value: value or "none"),
    Column(title="POLICY", member="policy"),
    Column(title="CASES", member="cases", write=str),
    Column(title="NO HOLD", member="utility", write=_portion),
    Column(title="HOLDS/TASK", member="holds", write=lambda value: f"{value:.2f}"),
    Column(title="STOPPED", member="stopped", write=_portion),
    Column(title="FETCHES", member="fetches", write=_portion),
    Column(title="HARD", member="hard", write=_portion),
    Column(title="NOTICED", member="noticed", write=_portion),
)


@app.command()
def injected(
    config: ConfigFile = None,
    profile: Annotated[str, typer.Option("--profile", help="a packaged profile, in place of a file")] = "",
    own: Annotated[
        Path | None, typer.Option("--own", metavar="DIR", help="a folder of your own suites, in place of the built-in")
    ] = None,
    episodes: Annotated[
        Path | None,
        typer.Option("--episodes", metavar="FILE", help="replayed episodes, in place of the built-in suites"),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite", metavar="NAME", help="a suite, or all of a source (`own`, `agentdojo`); may be repeated"
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option("--variant", help="template, bare, value, encoded or field; may be repeated; default: all"),
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", help="`shown`, `hidden` or `both`: does the gate know the words")
    ] = "both",
    when: Annotated[
        str, typer.Option("--when", help="`early`, `late` or `both`: right after the attacker's text, or at the end")
    ] = "both",
    declare: Annotated[bool, typer.Option("--declare", help="declare the suites' tools by what they do")] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require", metavar="KEY=VALUE", help="exit 1 below it: `stopped.bare=0.97`, `utility=0.8`, `holds=0.3`"
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="further requirements")] = None,
    svg: Annotated[Path | None, typer.Option("--picture", metavar="FILE", help="write an SVG here")] = None,
    details: Annotated[
        Path | None,
        typer.Option("--details", metavar="FILE", help="write missed attacks and held tasks here, one a line"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="processes; 0 is as many as there are cores")] = 0,
    as_json: Json = False,
) -> None:
    """Measure what an agent that obeys attackers gets through, and what honest tasks pay for it.

    Tasks and attackers' calls go through a real gate of this process, in sessions of their own; no model takes part,
    and what the scanner of results withholds counts for nothing. Held calls of the user are approved with a grant
    where one is offered, each counted as one hold.
    """
    from aegis.bench.report import Requirement, picture, rows_of, unmet
    from aegis.bench.run import Measured, measure
    from aegis.bench.suite import VARIANTS, cases

    if config is not None and profile:
        raise InvalidCall("`--config` and `--profile` exclude each other")
    unknown = [name for name in variant or () if name not in VARIANTS]
    if unknown:
        raise InvalidCall(f"`{unknown[0]}` is no variant", hint=", ".join(VARIANTS))
    # Before the work, which takes a minute.
    required = [Requirement.read(one) for text in (*(require or ()), *(more or ())) for one in text.split(",")]
    suites = _suites(own, episodes, suite or [])
    measured = Measured(config=config, profile=profile, declare=declare)
    wanted = [
        case
        for one in suites
        for case in cases(
            one,
            variants=tuple(name for name in VARIANTS if name in (variant or VARIANTS)),
            shown=_both(prompt, "shown", "hidden", option="--prompt"),
            late=tuple(not early for early in _both(when, "early", "late", option="--when")),
        )
    ]
    started = time.monotonic()
    with _told(len(wanted)) as done:
        ran = measure(wanted, measured, jobs=jobs or os.cpu_count() or 1, done=done)
    rows = rows_of(ran, measured.name)
    missed = unmet(rows, required, measured.name)
    if svg is not None:
        svg.write_text(picture(rows, measured.name), encoding="utf-8")
    if details is not None:
        _write_details(ran, details)
    if as_json:
        print_json(
            {"policy": measured.name, "cases": len(ran), "rows": [row.to_json() for row in rows], "unmet": missed}
        )
    else:
        show_list([_listed(row) for row in rows if not row.when], _ROWS, as_json=False, empty="no case")
        note(f"{len(ran)} cases in {time.monotonic() - started:.0f} s")
    for sentence in missed:
        note(sentence)
    if missed:
        raise typer.Exit(1)


def _suites(own: Path | None, episodes: Path | None, names: list[str]) -> list[Suite]:
    """The suites that are asked for; the built-in ones and the package's where none are."""
    from aegis.bench import agentdojo
    from aegis.bench.suite import data_folder, read_episodes, read_folder

    found: list[Suite] = []
    if own is not None:
        found += read_folder(own)
    if episodes is not None:
        found += read_episodes(episodes)
    if own is None and episodes is None:
        found += read_folder(data_folder() / "suites")
        if agentdojo.is_installed():
            found += agentdojo.load()
        elif "agentdojo" in names or not names:
            note(
                'the package `agentdojo` is not installed, so its suites are left out: pip install "aegis-guard[bench]"'
            )
    chosen = [one for one in found if not names or one.name in names or one.source in names]
    if not chosen:
        raise InvalidCall(f"there is no suite `{names[0]}`", hint=", ".join(one.name for one in found))
    return chosen


def _both(value: str, first: str, second: str, *, option: str) -> tuple[bool, ...]:
    """`first` as true, `second` as false, or both."""
    if value not in {first, second, "both"}:
        raise InvalidCall(f"`{option}` is `{first}`, `{second}` or `both`")
    return (True, False) if value == "both" else (value == first,)


@contextmanager
def _told(total: int) -> Iterator[Callable[[int], None]]:
    """Tell how much is done: a bar on a terminal, a line for every tenth in a pipe."""
    with counted(total, title="running") as bar:
        before = 0

        def line(done: int) -> None:
            nonlocal before
            if done * 10 // total > before:
                before = done * 10 // total
                note(f"{done} of {total} cases")

        yield line if bar is None else bar


def _listed(row: TableRow) -> dict[str, Any]:
    told = row.to_json()
    return {**told, "cases": row.utility.of}


def _write_details(ran: list[TaskRun], path: Path) -> None:
    from dataclasses import asdict

    from aegis.bench.run import is_stopped

    with path.open("w", encoding="utf-8") as file:
        for one in ran:
            missed = one.attack and not is_stopped(one.changes or one.fetches)
            if missed or (not one.attack and not one.is_undisturbed):
                file.write(json.dumps({"wrong": "missed" if missed else "disturbed", **asdict(one)}) + "\n")
