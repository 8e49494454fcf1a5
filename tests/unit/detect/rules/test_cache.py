"""What was compiled and checked is kept: where nobody else writes, the files used last, never what is wrong."""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import NoReturn

import pytest

from aegis.detect.rules import load
from aegis.detect.rules.cache import load_cached, store_cached
from aegis.errors import ConfigError

OLD = time.time() - 100_000
RULE = """\
id: {id}
title: a rule
category: secret
severity: high
outcome: block
roles: [any]
message: a secret was found
patterns: ['{pattern}']
examples:
  match: [abc1, {{tool: t, arguments: {{a: [1, 2.5, null, abc1]}}}}]
  pass: [abd, {{result: {{a: b}}}}]
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    write(folder, "one", "abc1")
    write(folder, "two", "abc2")
    return folder


def write(folder: Path, name: str, pattern: str) -> None:
    file = folder / "family" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RULE.format(id=name, pattern=pattern))


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a rule was read")

    monkeypatch.setattr(importlib.import_module("aegis.detect.rules.load"), "parse_rule", read)


def test_only_the_files_that_were_used_last_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aegis.detect.rules.cache._MOST_KEPT", 3)
    for number in range(3):
        store_cached(cache, (str(number),), b"x")
    for number, path in enumerate(sorted(cache.iterdir())):
        os.utime(path, (OLD + number, OLD + number))
    assert load_cached(cache, ("1",)) == b"x"
    store_cached(cache, ("3",), b"y")
    kept = [number for number in range(4) if load_cached(cache, (str(number),))]
    assert len(kept) == 3
    assert {1, 3} <= set(kept)


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(cache: Path) -> None:
    store_cached(cache, ("0",), b"x")
    for name, used in (("tmpold", OLD), ("tmpnew", time.time())):
        (cache / name).write_bytes(b"half")
        os.utime(cache / name, (used, used))
    store_cached(cache, ("1",), b"x")
    assert "tmpnew" in names(cache)
    assert "tmpold" not in names(cache)


def test_rules_that_were_checked_are_not_read_again(cache: Path, rules: Path, request: pytest.FixtureRequest) -> None:
    first = load(rules, cache=cache)
    request.getfixturevalue("unread")
    assert load(rules, cache=cache) == first
    with pytest.raises(AssertionError):
        load(rules)


@pytest.mark.parametrize("change", ["changed", "added", "removed", "moved"])
def test_a_change_of_the_files_has_them_read(cache: Path, rules: Path, change: str) -> None:
    load(rules, cache=cache)
    match change:
        case "changed":
            write(rules, "two", "abc3")
        case "added":
            write(rules, "three", "abc3")
        case "removed":
            (rules / "family" / "two.yaml").unlink()
        case _:
            rules = rules.rename(rules.with_name("elsewhere"))
    assert load(rules, cache=cache) == load(rules)


def test_rules_in_a_file_that_others_can_write_or_that_was_cut_are_read_anew(
    cache: Path, rules: Path, request: pytest.FixtureRequest
) -> None:
    load(rules, cache=cache)
    (kept,) = cache.iterdir()
    body = kept.read_bytes()
    request.getfixturevalue("unread")
    for change in (lambda: kept.chmod(0o666), lambda: kept.write_bytes(body[:-1])):
        change()
        with pytest.raises(AssertionError):
            load(rules, cache=cache)
        kept.chmod(0o600)


def test_what_is_wrong_is_said_each_time(cache: Path, rules: Path) -> None:
    write(rules, "two", "(")
    for _ in range(2):
        with pytest.raises(ConfigError):
            load(rules, cache=cache)
