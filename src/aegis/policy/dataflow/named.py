"""Whether the user named the document that a call reads: by what chooses it, or by the words of the tool's name.

Apart from the guard, as it is asked where results are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aegis.policy.dataflow.declare import name_words
from aegis.policy.dataflow.words import TrustedWords, same_things, stem

# Words of tools' names that name no thing.
_EMPTY: Final = frozenset({
    "get", "read", "list", "search", "find", "by", "all", "in", "the", "of", "for", "from", "most", "recent", "fetch",
    "info", "information", "data", "name", "id", "query",
})  # fmt: skip


def is_named(words: TrustedWords | None, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a text argument is in the user's words, or where none chooses, what the tool's name says it reads."""
    if words is None:
        return False
    said = words.said
    texts = [
        one
        for value in arguments.values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str) and one.strip()
    ]
    if texts:
        return any(words.covers(text) or _mostly(text, said) for text in texts[:64])
    things = [word for word in name_words(tool) if word not in _EMPTY]
    return any(word in said or stem(word) in said or not same_things((word,)).isdisjoint(said) for word in things)


def _mostly(text: str, said: frozenset[str]) -> bool:
    plain = text[:1_000].casefold()
    for sign in "._-/":
        plain = plain.replace(sign, " ")
    parts = [part for part in plain.split() if len(part) > 2]
    return bool(parts) and sum(part in said or stem(part) in said for part in parts) * 3 >= 2 * len(parts)
