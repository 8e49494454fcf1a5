"""`aegis why`: why a call did not simply run, and the lines that would let it run the next time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aegis.cli import output
from aegis.cli.options import ConfigFile, Home, Json, home_of
from aegis.cli.output import note, print_json, print_line
from aegis.core.text import visible
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aegis.bootstrap import State
    from aegis.config.text import Remedy
    from aegis.core.finding import Finding
    from aegis.core.ports import Entry, Reader
    from aegis.detect.rules import Rule

_WEEK_US: Final = 7 * 86_400 * 1_000_000
_MOST: Final = 10_000  # calls that a replay looks at
_SEEN: Final = 160  # characters of what was seen that fit a glance
_WORDS: Final = {"block": "blocked", "require_approval": "held", "sanitize": "changed", "allow": "allowed"}


def why(
    receipt: Annotated[
        str, typer.Argument(metavar="[RECEIPT]", help="an index, an id, its beginning, or `last`, the last refusal")
    ] = "last",
    allow: Annotated[bool, typer.Option("--allow", help="write the exception into the configuration")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="why it is right; kept with it")] = "",
    reveal: Annotated[bool, typer.Option("--reveal", help="show what was seen unmasked, which is recorded")] = False,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> int:
    """Say why a call was blocked, held or changed: the rule, the argument, what was seen, and what would allow it.

    `--allow` writes the exceptions with `--reason` and an end, and shows what they would have changed last week.
    """
    from aegis.cli.opening import existing, operator
    from aegis.cli.receipts import detail
    from aegis.cli.rules import load_rules

    path = config or _written(home_of(home))
    with existing(home, path) as state:
        with state.store.reader() as reader:
            entry = _decision(reader, receipt)
        shown = detail(state, entry.receipt_id, reveal=reveal, by=operator())
        places = _places(state, entry, shown)
    rules = load_rules(None, path).by_id
    told, found = _explained(entry, shown, rules, places, reason=reason or "REASON")
    told["allow"] = [{"text": one.text, "lines": one.lines} for one in found]
    if allow:
        told["allowed"] = _allow(home_of(home), path, found, reason)
    if as_json:
        print_json(told)
    else:
        _show(told, entry)
    return output.DONE


def _written(home: Path) -> Path | None:
    """The configuration that `aegis init` wrote into the home, where there is one."""
    file = home / "aegis.yaml"
    return file if file.is_file() else None


def _decision(reader: Reader, name: str) -> Entry:
    """The decision of this name; `last` is the newest that did not simply let its call run."""
    from aegis.cli.receipts import entry_of
    from aegis.core.ports import Search

    if name != "last":
        entry = entry_of(reader, name)
        if entry.kind != "decision":
            raise InvalidCall(f"`{name}` is a receipt of kind `{entry.kind}`; only decisions have a reason")
        return entry
    refusals = [
        found
        for word in ("block", "require_approval", "sanitize")
        for found in reader.search(Search(kind="decision", decision=word, limit=1))
    ]
    if not refusals:
        raise InvalidCall("no call on record was blocked, held or changed", code="not_found")
    return max(refusals, key=lambda found: found.index)


def _places(state: State, entry: Entry, shown: dict[str, Any]) -> list[str]:
    """Of each finding where its value stands, without the value."""
    from aegis.gate.view import told_origins

    findings = (shown["payload"] or {}).get("findings", ())
    named = [[(place["receipt"], place["path"]) for place in one.get("origins", ())] for one in findings]
    with state.store.reader() as reader:
        return [told_origins(reader, entry.session, one) for one in named]


def _explained(
    entry: Entry, shown: dict[str, Any], rules: Mapping[str, Rule], places: Sequence[str], *, reason: str
) -> tuple[dict[str, Any], tuple[Remedy, ...]]:
    """What is told of a decision, and what would change it."""
    from aegis.config.text import remedies
    from aegis.gate.record import findings_of

    receipt, payload = shown["receipt"], shown["payload"]
    findings: tuple[Finding, ...] = () if payload is None else findings_of(payload)
    said = [
        {
            "rule": one.rule,
            "guard": one.guard,
            "severity": one.severity.word,
            "outcome": one.outcome.word,
            "path": one.path,
            "seen": one.evidence,
            "message": one.message,
            "title": rules[one.rule].title if one.rule in rules else "",
            "origins": place,
        }
        for one, place in zip(findings, places, strict=True)
        if one.outcome.word != "allow"
    ]
    told = {
        "receipt_id": entry.receipt_id,
        "index": entry.index,
        "time": receipt["time"],
        "tool": receipt["tool"],
        "agent": receipt["agent"],
        "decision": receipt["decision"],
        "reason": receipt["reason"],
        "missing": receipt.get("missing", []),
        "guards": [one["guard"] for one in receipt["guards"] if one["outcome"] != "allow"],
        "findings": said,
    }
    if "deferral" in receipt:
        held = (payload or {}).get("approval", ())
        told["deferral"] = {**receipt["deferral"], "waiting_for": held[2] if len(held) > 2 else []}
    return told, remedies(receipt, findings, detectors=rules, now=time.time(), reason=reason)


def _allow(home: Path, path: Path | None, found: Sequence[Remedy], reason: str) -> dict[str, Any]:
    """Write every exception into the file at `path`, once it compiles; what last week's calls would have become."""
    from aegis.bootstrap import open_deployment
    from aegis.config.compile import compile_policy
    from aegis.config.config import parse_config
    from aegis.config.text import with_exception
    from aegis.config.trusted import read_trusted
    from aegis.core.ports import Search
    from aegis.detect.rules.cache import default_cache_folder
    from aegis.gate.replay import replayed

    exceptions = [one.exception for one in found if one.exception is not None]
    if not exceptions:
        raise InvalidCall("no exception allows this call", hint="without --allow it is shown what does")
    if not reason.strip():
        raise InvalidCall("an exception says why it is right", hint='--reason "..."')
    if path is None:
        raise InvalidCall("there is no configuration to write to", hint="`aegis init` makes one")
    text = read_trusted(path)
    for exception in exceptions:
        text = with_exception(text, exception)
    candidate = compile_policy(parse_config(text, file=str(path)), cache=default_cache_folder())
    search = Search(kind="decision", since=int(time.time() * 1_000_000) - _WEEK_US, limit=_MOST)
    deployment = open_deployment(path, home)
    try:
        week = replayed(deployment.gate.parts, lambda policy, incoming: policy.evaluate(incoming), candidate, search)
    finally:
        deployment.close()
    _replace(path, text)
    return {
        "file": str(path),
        "replayed": week["replayed"],
        "changed": len(week["changed"]),
        "summary": week["summary"],
    }


