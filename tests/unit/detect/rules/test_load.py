from __future__ import annotations

from pathlib import Path

import pytest

from aegis.detect.rules import builtin_folder, load
from aegis.errors import ConfigError

GOOD = """\
id: demo
title: a demonstration
category: sql_injection
severity: high
outcome: block
roles: [unknown]
message: a demonstration
patterns: ["bad+word"]
examples:
  match: ["badword", "baddword"]
  pass: ["good", "fine"]
"""


def write(folder: Path, text: str, name: str = "demo") -> Path:
    (folder / "family").mkdir(exist_ok=True)
    path = folder / "family" / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_builtin_rules_load() -> None:
    rules = load(builtin_folder())
    assert len(rules.rules) == len(rules.by_id) > 0
    assert rules.digest == load(builtin_folder()).digest


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("severity: high", "severity: hgih", 4, "`hgih` is not a risk tier"),
        ("patterns:", "pattern:", 8, "`pattern` is not a member of a rule"),
        ('["bad+word"]', '["(bad"]', 8, "the pattern does not compile"),
        ('["bad+word"]', '["(?=bad)"]', 8, "the pattern does not compile"),
        ('["bad+word"]', '["(a)\\\\1"]', 8, "the pattern does not compile"),
        ('["bad+word"]', '["x*"]', 8, "the pattern matches the empty text"),
        ('["badword", "baddword"]', '["badword"]', 10, "at least 2 `match` examples"),
        ('["good", "fine"]', '["good"]', 11, "at least 2 `pass` examples"),
        ("roles: [unknown]", "roles: [nowhere]", 6, "`nowhere` is not a role"),
        ("title: a demonstration", "id: again", 2, "the key `id` stands here twice"),
        ("category: sql_injection", "category: sqli", 3, "`sqli` is not a category"),
        ("roles: [unknown]", "roles: &a [unknown]\nfacts: *a", 6, "anchors and aliases"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert any(
        message in problem.message and problem.line == line and problem.file == str(path)
        for problem in caught.value.problems
    ), caught.value.problems


def test_an_id_has_one_file_named_after_it(tmp_path: Path) -> None:
    write(tmp_path, GOOD, name="other")
    with pytest.raises(ConfigError, match="differs from the file name"):
        load(tmp_path)


def test_a_folder_that_is_given_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works in a clone names the folder of the built-in rules, under another spelling."""
    monkeypatch.chdir(builtin_folder().parent)
    assert load(builtin_folder(), Path("rules")).digest == load(builtin_folder()).digest
