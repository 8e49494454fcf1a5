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
_BRACED: Final = "${IFS"
_IFS_WORD: Final = 20  # characters that an expansion of `IFS` may have behind its name
_EMPTY: Final = ("$@", "$*", "$!", "${@}", "${*}", "${!}", "$()", "``", "\\\n")
_FIRST: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/.-"  # what the first word in braces is made of
_LEADING_BRACES: Final = re2.compile(r"(^\s*|[;&|`(]\s*)\{([A-Za-z/.-]+(?:,[^}{ ,\n]+)+)\}")
_VARIABLE: Final = re2.compile(
    r"""(?:\b(?P<name>[A-Za-z_]\w{0,63})=(?:(?P<value>[\w./:@%+,-]{1,400})|'(?P<single>[^'$`]{0,400})'|"(?P<double>[^"$`\\]{0,400})")"""
    r"""|\$(?:(?P<used>[A-Za-z_]\w{0,63})|\{(?P<braced>[A-Za-z_]\w{0,63})\}))"""
)
_DIGITS: Final = frozenset("0123456789")
_JOINERS: Final = str.maketrans("", "", "'\"\\^")


def unquote_shell(text: str) -> str | None:
    """The text, in which `QUOTES` matches, with shell quoting undone, or `None` where nothing changes."""
    joined = _without_ifs(text)
    for empty in _EMPTY:
        joined = joined.replace(empty, "")
    joined = _without_braces(joined)
    joined = joined.replace("$'", "'").replace('$"', '"').translate(_JOINERS)
    return joined if joined != text else None


def expanded_words(text: str) -> str:
    """The text with what a shell splits into words written as words, quotes kept: `cat${IFS}x`, `{cat,x}`."""
    if "IFS" in text:
        text = _without_ifs(text)
    if "{" in text and "," in text:
        text = _LEADING_BRACES.sub(_lead, text)
    return text


def with_variables(text: str) -> str | None:
    """The lines in which a variable stands that the text sets, with what it is set to; `None` where there is none.

    They are another reading, and none in place of the text: whether a setting holds where it is used is not known.
    """
    if "$" not in text or "=" not in text:
        return None
    read = _Variables().read
    changed = [after for line in text.split("\n") if (after := _VARIABLE.sub(read, line)) != line]
    return "\n".join(changed) or None


class _Variables:
    """What the variables of a text were set to, as far as it is written out."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def read(self, match: Any) -> str:
        """Keep what an assignment sets; what stands in place of a variable that was set before."""
        whole: str = match.group()
        name = match.group("name")
        if name is None:
            return self._values.get(match.group("used") or match.group("braced"), whole)
        self._values[name] = match.group("value") or match.group("single") or match.group("double") or ""
        return whole


def uncaret(text: str) -> str | None:
    """The text as the command interpreter of Windows reads it: a caret quotes what follows and is gone."""
    return text.replace("^", "") if "^" in text and _CARET.search(text) is not None else None


def _lead(match: Any) -> str:
    return f"{match.group(1)}{match.group(2).replace(',', ' ')}"


# Thousands of small replacements: cutting the text at a sign takes a tenth of what a pattern takes for each.


def _without_ifs(text: str) -> str:
    """The text with every expansion of `IFS` as a blank: `$IFS`, `$IFS$9`, `${IFS}`, `${IFS%??}`."""
    if "IFS" not in text:
        return text
    out: list[str] = []
    at = 0
    while (start := text.find(_BRACED, at)) >= 0:
        behind = start + len(_BRACED)
        end = text.find("}", behind, behind + _IFS_WORD + 1)
        out += (text[at:behind],) if end < 0 else (text[at:start], " ")
        at = behind if end < 0 else end + 1
    out.append(text[at:])
    first, *pieces = "".join(out).split("$IFS")
    out = [first]
    for piece in pieces:
        out += (" ", piece[2:] if piece[:1] == "$" and piece[1:2] in _DIGITS else piece)
    return "".join(out)


def _without_braces(text: str) -> str:
    """The text with words in braces (`{cat,/etc/passwd}`) as words with blanks between them."""
    if "{" not in text or "," not in text:
        return text
    first, *pieces = text.split("{")
    out = [first]
    for piece in pieces:
        inner, closed, rest = piece.partition("}")
        word, *others = inner.split(",")
        spreads = closed and word and others and not word.strip(_FIRST) and all(others) and " " not in inner
        out += (" ".join((word, *others)), rest) if spreads else ("{", piece)
    return "".join(out)
