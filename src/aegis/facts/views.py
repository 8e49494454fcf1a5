"""The other readings of a string: what decoders, shells and readers make of it, to a bounded depth.

Most strings are short plain words and have none; a few cheap tests say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from aegis.facts.decode import (
    HIDES,
    NUMBERED,
    SPELLS,
    character_codes,
    entities,
    escapes,
    form,
    hidden_runs,
    may_be_encoded,
    padded,
    percent,
    spelled_out,
    sql_comments,
)
from aegis.facts.effort import Effort
from aegis.facts.fold import skeleton, tag_text
from aegis.facts.quick import one_of
from aegis.facts.unquote import QUOTES, uncaret, unquote_shell

MAX_VIEW_INPUT: Final = 16_384  # characters of a string that are decoded: of longer ones both ends
MAX_VIEWS: Final = 24  # views of one string: bounds what nested encodings can cost
MAX_ROUNDS: Final = 4  # decoders applied in a row
MAX_TOTAL: Final = 131_072  # characters of all views of one value
MOST_DECODED: Final = 262_144  # characters of all texts of a call that decoders are given: bounds what many cost
_AT_LEAST: Final = 128  # of them that trying every decoder on a short text costs
_DEAR: Final = 2  # of them more that a character costs the slower decoders
_JSON_STRINGS: Final = 64
_LEAST_RUN: Final = 12
# What most texts have nothing of: runs that base64 or hex could be, bits and pairs of hex digits that stand
# apart, words spelled letter by letter, characters spelled by their codes, quotes that join a word.
_LONG_RUN: Final = 0
_QUICK: Final = one_of(
    r"[A-Za-z0-9+/_-]{12,}",
    r"[01]{8}[ ,][01]{8}",
    NUMBERED,
    r"(?:[0-9a-fA-F]{2}[ :]){8}",
    r"\b[A-Za-z](?:[ .*_|-][A-Za-z]){7,}\b",
    r"(?i)(?:chr|char|fromcharcode)\s*\(\s*\d{2}",
    r"[A-Za-z/]'[A-Za-z/._-]{1,8}'|'[A-Za-z/._-]{1,8}'[A-Za-z/]|[A-Za-z0-9/._-]``[A-Za-z0-9/._-]",
)
_RUN_CHARS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_OUTSIDE_RUNS: Final = bytes(code if code in _RUN_CHARS else 32 for code in range(256))

Reading = tuple[str, tuple[str, ...]]


def views_of(text: str, effort: Effort | None = None) -> list[Reading]:
    """Every different reading of `text`, each with the decoders that lead to it; the text itself excluded.

    `effort` is what the other texts of the same call have left: a character that is decoded costs a unit. Where it
    ends, so do the readings, and its `left` is below zero.
    """
    if len(text) > MAX_VIEW_INPUT:
        half = MAX_VIEW_INPUT // 2
        text = f"{text[:half]}\n{text[-half:]}"
    if text.isascii():
        return expanded(text, effort) if _may_differ(text) else []
    return expanded(text.encode("utf-8", "replace").decode(), effort)


def may_have_views(together: str) -> bool:
    """Whether any of the texts that are lines of `together` can have another reading. Most calls have none."""
    return not together.isascii() or "+" in together or _has_signs(together) or _hides_text(together)


def _may_differ(text: str) -> bool:
    return _has_signs(text) or ("+" in text and " " not in text) or _hides_text(text)


def _has_signs(text: str) -> bool:
    if "%" in text or "\\" in text or "&" in text or "$" in text or '"' in text or "^" in text or "{" in text:
        return True
    if "=" in text and (text[-1] == "=" or "=\n" in text):
        return True
    # Two signs in a row take ten times as long to look for as one.
    return ("*" in text and "/*" in text) or ("0" in text and "0x" in text) or ("'" in text and "''" in text)


def _hides_text(text: str) -> bool:
    """Whether something in a text of ASCII decodes to another, or looks spelled; a long path only looks encoded."""
    found = _QUICK(text)
    if not found:
        return False
    if found != [_LONG_RUN]:
        return True
    # Bytes are translated in a fraction of the time.
    for word in text.encode("ascii").translate(_OUTSIDE_RUNS).split():
        if len(word) >= _LEAST_RUN and may_be_encoded(word.decode()):
            return True
    return False


def expanded(text: str, effort: Effort | None = None) -> list[Reading]:
    """The readings of a text without asking first whether it can have any; the same as those of `views_of`."""
    effort = effort or Effort(MOST_DECODED)
    seen = {text}
    found: list[Reading] = []
    total = 0
    frontier: list[Reading] = [(text, ())]
    for _ in range(MAX_ROUNDS):
        following: list[Reading] = []
        for value, kinds in frontier:
            if not effort.take(len(value) + _AT_LEAST):
                return found
            for kind, decoded in _once(value, effort):
                if decoded in seen or not decoded:
                    continue
                seen.add(decoded)
                total += len(decoded)
                effort.left -= len(decoded)
                if len(found) >= MAX_VIEWS or total > MAX_TOTAL:
                    return found
                reading = (decoded, (*kinds, kind))
                found.append(reading)
                following.append(reading)
        if not following:
            break
        frontier = following
    return found


def _once(text: str, effort: Effort) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if not text.isascii():
        effort.left -= len(text) * _DEAR
        out.append(("unicode", skeleton(text)))
        hidden = tag_text(text)
        if hidden:
            out.append(("tags", hidden))
    signs = _RARE(text)
    if signs:
        effort.left -= len(text) * _DEAR + _AT_LEAST
    for sign, kind, decoder in _DECODERS:
        if sign is None or sign in signs:
            decoded = decoder(text)
            if decoded is not None:
                out.append((kind, decoded))
    if _HIDES in signs:
        out.extend(hidden_runs(text))
    if text[:1] in '{["' and text[-1:] in '}]"':
        out.extend(("json", inner) for inner in _json_strings(text))
    return out


# What the dearer decoders ask for, asked of a text in one pass.
_HIDES, _QUOTES, _CODES, _SPELLS = range(4)
_RARE: Final = one_of(HIDES, QUOTES, r"(?i)(?:chr|char|fromcharcode)\s*\(\s*\d{2}", SPELLS)
_DECODERS: Final[tuple[tuple[int | None, str, Callable[[str], str | None]], ...]] = (
    (None, "percent", percent),
    (None, "form", form),
    (None, "entities", entities),
    (None, "escapes", escapes),
    (None, "sql-comments", sql_comments),
    (None, "base64", padded),
    (_QUOTES, "shell", unquote_shell),
    (None, "shell", uncaret),
    (_CODES, "codes", character_codes),
    (_SPELLS, "spelled", spelled_out),
)


def _json_strings(text: str) -> list[str]:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return []
    found: list[str] = []
    stack = [value]
    while stack and len(found) < _JSON_STRINGS:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found
