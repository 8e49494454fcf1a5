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
_LEADING_BRACES: Final = re2.compile(r"(^\s*|[;&|`(]\s*)\{([A-Za-z/.-]+(?:,[^}{ ,\n]+)+)\}")
_JOINERS: Final = str.maketrans("", "", "'\"\\^")


def unquote_shell(text: str) -> str | None:
    """The text, in which `QUOTES` matches, with shell quoting undone, or `None` where nothing changes."""
    joined: str = _IFS.sub(" ", text)
    joined = _EMPTY.sub("", joined)
    joined = _BRACES.sub(_spread, joined)
    joined = joined.replace("$'", "'").replace('$"', '"').translate(_JOINERS)
    return joined if joined != text else None


def expanded_words(text: str) -> str:
    """The text with what a shell splits into words written as words, quotes kept: `cat${IFS}x`, `{cat,x}`."""
    if "IFS" in text:
        text = _IFS.sub(" ", text)
    if "{" in text and "," in text:
        text = _LEADING_BRACES.sub(_lead, text)
    return text


def uncaret(text: str) -> str | None:
    """The text as the command interpreter of Windows reads it: a caret quotes what follows and is gone."""
    return text.replace("^", "") if "^" in text and _CARET.search(text) is not None else None


def _lead(match: Any) -> str:
    return f"{match.group(1)}{match.group(2).replace(',', ' ')}"


def _spread(match: Any) -> str:
    return str(match.group(1)).replace(",", " ")