def _replace(path: Path, text: str) -> None:
    """Put the text in the place of the file, whole, with the file's own mode."""
    import os
    import secrets

    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path.stat().st_mode & 0o777)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _show(told: dict[str, Any], entry: Entry) -> None:
    word = _WORDS[told["decision"]]
    print_line(visible(f"{word}  {told['tool']}  of {told['agent']}  {told['time']}  (receipt {entry.index})"))
    if not told["findings"]:
        print_line(visible(f"  {told['reason']}, by {', '.join(told['guards']) or 'no guard'}"))
    for found in told["findings"]:
        print_line()
        print_line(visible(f"  rule   {found['rule']}  ({found['severity']}, {found['guard']})"))
        print_line(visible(f"  at     {found['path'] or 'the call as a whole'}"))
        if found["seen"]:
            print_line(visible(f"  seen   {found['seen'][:_SEEN]}"))
        print_line(visible(f"  why    {found['title'] or found['message']}"))
        if found["origins"]:
            print_line(visible(f"  where  {found['origins']}"))
    if "deferral" in told:
        waited = ", ".join(told["deferral"]["waiting_for"]) or told["deferral"]["reason"]
        print_line(visible(f"  waits for evidence: {waited}  ({told['deferral']['resolution']})"))
    for name in told["missing"]:
        print_line(visible(f"  nobody could look at: {name}"))
    if "allowed" in told:
        done = told["allowed"]
        print_line()
        print_line(visible(f"written to {done['file']}"))
        print_line(f"of {done['replayed']} calls of the last week, {done['changed']} would end otherwise")
        return
    if told["allow"] and told["decision"] != "allow":
        print_line()
        print_line("what would allow it")
        for one in told["allow"]:
            print_line(visible(f"- {one['text']}"))
            for line in one["lines"].splitlines():
                print_line(f"    {line}")
        if any(one["lines"].startswith("guards:") for one in told["allow"]):
            note(f'`aegis why {entry.index} --allow --reason "..."` writes the exception')
