"""What is shown by right alone: the texts that findings call private, masked wherever a page would show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from aegis.core.masking import mask
from aegis.core.pointer import resolve
from aegis.rules.scanner import Scanner

PRIVATE: Final = frozenset({"secret", "pii"})
LONGEST_SEARCHED: Final = 262_144  # characters of one value in which pieces are masked; a longer one is masked whole
_EMPTY: Final = frozenset({"", "null", "{}", "[]"})


def private_texts(findings: Sequence[Mapping[str, Any]], submitted: Any, scanner: Scanner) -> list[str]:
    """The private texts, longest first; `submitted` is what the findings point into.

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
    """How a value reads: text as it is, everything else as JSON; integers of any size keep their digits."""
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
    """The texts at and below a place."""
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
