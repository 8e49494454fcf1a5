from __future__ import annotations

import pytest

from aegis.detect import files
from aegis.detect.facts import FactSubject, ReadLimits
from aegis.detect.files import LOCAL, UNKNOWN, FileFlow, Files, Written, local
from aegis.detect.gather import gather


def held(known: Files, path: str) -> list[str]:
    return [flow.text for flow in known.find(path)]


def test_a_relative_name_may_stand_for_every_path_that_ends_with_it() -> None:
    known = Files()
    known.write(Written("/w/./a.sh", FileFlow("x")))
    assert held(known, "a.sh") == held(known, "./a.sh") == held(known, "/w/a.sh") == held(known, "w//a.sh") == ["x"]
    assert held(known, "/v/a.sh") == held(known, "b.sh") == []


def test_only_a_sure_write_of_the_same_writer_takes_the_place_of_another() -> None:
    known = Files()
    known.write(Written("a", FileFlow("1"), sure=True), "one")
    known.write(Written("a", FileFlow("2")), "one")
    known.write(Written("a", FileFlow("3"), sure=True), "other")
    assert held(known, "a") == ["1", "2", "3"]
    known.write(Written("a", FileFlow("4"), sure=True), "one")
    assert held(known, "a") == ["3", "4"]


def test_edits_and_additions_change_every_text_that_a_file_may_hold() -> None:
    known = Files()
    known.write(Written("a", FileFlow("x = 1\n"), sure=True))
    known.write(Written("a", FileFlow("2"), replaces="1", sure=True))
    known.write(Written("a", FileFlow("y\n"), append=True, sure=True))
    assert held(known, "a") == ["x = 2\ny\n"]
    known.write(Written("b", FileFlow("new"), replaces="old", sure=True))
    assert known.find("b") == [FileFlow("\nnew", LOCAL, ("b",))]
    assert local("b").gap == LOCAL


def test_too_many_texts_or_files_are_not_known_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Files()
    for number in range(20):
        known.write(Written("a", FileFlow(str(number))))
    assert UNKNOWN in known.find("a")
    monkeypatch.setattr(files, "MOST_FILES", 3)
    for number in range(5):
        known.write(Written(f"f{number}", FileFlow("x")))
    assert known.find("any") == [UNKNOWN]


def test_a_copy_sees_nothing_of_what_is_written_later() -> None:
    known = Files()
    other = known.copy()
    known.write(Written("a", FileFlow("x")))
    assert other.find("a") == []


@pytest.mark.parametrize(
    ("tool", "arguments", "written"),
    [
        ("write_file", {"path": "a", "content": "x"}, [("a", "x", False)]),
        ("write_file", {"path": "a.txt", "lines": ["x", "y"]}, [("a.txt", "x\ny", False)]),
        ("append_file", {"path": "a.txt", "text": "x"}, [("a.txt", "x", True)]),
        ("write_file", {"path": "a.txt", "content": "x", "mode": "a"}, [("a.txt", "x", True)]),
        ("insert_text", {"file": "a.txt", "new_str": "x", "insert_line": 3}, [("a.txt", "x", True)]),
        ("create_files", {"files": [{"path": "a.sh", "content": "x"}, {"path": "b.sh", "content": "y"}]},
         [("a.sh", "x", False), ("b.sh", "y", False)]),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: a\n+x\n*** Update File: b\n-o\n+y\n*** End Patch"},
         [("a", "x\n", False), ("b", "y\n", True)]),
        ("apply_diff", {"diff": "diff --git a/n b/n\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"},
         [("n", "x\n", False)]),
        ("send_email", {"to": "a@example.com", "body": "x"}, []),
        ("create_issue", {"title": "x", "body": "y"}, []),
        ("read_file", {"path": "a.txt"}, []),
    ],
)  # fmt: skip
def test_tools_that_write_files_say_what_they_write(
    tool: str, arguments: dict[str, object], written: list[tuple[str, str, bool]]
) -> None:
    facts = gather(FactSubject(tool=tool, server=None, arguments=arguments, limits=ReadLimits()))
    assert [(one.path, one.flow.text, one.append) for one in facts.written] == written


@pytest.mark.parametrize(
    ("tool", "arguments", "runs"),
    [
        ("bash", {"command": "bash a.sh && ./b && python -m c.d"}, ["a.sh", "./b", "c/d.py"]),
        ("bash", {"command": "ls -la; cat a.sh; /usr/bin/env"}, []),
        ("bash", {"command": "psql -f q.sql; make -f m.mk; source env.sh"}, ["q.sql", "m.mk", "env.sh"]),
        ("run_script", {"path": "a.py"}, ["a.py"]),
        ("run_tests", {"path": "tests/test_a.py"}, []),
        ("read_file", {"path": "a.py"}, []),
    ],
)
def test_a_call_says_which_files_it_runs(tool: str, arguments: dict[str, object], runs: list[str]) -> None:
    assert list(gather(FactSubject(tool=tool, server=None, arguments=arguments, limits=ReadLimits())).runs) == runs
