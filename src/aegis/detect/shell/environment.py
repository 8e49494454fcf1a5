"""What settings of the environment tell a program: words that could as well stand behind its name.

Which variables those are stands in `data/programs`; a setting holds for its own command, or from `export` on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from aegis.detect.shell.catalogue import members
from aegis.detect.shell.starts import split_words
from aegis.detect.shell.tree import Command

_TOLD: Final[dict[str, dict[str, str]]] = members("variables", dict)
_SETS: Final = frozenset({"export", "declare", "typeset"})
_MOST_SETTINGS: Final = 64  # of one text


def heeds(program: str) -> bool:
    """Tell whether settings of the environment say what a program is to do."""
    return program in _TOLD


def told(commands: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands with the words that their settings stand for."""
    exported: tuple[tuple[str, str], ...] = ()
    for command in commands:
        if command.name in _SETS:
            exported = (*exported, *command.variables)[-_MOST_SETTINGS:]
        names = _TOLD.get(command.name)
        settings = (*exported, *command.variables) if names is not None else ()
        words = [word for name, value in settings for word in _words(command, names or {}, name.upper(), value)]
        yield command._replace(args=(*command.args, *words)) if words else command


def _words(command: Command, names: dict[str, str], name: str, value: str) -> list[str]:
    for pattern, words in names.items():
        lead, some, _ = pattern.partition("*")
        rest = name[len(lead) :].lower()
        if not (name.startswith(lead) and rest if some else name == pattern):
            continue
        if words == "$":  # of a command that the name may say
            return split_words(value) if not rest or not some or rest in command.args else []
        return [words.replace("*", rest.replace("_", "-")).replace("$", value)]
    return []
