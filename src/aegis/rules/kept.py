"""Rules that were read and checked before, kept beside the compiled databases: reading them anew takes a third of a
second.

They are trusted as those databases are. What they depend on are the bytes of every file, and the code that checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from aegis.rules.cache import load_cached, store_cached
from aegis.rules.model import Rule

_CHECKED_BY: Final = ("../core/text.py", "checks.py", "document.py", "load.py", "model.py", "numbers.py", "patterns.py")
_ENCODER: Final = msgspec.msgpack.Encoder()


def kept_rules(folder: Path, files: Sequence[tuple[Path, str]]) -> tuple[Rule, ...] | None:
    """The rules that these files, with their texts, held when they were checked; `None` where that is not known."""
    body = load_cached(folder, _identity(files))
    if body is None:
        return None
    try:
        return _decoded(body)
    except msgspec.DecodeError:
        return None


def keep_rules(folder: Path, files: Sequence[tuple[Path, str]], rules: tuple[Rule, ...]) -> None:
    """Keep the rules of files in which nothing is wrong; what would not come back as it is, is not kept."""
    try:
        body = _ENCODER.encode(rules)
        same = _decoded(body) == rules
    except (TypeError, ValueError, msgspec.MsgspecError):  # an example can hold any value of YAML
        return
    if same:
        store_cached(folder, _identity(files), body)


def _identity(files: Sequence[tuple[Path, str]]) -> tuple[str, ...]:
    return ("rules", *_checkers(), *(word for path, text in files for word in (str(path), text)))


@cache
def _checkers() -> tuple[str, ...]:
    here = Path(__file__).parent
    return tuple((here / name).read_text(encoding="utf-8") for name in _CHECKED_BY)


def _decoded(body: bytes) -> tuple[Rule, ...]:
    return msgspec.msgpack.decode(body, type=tuple[Rule, ...])
