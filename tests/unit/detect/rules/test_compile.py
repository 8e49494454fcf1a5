"""Compiling: once for what several surfaces share, and once for processes that start together."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aegis.detect.rules import Scanner, builtin_folder, engine, load
from aegis.detect.rules.cache import compiling
from aegis.detect.rules.engine import EnginePattern, make_engine, make_engines, relaxed

PATTERNS = [EnginePattern("needle[0-9]", False, lines=True), EnginePattern("^straw", True, lines=True)]

pytest.importorskip("hyperscan")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many patterns each compilation took, of a process that has no database yet."""
    sizes: list[int] = []
    compile_ = engine._compile

    def counting(database: Any, patterns: Sequence[EnginePattern]) -> None:
        sizes.append(len(patterns))
        compile_(database, patterns)

    monkeypatch.setattr(engine, "_compile", counting)
    monkeypatch.setattr(engine, "_OPENED", {})
    return sizes


def test_who_waits_for_another_process_reads_what_it_compiled(
    tmp_path: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_engine(PATTERNS, cache=tmp_path / "other")
    monkeypatch.setattr(engine, "_OPENED", {})
    found: list[list[tuple[int, int]]] = []

    def start() -> None:
        found.append(make_engine(PATTERNS, cache=tmp_path / "cache").hits(b"a needle7"))

    with compiling(tmp_path / "cache"):
        waiting = threading.Thread(target=start)
        waiting.start()
        for file in (tmp_path / "other").iterdir():
            shutil.copy2(file, tmp_path / "cache")
    waiting.join(60)
    assert found == [[(0, 9)]]
    assert compiled == [2]


def test_a_damaged_database_is_compiled_anew(
    tmp_path: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_engine(PATTERNS, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    monkeypatch.setattr(engine, "_OPENED", {})
    assert make_engine(PATTERNS, cache=tmp_path).hits(b"straw") == [(1, 5)]
    assert compiled == [2, 2]


def test_a_folder_that_cannot_be_used_only_costs_compiling(tmp_path: Path, compiled: list[int]) -> None:
    (tmp_path / "file").touch()
    assert make_engine(PATTERNS, cache=tmp_path / "file" / "cache").hits(b"needle1") == [(0, 7)]
    assert compiled == [2]


def test_equal_lists_share_one_database(compiled: list[int]) -> None:
    first, none, second = make_engines([PATTERNS, [], list(PATTERNS)], cache=None)
    assert first.hits(b"needle1") == second.hits(b"needle1") == [(0, 7)]
    assert none.hits(b"needle1") == []
    assert compiled == [2]


def test_what_several_surfaces_look_for_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[EnginePattern]] = []

    def make(lists: Sequence[Sequence[EnginePattern]], *, cache: Path | None, prefer: str) -> list[engine.Engine]:
        asked.extend(map(list, lists))
        return make_engines([[] for _ in lists], cache=cache, prefer=prefer)

    monkeypatch.setattr("aegis.detect.rules.scanner.make_engines", make)
    rules = load(builtin_folder()).rules
    Scanner(load(builtin_folder()))
    written = sum(len(rule.patterns) for rule in rules)
    told = sum(len(rule.patterns) for rule in rules if "description" in rule.surfaces)
    cased = sum(not pattern.isascii() for rule in rules for pattern in rule.patterns)
    assert sum(map(len, asked)) <= written + told + cased


def test_a_lead_of_two_letters_keeps_the_engine_off_hex() -> None:
    pattern = r"\b([a-z]{2}\d{2}(?: ?[a-z0-9]{4}){2,7})\b"
    assert relaxed(pattern) == pattern
