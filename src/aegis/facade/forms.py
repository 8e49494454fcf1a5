"""The JSON forms of Python arguments and results, for decisions about them."""

from __future__ import annotations

import copy
import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from aegis.adapters._arguments import jsonable

_MAX_VALUES: Final = 1_000_000  # values beyond this are not walked: they are no plain JSON then


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One final argument: what the body gets, and its JSON form where it has one.

    `plain` says that the value is its own form; `resolved` that it has a form at all.
    """

    value: Any
    form: Any
    plain: bool = True
    resolved: bool = True


def argument_of(value: Any) -> Argument:
    """The argument that a value makes."""
    if is_plain(value):
        return Argument(value=value, form=value)
    if holds_stream(value):
        return Argument(value=value, form=None, plain=False, resolved=False)
    try:
        # A copy: what was decided cannot be changed by whoever holds the original.
        value = copy.deepcopy(value)
        form = jsonable(value)
    except Exception:
        return Argument(value=value, form=None, plain=False, resolved=False)
    return Argument(value=value, form=form, plain=False)


def is_plain(root: Any) -> bool:
    """Whether a value is its own JSON form: only exact `str`, `int`, `float`, `bool`, `None`, lists and dicts."""
    return all(
        type(value) in (str, int, float, bool, type(None), list)
        or (type(value) is dict and all(type(key) is str for key in value))
        for value in _walk(root)
    )


def holds_stream(root: Any) -> bool:
    """Whether a value is, or has in its lists and dictionaries, something that can be read only once."""
    return any(isinstance(value, (Iterator, AsyncIterator, io.IOBase)) for value in _walk(root))


def described(value: Any) -> Any:
    """The JSON form of a result; what has none stands in it as text."""
    from pydantic_core import to_jsonable_python

    return value if is_plain(value) else to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="constants")


def _walk(root: Any) -> Iterator[Any]:
    """Every value in lists, tuples, sets and dictionaries, from the outside in; containers once."""
    seen: set[int] = set()
    waiting = [root]
    count = 0
    while waiting:
        value = waiting.pop()
        count += 1
        if count > _MAX_VALUES:
            yield iter(())  # counts as a stream, and as nothing plain
            return
        yield value
        if isinstance(value, (dict, list, tuple, set, frozenset)) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)
