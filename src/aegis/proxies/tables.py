"""Changing single tables of a TOML file (TOML 1.0): their text is written anew, everything else stays as it is.

The new text is read again before it is written; where it does not mean exactly what it should, nothing is changed.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aegis.errors import InvalidCall
from aegis.proxies.edits import read_bytes, write_text

_BARE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def read_toml(path: Path) -> dict[str, Any] | None:
    """What `path` says, or `None` where there is no file; raises `InvalidCall` where it is not TOML."""
    data = read_bytes(path)
    return None if data is None else _parsed(path, data)


def write_tables(path: Path, member: str, tables: Mapping[str, Mapping[str, Any]]) -> Path | None:
    """Put each of `tables` in place of the one of its name under `member`; gives back where the file before lies.

    Raises `InvalidCall` where one of them is not written as a table of its own.
    """
    data = read_bytes(path) or b""
    wanted = copy.deepcopy(_parsed(path, data))
    text = data.decode()
    for name, table in tables.items():
        wanted[member][name] = dict(table)
        text = _replaced(text, (member, name), table)
    try:
        same = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        hint = f"write each server as a table of its own: `[{member}.NAME]`"
        raise InvalidCall(f"`{path}` is written in a way that cannot be changed safely", hint=hint)
    return write_text(path, text)


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidCall(f"`{path}` is not TOML", hint="nothing was changed") from error


def _replaced(text: str, name: tuple[str, str], table: Mapping[str, Any]) -> str:
    """`text` with `table` in place of the table `name` and those below it; comments stay."""
    kept: list[str] = []
    at: int | None = None
    inside = False
    for line in text.splitlines(keepends=True):
        header = _header(line)
        if header is not None:
            inside = header[:2] == name
            if inside and at is None:
                at = len(kept)
        if not inside or line.lstrip().startswith("#"):
            kept.append(line)
    place = len(kept) if at is None else at
    return "".join([*kept[:place], _written(name, table), *kept[place:]])


def _header(line: str) -> tuple[str, ...] | None:
    """The name of the table that begins at this line, or `None` where none does."""
    if not line.lstrip().startswith("["):
        return None
    try:
        found = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    names: list[str] = []
    value: Any = found
    while isinstance(value, dict) and len(value) == 1:
        (name, value), *_ = value.items()
        names.append(name)
    return tuple(names)


def _written(name: tuple[str, ...], table: Mapping[str, Any]) -> str:
    lines = [f"[{'.'.join(map(_key, name))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    below = [_written((*name, key), value) for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([*lines, "", ""]) + "".join(below)


def _key(name: str) -> str:
    return name if name and _BARE.issuperset(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {_value(one)}' for key, one in value.items())}}}"
    raise InvalidCall("the file holds a value that cannot be written again", hint="nothing was changed")


def _text(value: str) -> str:
    """A basic string: JSON's escapes are TOML's too, and DEL has to be one as well."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
