"""The command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from aegis.cli.run import build
from reference.markdown import code, page, table

EXITS = (
    ("0", "done; allowed or sanitised; verified"),
    ("1", "refused; not verified"),
    ("2", "wrong usage or configuration"),
    ("3", "held: a person has to approve"),
)


def render() -> str:
    """The page."""
    parts = []
    for path, command in commands(build(), ("aegis",)):
        parts.append(f"{'#' * min(2 + max(len(path) - 2, 0), 3)} `{' '.join(path)}`")
        parts.append(inspect.cleandoc(command.help or ""))
        if not getattr(command, "commands", None):
            parts.append(code(f"{' '.join(path)} {_usage(command)}".rstrip(), "text"))
        rows = list(_options(command))
        if rows:
            parts.append(table(["parameter", "means"], rows))
    return page(
        "Command line",
        "`make setup` builds `.venv`; `.venv/bin/aegis` is the command.",
        "## Exit codes",
        table(["code", "means"], EXITS),
        *parts,
    )


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below `command` that is not hidden, with its words."""
    if len(path) > 1:
        yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, (*path, name))


def _usage(command: Any) -> str:
    words = []
    for one in command.params:
        if one.param_type_name == "argument":
            name = one.metavar or one.name.upper()
            words.append(name if one.required else f"[{name}]")
    return " ".join([*words, "[OPTIONS]"])


def _options(command: Any) -> Iterator[tuple[str, str]]:
    for one in command.params:
        text = (one.help or "").strip()
        if one.param_type_name == "argument":
            yield f"`{one.metavar or one.name.upper()}`", text
        elif not one.hidden and "--help" not in one.opts:
            metavar = "" if one.is_flag else f" {one.metavar or one.name.upper()}"
            yield f"`{', '.join(one.opts)}{metavar}`", text
