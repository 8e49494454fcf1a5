"""The bounded walk over keys and values: what goes over a bound is a finding and ends the walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from aegis.core.finding import Finding
from aegis.core.json import escape
from aegis.core.outcome import Outcome, Risk
from aegis.detect.facts import ReadLimits, Text, Texts

# Numbers of at least this size are read as text too: addresses, card and account numbers.
SMALLEST_TEXT_NUMBER: Final = 100_000
LARGEST_TEXT_NUMBER: Final = 10**40  # turning digits into text is quadratic

MOST_POINTERS: Final = 8_388_608  # characters of all pointers: a long key stands again before each thing below it

Raw = tuple[str, str, bool]


def extract(value: Any, limits: ReadLimits, *, unresolved: Sequence[str] = ()) -> Texts:
    """Every string of a JSON value, keys included, in document order.

    Numbers of six digits and more count as text. Beyond `limits` the walk stops and
    `Texts.limits` holds one finding of category `resource_limit` with outcome `block`.
    """
    raw, total, findings = walk(value, limits)
    return Texts(
        strings=tuple([Text(path, text, is_key) for path, text, is_key in raw]),
        total_bytes=total,
        limits=findings,
        unresolved=tuple(unresolved),
    )


def walk(value: Any, limits: ReadLimits) -> tuple[list[Raw], int, tuple[Finding, ...]]:
    """The strings of `extract` as plain tuples (pointer, text, is key), with their bytes and limit findings."""
    out: list[Raw] = []
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    total = pointers = 0
    max_strings, max_bytes, max_depth = limits.max_strings, limits.max_bytes, limits.max_depth
    while stack:
        path, item, depth = stack.pop()
        kind = type(item)
        if kind is dict or kind is list or kind is tuple:
            pointers += (len(path) + 1) * len(item)
            if pointers > MOST_POINTERS:
                return out, total, (exceeded("bytes", ""),)
        if kind is str:
            if not item.isascii():
                item, size = readable(item)
                total += size
            else:
                total += len(item)
            out.append((path, item, False))
        elif kind is dict:
            if depth >= max_depth:
                return out, total, (exceeded("depth", path),)
            pending: list[tuple[str, Any, int]] = []
            for key, inner in item.items():
                at = f"{path}/{key}" if "/" not in key and "~" not in key else f"{path}/{escape(key)}"
                if key.isascii():
                    total += len(key)
                    out.append((at, key, True))
                else:
                    shown, size = readable(key)
                    total += size
                    out.append((at, shown, True))
                if total > max_bytes or len(out) > max_strings:
                    break
                pending.append((at, inner, depth + 1))
            # The plain texts in front of anything else are taken here; most calls hold nothing else.
            taken = 0
            for at, inner, _ in pending:
                if type(inner) is not str or not inner.isascii():
                    break
                if total + len(inner) > max_bytes or len(out) >= max_strings:
                    break
                total += len(inner)
                out.append((at, inner, False))
                taken += 1
            if taken < len(pending):
                del pending[:taken]
                pending.reverse()
                stack.extend(pending)
        elif kind is list or kind is tuple:
            if depth >= max_depth:
                return out, total, (exceeded("depth", path),)
            if len(item) > max_strings:
                return out, total, (exceeded("strings", path),)
            taken = 0
            for inner in item:
                if type(inner) is not str or not inner.isascii():
                    break
                if total + len(inner) > max_bytes or len(out) >= max_strings:
                    break
                total += len(inner)
                out.append((f"{path}/{taken}", inner, False))
                taken += 1
            if taken < len(item):
                stack.extend(
                    [(f"{path}/{index}", item[index], depth + 1) for index in range(len(item) - 1, taken - 1, -1)]
                )
        elif kind is int and not -SMALLEST_TEXT_NUMBER < item < SMALLEST_TEXT_NUMBER:
            if not -LARGEST_TEXT_NUMBER < item < LARGEST_TEXT_NUMBER:
                return out, total, (exceeded("bytes", path),)
            digits = str(item)
            total += len(digits)
            out.append((path, digits, False))
        if total > max_bytes:
            return out, total, (exceeded("bytes", path),)
        if len(out) > max_strings or len(stack) > max_strings:
            return out, total, (exceeded("strings", path),)
    return out, total, ()


def readable(text: str) -> tuple[str, int]:
    """Return a text and its bytes; a lone surrogate, which no parser downstream takes, becomes `?`."""
    try:
        return text, len(text.encode())
    except UnicodeEncodeError:
        data = text.encode("utf-8", "replace")
        return data.decode(), len(data)


def well_formed(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments, within the bounds of `walk`, whose texts every parser takes: the same ones where they do."""
    try:
        orjson.dumps(arguments)
    except TypeError:  # a lone surrogate, a number beyond 64 bits
        return {readable(name)[0]: _well_formed(value) for name, value in arguments.items()}
    return arguments


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return readable(value)[0]
    if isinstance(value, Mapping):
        return {readable(name)[0]: _well_formed(inner) for name, inner in value.items()}
    return [_well_formed(one) for one in value] if isinstance(value, (list, tuple)) else value


def exceeded(bound: str, path: str) -> Finding:
    """The finding that refuses a value beyond one bound."""
    return Finding(
        guard="limits",
        rule=f"limit-{bound}",
        category="resource_limit",
        severity=Risk.HIGH,
        outcome=Outcome.BLOCK,
        path=path,
        message=f"the value goes beyond the limit of {bound}, so the rest of it was not read",
    )
