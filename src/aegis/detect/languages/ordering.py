"""Lists in the order of their items, and what comes first or last in it, by what a call says is compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import LAMBDAS
from aegis.detect.languages.calls import Makes
from aegis.detect.languages.computed import signs_of
from aegis.detect.languages.followed import UNKNOWN, FollowedValue, union
from aegis.detect.languages.numeric import Values, number_of
from aegis.detect.languages.syntax import text_of

ORDERS: Final[frozenset[Makes]] = frozenset({"sorted", "sorted-down", "least", "greatest"})
_FUNCTIONS: Final = LAMBDAS | {"keyword_argument", "named_argument", "pair", "block_argument"}
_LONGEST: Final = 200
_WORD: Final = Lazy(r"\w+")
_BY_LENGTH: Final = Lazy(r"(?i)\b(?:len|length|size|count|strlen|nchar|bytesize)\b")
_DOWN: Final = Lazy(
    r"(?i)\breverse(?:Order|d)?(?:\s*=\s*t|[()]|$)|\bdecreasing\s*=\s*T|\brev\s*=\s*true|[:{>|(]\s*-\s*\w"
)
_GREATER: Final = Lazy(r"[^=<-]>")
# What stands in such functions besides the names of what they compare.
_BESIDE: Final = Lazy(
    r"(?i)\b(?:len|length|size|count|strlen|nchar|bytesize|lambda|key|reverse\w*|true|decreasing|return|function|my|by|"
    r"in|cmp|localeCompare|compareTo|compare|String|str|Comparator|naturalOrder|comparing\w*|Int|Ordering|fn|func|it)\b"
)


def in_order(every: Values, *, by_length: bool = False, down: bool = False) -> FollowedValue:
    """The items of a list in their order: numbers by their size, texts by their signs or their length."""
    first = every[0] if every else UNKNOWN
    items = signs_of([first]).items
    if any(len(item.texts) != 1 or item.items for item in items):
        return first
    numbers = [number_of(item) for item in items]
    if by_length:
        keys: list[tuple[int, str]] = [(len(item.texts[0]), "") for item in items]
    elif None not in numbers and any(item.number for item in items):
        keys = [(number or 0, "") for number in numbers]
    else:
        keys = [(0, item.texts[0]) for item in items]
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=down)
    return FollowedValue((), tuple(items[at] for at in order)) if items else first


def ordered(makes: Makes, every: Values, given: Sequence[Node]) -> FollowedValue:
    """A list by its order, or what is first or last in it; as it is where another order is said."""
    texts = [(one.type, text_of(one)[:_LONGEST]) for one in given]
    told = [text for kind, text in texts if kind in _FUNCTIONS] or [
        text for _, text in texts if _BY_LENGTH.search(text)
    ]
    written = " ".join(told)
    listed = every[0] if len(every) == 1 or (every and every[0].items) else FollowedValue((), tuple(every))
    words = _WORD.findall(_BESIDE.sub(" ", written))
    sorts = makes in ("sorted", "sorted-down")
    down = (makes == "sorted-down") is not (_DOWN.search(written) is not None)
    compared = sorted(set(words))
    if len(compared) > 2:
        return listed if sorts else union(listed.items)
    if len(compared) == 2:  # `(a, b) => b.length - a.length`, `{ $b cmp $a }`
        turned = words[-2:] == words[1::-1] if len(words) > 2 else words == compared[::-1]
        down = down is not (turned is not (sorts and _GREATER.search(written) is not None))
    found = in_order([listed], by_length=_BY_LENGTH.search(written) is not None, down=down)
    return found if sorts or not found.items else found.items[0 if makes == "least" else -1]
