"""What a text for cmd.exe says that it does: its commands, with what variables stand for."""

from __future__ import annotations

import pytest

from aegis.detect.facts import Effort
from aegis.detect.shell.batch import MAX_BATCH, parse_batch
from aegis.detect.shell.words import program_name


def commands(text: str) -> list[tuple[str, ...]]:
    return [(command.name, *command.args) for command in parse_batch(text, Effort()).commands if command.name != "set"]


@pytest.mark.claim("DET-90")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r^e^g add HKLM\\x", [("reg", "add", "HKLM\\x")]),
        ("@echo off\n:: no\nrem no\n:label\ndir", [("echo", "off"), ("dir",)]),
        ("set a=for&set b=mat\n%a%%b% c:", [("format", "c:")]),
        ("%comspec:~-7,3% /c x", [("cmd", "/c", "x")]),
        ("set a=xdelx\n%a:x=% y", [("del", "y")]),
        ("setlocal enabledelayedexpansion\nset a=del\n!a! y", [("setlocal", "enabledelayedexpansion"), ("del", "y")]),
        ("del/q a.txt", [("del", "/q", "a.txt")]),
        ("a & b && c || d | e", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("if exist x (del x) else rd y", [("del", "x"), ("rd", "y")]),
        ('if /i not "%1"=="a b" del x', [("del", "x")]),
        ("if errorlevel 1 del x", [("del", "x")]),
        ("for %%d in (a b) do rd %%d", [("rd", "a", "b")]),
        ("call del x", [("del", "x")]),
        ('"C:\\Program Files\\A B\\c.exe" /x "y z"', [("c", "/x", "y z")]),
        ("a ^\nb", [("a", "b")]),
    ],
)
def test_a_text_is_read_as_its_commands(text: str, expected: list[tuple[str, ...]]) -> None:
    assert commands(text) == expected


def test_the_command_of_a_loop_and_redirections_are_kept() -> None:
    script = parse_batch("for /f %%i in ('wevtutil el') do wevtutil cl %%i\ncmd < a:b.bat > c.txt 2>&1", Effort())
    assert script.texts == ["wevtutil el"]
    assert [target for target, _ in script.writes] == ["c.txt"]
    assert [source for source, _ in script.reads] == ["a:b.bat"]


def test_the_name_of_a_program_has_no_folder_and_no_ending() -> None:
    assert program_name("C:\\Windows\\System32\\REG.EXE") == "reg"
    assert program_name(".exe") == ".exe"


def test_a_text_beyond_the_bound_and_variables_that_double_are_not_read() -> None:
    assert parse_batch("a " * MAX_BATCH, Effort()).cut
    assert parse_batch("set a=xxxxxxxx\n" + "set a=%a%%a%\n" * 1_000, Effort()).cut
