"""What names of arguments say about narrowing; a name that says nothing lets nothing change."""

from __future__ import annotations

from typing import Final

from aegis.facts.lexicon import words_of
from aegis.facts.roles import argument_of

# Less of it is less of an effect.
_AMOUNTS: Final = frozenset(
    {"amount", "amounts", "quantity", "qty", "count", "limit", "max", "maximum", "total", "sum", "units", "shares"}
)
# A smaller number is another thing, or more of an effect: `min_amount`, `account_total`, `max_age`.
_OTHERWISE: Final = frozenset({
    "account", "after", "age", "before", "code", "days", "delay", "discount", "hours", "id", "ids", "index", "interval",
    "keep", "min", "minimum", "newer", "no", "number", "offset", "older", "page", "phone", "port", "price", "rate",
    "reserve", "retention", "timeout", "ttl", "version",
})  # fmt: skip
# Every tool that has them can do without them.
_EXTRAS: Final = frozenset({"cc", "bcc", "attachment", "attachments"})
# A list of these holds something back, or gives an order to things: with fewer members it lets more happen.
_HOLDS_BACK: Final = frozenset({
    "allow", "allowed", "and", "avoid", "block", "condition", "conditions", "criteria", "deny", "except", "exclude",
    "excluded", "excludes", "exclusions", "filter", "filters", "flags", "forbid", "ignore", "ignored", "keep", "not",
    "omit", "only", "options", "preserve", "range", "required", "requires", "skip", "unless", "where", "without",
})  # fmt: skip
_PROSE: Final = frozenset({
    "answer", "body", "caption", "comment", "description", "feedback", "memo", "message", "note", "notes", "reason",
    "remark", "reply", "subject", "summary", "text", "title",
})  # fmt: skip


def is_amount(pointer: str) -> bool:
    """Whether less of the number at `pointer` is less of an effect."""
    words = _words(pointer)
    return bool(words & _AMOUNTS) and not words & _OTHERWISE


def is_extra(pointer: str) -> bool:
    """Whether the member at `pointer` is a copy or an enclosure, which every tool can do without."""
    return bool(_words(pointer) & _EXTRAS)


def holds_back(pointer: str) -> bool:
    """Whether the list at `pointer` may be what keeps the call from doing more."""
    return bool(_words(pointer) & _HOLDS_BACK)


def is_prose(pointer: str) -> bool:
    """Whether the text at `pointer` is for people to read."""
    return bool(_words(pointer) & _PROSE)


def _words(pointer: str) -> frozenset[str]:
    return frozenset(words_of(argument_of(pointer)))
