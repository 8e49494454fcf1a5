"""Whether the user named the document that a call reads: by what chooses it, or by the words of the tool's name.

Apart from the guard, as it is asked where results are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aegis.policy.dataflow.declare import name_words
from aegis.policy.dataflow.forms import shape_of
from aegis.policy.dataflow.reading import INSTRUCTION, NAMED, STRUCTURED, TRUSTED, SessionView, is_field, record_of
from aegis.policy.dataflow.values import normalise
from aegis.policy.dataflow.words import TrustedWords, root, same_things, stem

_MAX_TEXTS: Final = 64  # of one call's arguments

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
    texts = _texts(arguments)
    things = [word for word in name_words(tool) if word not in _EMPTY]
    told = [root(word) in words.roots or not same_things((word,)).isdisjoint(said) for word in things]
    if texts:
        return any(words.covers(text) or _mostly(text, said) for text in texts) or (len(told) > 1 and all(told))
    return any(told)


def is_reached(view: SessionView, arguments: Mapping[str, Any]) -> bool:
    """Whether a document is chosen by what a field of one that the user named holds: the only record, or his own.

    Of several records his is the one in which a name stands that he said; what people wrote chooses nothing.
    """
    return view.words is not None and any(_leads(view, view.words, text) for text in _texts(arguments))


def _leads(view: SessionView, words: TrustedWords, text: str) -> bool:
    origins = view.origins("t", normalise("text", text))
    if (
        view.saturated
        or not shape_of(text)
        or not origins
        or any(one.flags & INSTRUCTION or not is_field(one) for one in origins)
    ):
        return False
    named = [one for one in origins if one.flags & NAMED]
    if any(one.document not in view.lists for one in named):
        return True
    records = {(one.document, record_of(one.path)) for one in named}
    return any(
        (one.document, record_of(one.path)) in records and one.flags & (STRUCTURED | TRUSTED)
        for name in words.names
        for one in view.origins("t", name)
    )


def _texts(arguments: Mapping[str, Any]) -> list[str]:
    return [
        one
        for value in arguments.values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str) and one.strip()
    ][:_MAX_TEXTS]


def _mostly(text: str, said: frozenset[str]) -> bool:
    plain = text[:1_000].casefold()
    for sign in "._-/":
        plain = plain.replace(sign, " ")
    parts = [part for part in plain.split() if len(part) > 2]
    return bool(parts) and sum(part in said or stem(part) in said for part in parts) * 3 >= 2 * len(parts)
