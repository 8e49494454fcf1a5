"""Text that somebody else wrote, shown so that it reads as what it is.

Controls, characters that turn the direction of text, and letters that look like others are marked; everything
is escaped. What is shown is what an approval binds, so nothing is left out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
from markupsafe import Markup, escape
from msgspec import Struct

from aegis.core.json import resolve
from aegis.core.text import mask
from aegis.core.times import rfc3339
from aegis.detect.fold import ASCII, LOOKALIKES
from aegis.detect.rules.scanner import Scanner

# What is shown by right alone: the texts that findings call private, masked wherever a page would show them.

PRIVATE: Final = frozenset({"secret", "pii"})
LONGEST_SEARCHED: Final = 262_144  # characters of one value in which pieces are masked; a longer one is masked whole
_EMPTY: Final = frozenset({"", "null", "{}", "[]"})


def private_texts(findings: Sequence[Mapping[str, Any]], submitted: Any, scanner: Scanner) -> list[str]:
    """Return the private texts, longest first; `submitted` is what the findings point into.

    A finding keeps the beginning of one match, so its rule is asked for all of them. What was found behind an
    encoding does not stand in the value as it is: then the whole value is private.
    """
    texts: set[str] = set()
    for finding in findings:
        if finding["category"] in PRIVATE:
            for value in _values(submitted, finding["path"]):
                texts.update(_pieces(value, finding["rule"], scanner) or (value,))
    return sorted(texts - _EMPTY, key=len, reverse=True)


def covered(value: Any, hidden: Sequence[str]) -> Any:
    """`value` with the texts of `hidden` masked in every text and key of it."""
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, mask(secret))
        return value
    if isinstance(value, Mapping):
        return {covered(key, hidden): covered(item, hidden) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [covered(item, hidden) for item in value]
    return value


def as_text(value: Any) -> str:
    """Return how a value reads: text as it is, everything else as JSON; integers of any size keep their digits."""
    if isinstance(value, str):
        return value
    wide = isinstance(value, int) and not -(2**63) <= value < 2**64
    return str(value) if wide else orjson.dumps(value).decode()


def _pieces(value: str, rule_id: str, scanner: Scanner) -> set[str]:
    rule = scanner.rules.by_id.get(rule_id)
    if rule is None or len(value) > LONGEST_SEARCHED:
        return set()
    return {value[start:end] for start, end in scanner.spans(rule, value)}


def _values(root: Any, pointer: str) -> Iterator[str]:
    """Return the texts at and below a place."""
    try:
        waiting = [resolve(root, pointer)]
    except (LookupError, ValueError, TypeError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        else:
            yield as_text(value)


# The words and numbers of the pages.


class _Words(Struct, frozen=True):
    """What pages call the closed words of receipts and approvals; `by` says of which actions the doer is named."""

    outcomes: dict[str, str]
    states: dict[str, str]
    effects: dict[str, str]
    reasons: dict[str, str]
    awaited: dict[str, str]
    said: dict[str, dict[str, str]]
    by: dict[str, frozenset[str]]


_WORDS: Final = msgspec.json.decode(Path(__file__).with_name("words.json").read_bytes(), type=_Words)
_ROWS: Final = {"insert": ("inserts", "into"), "update": ("updates", "of"), "delete": ("deletes", "of")}


def evidence(awaited: Sequence[str]) -> str:
    """Say in words what a deferred call waits for."""
    parts = (word.partition(":") for word in awaited)
    return ", ".join(_WORDS.awaited.get(kind, kind).format(name or "as a whole") for kind, _, name in parts)


def outcome(word: str) -> str:
    """Return what an outcome is called on a page."""
    return _WORDS.outcomes.get(word, word)


def state(word: str) -> str:
    """Return what the state of an approval is called."""
    return _WORDS.states.get(word, word)


def reason(word: str) -> str:
    """Return what a reason is called."""
    return _WORDS.reasons.get(word, word.replace("_", " "))


def effects(names: Sequence[str]) -> str:
    """Return what a call does, in one phrase."""
    return ", ".join(_WORDS.effects.get(name, name) for name in names)


def rules(guards: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rules that a receipt's guards found broken."""
    return sorted({rule for guard in guards for rule in guard.get("rules", ())})


