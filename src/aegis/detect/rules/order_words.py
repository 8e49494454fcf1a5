"""The words of orders, in many languages, and what a text says by them: deeds, objects, and what is bidden.

Words are data (`data/orders`); what a clause makes of them is here: a deed that it forbids is not asked for, and one
that opens it, or that somebody has to do, is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import re2
import yaml

from aegis.core.json import convert
from aegis.core.patterns import Lazy
from aegis.core.shipped import missing, shipped_folder
from aegis.detect.rules.cache import default_cache_folder, load_files
from aegis.errors import ConfigError, Problem

_FORBIDDEN_WITHIN: Final = 28  # characters before a deed in which it is forbidden
_MOST_DEEDS: Final = 12  # of a window that are looked at for one that is bidden
_BID_WITHIN: Final = 120  # bytes of its clause around a deed that say whether it is bidden
_MEMORY: Final = 33_554_432  # bytes that one compiled expression may take
_FREE: Final = frozenset({"calling", "forbidden", "place", "amount"})  # kinds whose expressions bound themselves
# Languages whose verbs stand at the end forbid there.
_FORBIDDEN_BEHIND: Final = Lazy(
    r"[^。、，\n]{0,14}(?:てはな|てはいけ|ではな|しないこと|べきでは|면 안|지 ?(?:않|마|말)|नहीं|मत )".encode()
)
BIDS: Final = "bids"  # a kind of grammar and not of words: that a deed is bidden
DEEDS: Final = ("serious", "deed")
_SAID_BY_NO: Final = frozenset(
    {"secrecy", "hush", "comply", "reset", "unbound"}
)  # kinds that say themselves what not to do
_NEGATED: Final = Lazy(rb"(?i)^.?\s*(?:not|never|nicht|niemals|pas|jamais|niet)\b")
CLAUSE: Final = Lazy(r"[.!?;:,\n]|。|！|？|，|、".encode())


class PartsOfOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of what an order that addresses nobody is made: where it is looked for, what it needs, what each part weighs."""

    anchors: tuple[str, ...]
    least: int
    needs: tuple[str, ...]
    weights: Mapping[str, int]
    looks_back: bool = False  # whether the sentence before counts as well
    counts_as: Mapping[str, str] = {}  # kinds that are others said more plainly, and weigh once together


class OrderWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of words: expressions by what they say and by language, and what each of them weighs."""

    about: str
    least: int
    needs: tuple[str, ...]
    weights: Mapping[str, int]
    readings: Mapping[str, PartsOfOrder]
    words: Mapping[str, Mapping[str, tuple[str, ...]]]


def read_words(name: str, text: str) -> OrderWords:
    """One file of words, checked; raises `ConfigError` for members that are unknown, missing or of another type."""
    try:
        return convert(yaml.safe_load(text), OrderWords)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError((Problem(message=f"the words of orders cannot be read: {error}", file=name),)) from error


@cache
def order_words() -> OrderWords:
    """The words that ship."""
    folder = shipped_folder("data/orders")
    files = load_files(folder, "order-words", Path(__file__), OrderWords, read_words, cache=default_cache_folder())
    if len(files) != 1:
        raise missing("data/orders")
    return files[0]


_FIRST: Final = Lazy(r"^\(\?:([^()|]+)\|([^()|]+)\)")
_CLASSES: Final = Lazy(r"\[(?:\\.|[^\]\\])*\]|(?:\\.|[^\[\\])+")
_ALPHABETS: Final = 0x590  # letters before this one are of alphabets whose words stand between spaces


def pattern_of(kind: str, *, bounded: bool = True) -> str:
    """One expression for the words of a kind, in all languages; `bounded` ones begin and end as words do."""
    plain: list[str] = []
    accented: list[str] = []
    other: list[str] = []
    for word in (_spaced(word) for words in order_words().words[kind].values() for word in words):
        choice = _FIRST.match(word)
        for one in [word] if choice is None else [f"{choice.group(at)}{word[choice.end() :]}" for at in (1, 2)]:
            one = one if bounded else _opening(one)
            letter = one.lstrip("(?:")[:1]
            if not bounded or kind in _FREE or not letter.isalpha() or ord(letter) >= _ALPHABETS:
                other.append(one)
            else:
                (plain if letter.isascii() else accented).append(one)
    parts = [rf"\b(?:{'|'.join(sorted(plain, key=len, reverse=True))})(?:\b|$|[\s.,;:!?])"] if plain else []
    parts += [rf"(?:^|[\s\"'(\[«„—-])(?:{'|'.join(accented)})(?:$|[\s.,;:!?)])"] if accented else []
    return "|".join([*parts, *other])


def _spaced(word: str) -> str:
    """An expression whose blanks match as lines are broken, and no end of a paragraph: not those in classes."""
    return "".join(piece if piece[:1] == "[" else piece.replace(" ", r"\s[ \t]*") for piece in _CLASSES.findall(word))


def _opening(word: str) -> str:
    """What a word begins with, up to where anything may follow: an automaton of many gaps takes seconds to compile."""
    cut = min((at for gap in ("[^", ".{") if (at := word.find(gap)) > 0), default=len(word))
    opening = word[:cut].rstrip()
    return opening if opening and opening.count("(") == opening.count(")") else word


@cache
def compiled(*kinds: str) -> Any:
    return expression("|".join(pattern_of(kind) for kind in kinds))


def expression(pattern: str, *, captures: bool = False) -> Any:
    """A pattern over bytes without regard to case, in the memory that the words of many languages take."""
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = not captures
    options.log_errors = False
    options.max_mem = _MEMORY
    return re2.compile(pattern.encode(), options)


def expanded(pattern: str) -> str:
    """The expression that `<kind>` stands for in a rule, where an engine tries it; any other pattern as it is."""
    kind = pattern[1:-1]
    known = kind in order_words().words and pattern == f"<{kind}>"
    return pattern_of(kind, bounded=False) if known else pattern


def _any_of(*kinds: str) -> str:
    return "|".join(word for kind in kinds for words in order_words().words[kind].values() for word in words)


@cache
def _leading() -> Any:
    """What stands before a bidden deed in its clause: nothing, or what leads to it."""
    return expression(rf"^[\s\d\W_]*(?:(?:{_any_of('leading')})[\s,:]+)*$")


@cache
def _joining() -> Any:
    """What joins a deed to the one before."""
    return expression(rf"\s(?:{_any_of('joining')})\s+(?:(?:{_any_of('leading')})\s+)*$")


@cache
def _opens_with_verb() -> Any:
    """A clause that opens with a word and its object, as an order does whatever its verb is: `waive the deposit`."""
    led, objects = _any_of("leading"), _any_of("objects")
    return expression(
        rf"(?:^|[.!?;:,(\[>\n\"]|。)[\s\d*#_-]*(?:(?:{led})[\s,:]+)*([a-z\p{{L}}-]{{2,16}})\s+(?:{objects})\s",
        captures=True,
    )


@cache
def function_word() -> Any:
    """A word that opens a clause and is no verb in the mood of an order: of a closed class, or by its ending."""
    return expression(rf"^(?:{_any_of('function')})$")


def says(kind: str, text: bytes) -> bool:
    """Whether something is said in a text, and not forbidden in the same clause."""
    return _bids(text) if kind == BIDS else next(_said(kind, text), None) is not None


@lru_cache(maxsize=16)
def _bids(text: bytes) -> bool:
    """Whether something is bidden: a duty, a deed that opens its clause, or any verb that does with its object."""
    return (
        any(_NEGATED.match(text[match.end() - 1 :]) is None for match in _said("duty", text))
        or any(function_word().match(match.group(1)) is None for match in _opens_with_verb().finditer(text))
        or any(
            is_bidden(text, match.start())
            for deed in DEEDS
            for match in islice(compiled(deed).finditer(text), _MOST_DEEDS)
        )
    )


def says_any(kinds: Sequence[str], text: bytes) -> bool:
    """Whether something of one of these kinds is said."""
    return any(says(kind, text) for kind in kinds)


def _said(kind: str, text: bytes) -> Iterator[Any]:
    """Everywhere that something is said in a text and not forbidden in the same clause."""
    for match in compiled(kind).finditer(text):
        clause = CLAUSE.split(text[max(0, match.start() - _FORBIDDEN_WITHIN) : match.start()])[-1]
        if clause and compiled("forbidden").search(clause) is not None:
            continue
        if kind not in _SAID_BY_NO and _FORBIDDEN_BEHIND.match(text[match.end() : match.end() + _FORBIDDEN_WITHIN]):
            continue
        yield match


def is_bidden(text: bytes, start: int) -> bool:
    """Whether a deed opens its clause, behind nothing but what leads to it, or is joined to one that does."""
    clause = CLAUSE.split(text[max(0, start - _BID_WITHIN) : start])[-1]
    if _leading().match(clause) is not None:
        return True
    joined = _joining().search(clause)
    first = None if joined is None else compiled(*DEEDS).search(clause[: joined.start() + 1])
    return first is not None and _leading().match(clause[: first.start()]) is not None


def words_for(kinds: Sequence[str]) -> tuple[str, ...]:
    """The kinds whose words tell where one of `kinds` may be said."""
    return tuple(word for kind in kinds for word in ((*DEEDS, "duty") if kind == BIDS else (kind,)))
