r"""Shell words as the shell joins them: quotes inside words, backslashes, `$IFS`, empty expansions.

`c'a't /et""c/pass\wd`, `cat${IFS}/etc/passwd`, `{cat,/etc/passwd}` and `w$@hoami` become what runs.
This is a reading for pattern rules; the shell analyser parses the original.
"""

from __future__ import annotations

from typing import Any, Final

import re2

# A quote, backslash or caret between two word characters joins a word; in prose it never does.
QUOTES: Final = (
    r"""[A-Za-z0-9/._-](?:''|""|\\|\^|``)[A-Za-z0-9/._-]|['"][A-Za-z/._-]{1,8}['"][A-Za-z/]|[A-Za-z/]['"][A-Za-z/._-]{1,8}['"]"""
    r"""|\$\{?IFS|\$[@*]|\$\{[@*]\}|\$[1-9][A-Za-z]|\{[A-Za-z/.-]+,[^}{ ]+\}|\$['"]|\$\{[A-Za-z_]+:\d|\\\n"""
)
_CARET: Final = re2.compile(r"[A-Za-z]\^[A-Za-z]")
_IFS: Final = re2.compile(r"\$\{IFS[^}]{0,20}\}|\$IFS(?:\$[0-9])?|\$\{IFS\}")
_EMPTY: Final = re2.compile(r"\$[@*!]|\$\{[@*!]\}|\$\(\)|``|\\\n")
_BRACES: Final = re2.compile(r"\{([A-Za-z/.-]+(?:,[^}{ ,]+)+)\}")
_JOINERS: Final = str.maketrans("", "", "'\"\\^")


def unquote_shell(text: str) -> str | None:
    """The text, in which `QUOTES` matches, with shell quoting undone, or `None` where nothing changes."""
    joined: str = _IFS.sub(" ", text)
    joined = _EMPTY.sub("", joined)
    joined = _BRACES.sub(_spread, joined)
    joined = joined.replace("$'", "'").replace('$"', '"').translate(_JOINERS)
    return joined if joined != text else None


def uncaret(text: str) -> str | None:
    """The text as the command interpreter of Windows reads it: a caret quotes what follows and is gone."""
    return text.replace("^", "") if "^" in text and _CARET.search(text) is not None else None


def _spread(match: Any) -> str:
    return str(match.group(1)).replace(",", " ")
