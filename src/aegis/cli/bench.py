"""`aegis bench`: how a configuration does on labelled calls."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aegis.cli.options import ConfigFile, Json
from aegis.cli.output import Column, counted, note, print_json, show_list
from aegis.errors import InvalidCall

if TYPE_CHECKING:
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