def summary(receipt: Mapping[str, Any]) -> str:
    """Return one line about a receipt, without any value that an agent chose."""
    kind = receipt["kind"]
    if kind in ("decision", "result"):
        parts = [effects(receipt.get("effects", ())) or ("a result" if kind == "result" else "no known effect")]
        why = reason(receipt.get("reason", "none"))
        if why:
            parts.append(why)
        found = [rule for rule in rules(receipt.get("guards", ())) if rule != receipt.get("reason")]  # told above
        if found:
            parts.append(", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else ""))
        return " · ".join(parts)
    action = str(receipt.get("action", ""))
    said = _WORDS.said.get(kind, {}).get(action)
    if said is not None:
        return f"{said}, by {receipt['principal']}" if action in _WORDS.by.get(kind, ()) else said
    return f"{kind}: {action.replace('_', ' ')}" if action else str(kind)


def time(micros: int) -> str:
    """RFC 3339, which pages put into local time."""
    return rfc3339(micros)


def count(number: float) -> str:
    """Return a number with thin groups of three digits."""
    return f"{number:,.0f}".replace(",", "\u202f")


def many(number: int, one: str) -> str:
    """Return how many of what."""
    return f"{count(number)} {one}{'' if number == 1 else 's'}"


def rows(table: str, touched: Mapping[str, int]) -> str:
    """Return what a statement did to the rows of one table, by the name of what it did."""
    return ", ".join(
        f"removes the table {table} with its {many(number, 'row')}"
        if word == "removed"
        else f"{_ROWS[word][0]} {many(number, 'row')} {_ROWS[word][1]} {table}"
        for word, number in touched.items()
    )


def micros(value: float | None) -> str:
    """Return a duration given in microseconds."""
    if value is None:
        return "–"
    if value < 1_000:
        return f"{value:.0f} µs"
    if value < 1_000_000:
        return f"{value / 1_000:.1f} ms".replace(".0 ", " ")
    return f"{value / 1_000_000:.1f} s"


def duration(seconds: float) -> str:
    """Return a span of time in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PLAIN: Final = frozenset("\n\t")
# Blank, and not the space that everybody expects.
_FILLERS: Final = frozenset(
    "\u115f\u1160\u3164\uffa0\u2800\u034f\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u202f\u205f\u3000"
)


@cache
def _lookalikes() -> dict[str, str]:
    return {char: seen for char, seen in zip(LOOKALIKES, ASCII, strict=True) if unicodedata.category(char)[0] == "L"}


def visible(value: object) -> Markup:
    """`value` as escaped HTML in which nothing is invisible."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return escape(text)
    marks = _lookalikes() if not _speaks_another_script(text) else {}
    parts: list[Markup] = []
    for char in text:
        if (char < "\u0080" and char.isprintable()) or char in _PLAIN:
            parts.append(escape(char))
        elif char in _FILLERS or unicodedata.category(char) in _HIDDEN or "\ufe00" <= char <= "\ufe0f":
            parts.append(_marked("hidden-char", char, f"U+{ord(char):04X}", unicodedata.name(char, "control")))
        elif char in marks:
            parts.append(_marked("lookalike", char, char, f"{unicodedata.name(char, '')}, looks like {marks[char]}"))
        else:
            parts.append(escape(char))
    return Markup("").join(parts)


def ticked(value: str) -> Markup:
    """Return a message of ours: what stands between backticks is somebody else's, and is shown as code."""
    parts = [visible(part) for part in value.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def hint(value: str) -> Markup:
    """Return a hint of an error as a sentence of a page."""
    whole = ticked(value[:1].upper() + value[1:])
    return whole if value.endswith((".", "?")) else whole + "."


def short(value: object, length: int = 80) -> str:
    """Return the beginning of a text for lists; whatever is decided about is shown whole elsewhere."""
    text = str(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def _speaks_another_script(text: str) -> bool:
    """Tell whether the text is mostly not Latin: Greek in a Greek sentence looks like nothing else."""
    letters = [char for char in text if char.isalpha()]
    return len(letters) > 0 and sum(char.isascii() for char in letters) * 2 < len(letters)


def _marked(name: str, char: str, shown: str, told: str) -> Markup:
    title = f"U+{ord(char):04X} {told}".strip()
    return Markup('<span class="{}" title="{}">{}</span>').format(name, title, shown)
