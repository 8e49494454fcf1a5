"""How a failure is said: one line and a hint on standard error, or one JSON object with `--json`."""

from __future__ import annotations

import sys

from aegis.cli.text import json_text, visible


def say(message: str, *, code: str, hint: str = "", as_json: bool = False) -> None:
    """Write one failure to standard error in the error shape of the HTTP API or as plain text."""
    if as_json:
        error = {"code": code, "message": message} | ({"hint": hint} if hint else {})
        sys.stderr.write(json_text({"error": error}) + "\n")
        return
    sys.stderr.write(f"aegis: {visible(message)}\n")
    if hint:
        sys.stderr.write(f"  hint: {visible(hint)}\n")
