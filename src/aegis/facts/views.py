"""The other readings of a string: what decoders, shells and readers make of it, to a bounded depth.

Most strings are short plain words and have none; a few cheap tests say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
import re2

from aegis.facts.decode import (
    character_codes,
    entities,
    escapes,
    form,
    hidden_runs,
    may_be_encoded,
    percent,
    spelled_out,
    sql_comments,
)
from aegis.facts.fold import skeleton, tag_text
from aegis.facts.unquote import uncaret, unquote_shell

MAX_VIEW_INPUT: Final = 16_384  # characters of a string that are decoded: of longer ones both ends
MAX_VIEWS: Final = 24  # views of one string: bounds what nested encodings can cost
MAX_ROUNDS: Final = 4  # decoders applied in a row
MAX_TOTAL: Final = 262_144  # characters of all views of one value
_JSON_STRINGS: Final = 64
_LEAST_ENCODED: Final = 13
_LEAST_RUN: Final = 12
_LEAST_PAIRS: Final = 7  # of the eight in a row that `_RUN` asks for, the first may stand at the end of a word
_RUN: Final = re2.compile(
    r"[A-Za-z0-9+/_-]{16,}|[A-Za-z0-9+/_-]{12,}=|[01]{8}[ ,][01]{8}|(?:[0-9a-fA-F]{2}[ :]){8}"
    r"|(?:\\x[0-9a-fA-F]{2}){6}"
)

_RUN_CHARS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_OUTSIDE_RUNS: Final = {code: " " for code in range(128) if chr(code) not in _RUN_CHARS}

Reading = tuple[str, tuple[str, ...]]


def views_of(text: str) -> list[Reading]:
    """Every different reading of `text`, each with the decoders that lead to it; the text itself excluded."""
    if text.isascii():
        if not _may_differ(text) and not _hides_runs(text):
            return []
    else:
        text = text.encode("utf-8", "replace").decode()
    if len(text) > MAX_VIEW_INPUT:
        half = MAX_VIEW_INPUT // 2
        return _expand(f"{text[:half]}\n{text[-half:]}")
    return _expand(text)


def may_have_views(texts: Sequence[str], together: str) -> bool:
    """Whether any of `texts` can have another reading; `together` holds all of them. Most calls have none."""
    if not together.isascii() or "+" in together or _has_signs(together):
        return True
    for text in texts:  # noqa: SIM110 - a generator takes three times as long, on every call
        if len(text) >= _LEAST_ENCODED and (_is_spelled(text) or _hides_runs(text)):
            return True
    return False


def _may_differ(text: str) -> bool:
    if _has_signs(text) or ("+" in text and " " not in text):
        return True
    return len(text) >= _LEAST_ENCODED and _is_spelled(text)


def _has_signs(text: str) -> bool:
    if "%" in text or "\\" in text or "&" in text or "/*" in text or "0x" in text or "$" in text or "''" in text:
        return True
    return '"' in text or "^" in text or "{" in text


def _is_spelled(text: str) -> bool:
    """Whether so many signs stand apart that words may be spelled letter by letter."""
    least = len(text) * 2
    return len(text.split()) * 5 > least or text.count(".") * 5 > least or text.count("-") * 5 > least


def _hides_runs(text: str) -> bool:
    """Whether something that looks encoded in a plain text decodes to a text; a long path only looks so."""
    if len(text) < _LEAST_ENCODED:
        return False
    words = text.translate(_OUTSIDE_RUNS).split()
    lengths = list(map(len, words))
    longest = max(lengths, default=0)
    if longest >= _LEAST_RUN:
        for word in words:
            if len(word) >= _LEAST_RUN and may_be_encoded(word):
                return True
    # Bits and pairs of hex digits stand apart.
    pairs, octets = lengths.count(2), lengths.count(8)
    if pairs + octets < 2 or (longest < _LEAST_RUN and pairs < _LEAST_PAIRS and "0" not in text and "1" not in text):
        return False
    return _RUN.search(text) is not None


def _expand(text: str) -> list[Reading]:
    seen = {text}
    found: list[Reading] = []
    total = 0
    frontier: list[Reading] = [(text, ())]
    for _ in range(MAX_ROUNDS):
        following: list[Reading] = []
        for value, kinds in frontier:
            for kind, decoded in _once(value):
                if decoded in seen or not decoded:
                    continue
                seen.add(decoded)
                total += len(decoded)
                if len(found) >= MAX_VIEWS or total > MAX_TOTAL:
                    return found
                reading = (decoded, (*kinds, kind))
                found.append(reading)
                following.append(reading)
        if not following:
            break
        frontier = following
    return found


def _once(text: str) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if not text.isascii():
        out.append(("unicode", skeleton(text)))
        hidden = tag_text(text)
        if hidden:
            out.append(("tags", hidden))
    for kind, decoder in _DECODERS:
        decoded = decoder(text)
        if decoded is not None:
            out.append((kind, decoded))
    if len(text) >= 13:
        out.extend(hidden_runs(text))
    if text[:1] in '{["' and text[-1:] in '}]"':
        out.extend(("json", inner) for inner in _json_strings(text))
    return out


_DECODERS: Final[tuple[tuple[str, Callable[[str], str | None]], ...]] = (
    ("percent", percent),
    ("form", form),
    ("entities", entities),
    ("escapes", escapes),
    ("sql-comments", sql_comments),
    ("shell", unquote_shell),
    ("shell", uncaret),
    ("codes", character_codes),
    ("spelled", spelled_out),
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
