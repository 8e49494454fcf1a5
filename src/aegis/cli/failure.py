"""How a failure is said: one line and a hint on standard error, or one JSON object with `--json`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from aegis.core.text import json_text, visible
from aegis.errors import Problem

# The exit codes, a closed set that scripts rely on.

DONE: Final = 0  # done, allowed or verified
REFUSED: Final = 1  # refused, blocked or not verified
USAGE: Final = 2  # the command line or the configuration is wrong; nothing was done
HELD: Final = 3  # a person has to approve first
INTERRUPTED: Final = 130  # the shell's word for Ctrl-C


def say(message: str, *, code: str, hint: str = "", as_json: bool = False) -> None:
    """Write one failure to standard error in the error shape of the HTTP API or as plain text."""
    if as_json:
        error = {"code": code, "message": message} | ({"hint": hint} if hint else {})
        sys.stderr.write(json_text({"error": error}) + "\n")
        return
    sys.stderr.write(f"aegis: {visible(message)}\n")
    if hint:
        sys.stderr.write(f"  hint: {visible(hint)}\n")


def say_problems(problems: Sequence[Problem], *, as_json: bool = False) -> None:
    """Write everything that is wrong with a configuration, each with its file and line."""
    if as_json:
        listed = [
            {"message": one.message, "file": one.file, "line": one.line, "pointer": one.pointer, "hint": one.hint}
            for one in problems
        ]
        error = {"code": "configuration", "message": problems[0].message, "problems": listed}
        sys.stderr.write(json_text({"error": error}) + "\n")
        return
    for one in problems:
        place = f"{one.file}:{one.line}: " if one.file and one.line else f"{one.file}: " if one.file else ""
        where = f" (at `{one.pointer}`)" if one.pointer else ""
        say(f"{place}{one.message}{where}", code="configuration", hint=one.hint)
