"""Files of programs: what is wrong in them is told with its line, and what was checked is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from aegis.detect.shell import catalogue
from aegis.detect.shell.catalogue import Prefix, builtin_programs, families, load, members, of_kind, options
from aegis.errors import ConfigError, Problem

GOOD = """\
about: Programs of an example.
examples:
  found:
    - {command: example wipe, signal: shell.infrastructure}
    - {command: example send, effect: network}
  pass: [example list, example show]
programs:
  - names: [example]
    kinds: [network]
    deeds:
      - {signal: shell.infrastructure, words: [wipe]}
"""


def problems(text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        families([("example.yaml", text)])
    return list(caught.value.problems)


def test_a_file_is_read_as_it_is_written() -> None:
    (family,) = families([("example.yaml", GOOD)])
    assert [program.names for program in family.programs] == [("example",)]
    assert [example.effect for example in family.found] == ["", "network"]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("kinds: [network]", "kinds: [netwerk]", 9, "`netwerk` is not a kind"),
        ("kinds: [network]", "kind: [network]", 8, "object contains unknown field `kind`"),
        ("words: [wipe]", "words: [wipe], when: never", 11, "object contains unknown field `when`"),
        ("words: [wipe]", "words: []", 11, "a deed names its words"),
        ("words: [wipe]", "words: [Wipe]", 11, "`Wipe` is compared in small letters"),
        ("words: [wipe]", "words: wipe", 11, "expected `array`, got `str`"),
        ("{signal: shell.infrastructure, words", "{signal: shell.wrong, words", 11, "`shell.wrong` is not a signal"),
        ("names: [example]", "names: [Example]", 8, "`Example` is no name of a program in small letters"),
        ("names: [example]", "names: ['example*']", 8, "only names of a defence or a miner end in `*`"),
        ("names: [example]", "names: [example, example]", 8, "`example` is described in `example.yaml` already"),
        ("pass: [example list, example show]", "pass: [example list]", 6, "a file needs at least 2 `pass` examples"),
        ("effect: network", "effect: net", 5, "`net` is none of"),
        ("effect: network", "effect: network, signal: shell.destroy", 5, "an example names a `signal` or an `effect`"),
        ("about: Programs", "of: Programs", 1, "a file holds `about`, `examples` and `programs`"),
        ("about: Programs", "about: [Programs", 2, "not valid YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    first, *_ = problems(GOOD.replace(old, new, 1))
    assert first.message.startswith(message)
    assert (first.file, first.line) == ("example.yaml", line)


def test_a_program_of_which_nothing_is_said_is_refused() -> None:
    bare = GOOD[: GOOD.index("    kinds:")]
    assert [one.message for one in problems(bare)] == ["a program has `names` and something that is known of it"]


def test_every_problem_of_every_file_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        families([("one.yaml", GOOD.replace("wipe]", "Wipe]")), ("two.yaml", GOOD.replace("[network]", "[nothing]"))])
    assert [problem.file for problem in caught.value.problems] == ["one.yaml", "two.yaml", "two.yaml"]


def test_what_was_checked_is_kept_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, cache = tmp_path / "programs", tmp_path / "cache"
    folder.mkdir()
    (folder / "example.yaml").write_text(GOOD, encoding="utf-8")
    checked = load(folder, cache=cache)
    with monkeypatch.context() as patch:
        patch.setattr("aegis.detect.shell.catalogue.families", pytest.fail)
        assert load(folder, cache=cache) == checked
    (folder / "example.yaml").write_text(GOOD.replace("names: [example]", "names: [other]"), encoding="utf-8")
    assert [program.names for program in load(folder, cache=cache)] == [("other",)]


def test_analysers_ask_by_kind_member_and_option() -> None:
    assert {"rm", "shred"} <= of_kind("deleter")
    assert members("prefix", Prefix)["timeout"].operands == 1
    assert "--checkpoint-action" in options("command")["tar"]
    assert builtin_programs()["aws"].deeds
    with pytest.raises(KeyError):
        of_kind("deleters")


def test_an_installation_without_programs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "program_folder", lambda: tmp_path)
    with pytest.raises(ConfigError, match="missing from this installation"):
        catalogue.builtin_programs.__wrapped__()
