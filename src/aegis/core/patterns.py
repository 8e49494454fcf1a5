"""Patterns of RE2 that are compiled when they are first asked: a call needs a tenth of those that there are."""

from __future__ import annotations

from typing import Any, Final

import re2

_METHODS: Final = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split", "groups", "pattern")
_waiting: list[Lazy] = []


class Lazy:
    """The pattern `text` with the methods of a compiled one; one that RE2 refuses raises when it is first asked."""

    def __init__(self, text: str | bytes, options: Any = None):
        self._text = text
        self._options = options
        _waiting.append(self)

    def __getattr__(self, name: str) -> Any:
        """Compile the pattern for its first method; from then on the methods stand here themselves."""
        if name.startswith("_"):
            raise AttributeError(name)
        compiled = re2.compile(self._text, self._options)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        object.__setattr__(self, "__class__", _Compiled)  # whose methods are found without a look at this one
        return getattr(compiled, name)


class _Compiled:
    """A pattern that was asked."""


_QUIET: Final = re2.Options()
_QUIET.log_errors = False


def foreign(pattern: str) -> Any:
    """A pattern that what is judged brings with it, compiled; `None` where RE2 refuses it."""
    try:
        return re2.compile(pattern, _QUIET)
    except (re2.error, UnicodeError):
        return None


def compile_all() -> None:
    """Compile every pattern that a module of this process brought, so that no call waits for one."""
    while _waiting:
        _ = _waiting.pop().search
