"""Examples of calls to learn from: dangerous ones with harmless twins, and what the project's tests let pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from aegis.config.config import policies_folder
from aegis.detect.shell.catalogue import families, program_folder
from aegis.detect.tool_words import builtin_tools
from benchmarks.learning import Row

TESTS: Final = Path(__file__).parents[2] / "tests"

# The features of a call with what each counts.
Weigh = Callable[[str, Mapping[str, Any]], dict[str, float]]


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A dangerous call and its twin, or a harmless call alone."""

    tool: str
    good: dict[str, Any]
    bad: dict[str, Any] | None = None
    good_tool: str = ""


class Pair(NamedTuple):
    """The features of a dangerous call, if there is one, and of a harmless one."""

    bad: dict[str, float] | None
    good: dict[str, float]
    example: Example


def writers(folder: Path) -> dict[str, list[Example]]:
    """The calls of each writer; raises `OSError` or `msgspec.DecodeError` for what cannot be read."""
    return {
        path.stem: [msgspec.json.decode(line, type=Example) for line in path.read_bytes().splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def pairs_of_tests() -> list[Example]:
    """The dangerous calls of the project's tests and their harmless twins."""
    found: list[Example] = []
    for path in sorted((TESTS / "unit" / "detect" / "pairs").glob("*.yaml")):
        held = yaml.safe_load(path.read_text("utf-8"))
        for pair in held["pairs"]:
            argument = pair.get("argument", held.get("argument"))
            bad, good = (one if isinstance(one, dict) else {argument: one} for one in (pair["bad"], pair["good"]))
            tool = pair.get("tool", held.get("tool"))
            found.append(Example(tool=tool, bad=bad, good=good, good_tool=pair.get("twin", tool)))
    return found


def harmless_of_tests() -> list[Example]:
    """The calls of the project's tests and programs that everybody expects to pass; what they stop teaches nothing."""
    found = [
        (entry["tool"], entry["arguments"])
        for path in sorted((TESTS / "everyday").glob("*.yaml"))
        for entry in yaml.safe_load(path.read_text("utf-8"))
        if entry.get("answer", "allow") == "allow"
    ]
    for path in sorted((TESTS / "regression").glob("*.yaml")):
        held = yaml.safe_load(path.read_text("utf-8"))
        for entry in held.get("benign", ()):
            is_call = isinstance(entry, dict) and "arguments" in entry
            told = entry if is_call else {"arguments": {held.get("argument"): entry}}
            found.append((told.get("tool", held.get("tool")), told["arguments"]))
    found += [(one.good_tool, one.good) for one in pairs_of_tests()]
    for path in sorted(policies_folder().glob("*.cases.yaml")):
        for entry in yaml.safe_load(path.read_text("utf-8")):
            if entry["expect"].get("decision") == "allow":
                found.append((entry["call"]["tool"], entry["call"].get("arguments", {})))
    golden = map(msgspec.json.decode, (TESTS / "golden" / "calls.jsonl").read_bytes().splitlines())
    found += [(one["call"][2], one["call"][3]) for one in golden if one["decision"][0] == "allow"]
    files = [(path.name, path.read_text("utf-8")) for path in sorted(program_folder().glob("*.yaml"))]
    for known in families(files):
        found += [("bash", {"command": command}) for command in known.passes]
    for file in builtin_tools():
        found += [(one.tool, one.arguments) for known in file.commands for one in known.passes]
    return [Example(tool=tool, good=arguments) for tool, arguments in found if tool and isinstance(arguments, dict)]


def pairs_of(examples: Iterable[Example], weigh: Weigh) -> list[Pair]:
    return [
        Pair(
            None if one.bad is None else weigh(one.tool, one.bad),
            weigh(one.good_tool or one.tool, one.good),
            one,
        )
        for one in examples
    ]


def rows_of(pairs: Sequence[Pair]) -> list[Row]:
    """The calls, and of each two of a pair the difference."""
    rows: list[Row] = []
    for pair in pairs:
        rows.append(Row(pair.good, is_met=False))
        if pair.bad is not None:
            rows.append(Row(pair.bad, is_met=True))
            names = pair.bad.keys() | pair.good.keys()
            differing = {name: pair.bad.get(name, 0.0) - pair.good.get(name, 0.0) for name in sorted(names)}
            rows.append(Row({name: one for name, one in differing.items() if one}, is_met=True, starts=False))
    return rows
