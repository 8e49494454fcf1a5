"""Whether a text orders a model about: who is addressed, the deed that is asked, its object, and what is hidden.

Words are data (`data/orders`), in many languages. A text is looked at around each word that addresses a reader, sets
aside what he was told, or hides something from the person he works for; what stands close to it is added up. Work is
linear: every window is read once, and the words beside a window are few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import re2
import yaml

from aegis.core.patterns import Lazy
from aegis.detect.rules.cache import default_cache_folder, load_files
from aegis.errors import ConfigError, Problem

_BEFORE: Final = 200  # bytes of a window before the word that it is about, and behind it
_AFTER: Final = 320
_STEP: Final = 24  # bytes behind a word within which another one makes no window of its own
_CALLED_WITHIN: Final = 24  # characters before a reader in which a greeting calls him
_FORBIDDEN_WITHIN: Final = 28  # characters before a deed in which it is forbidden
_CALLED_FAR: Final = 60  # ... and behind him in which a comma or a colon does
_TOLD_WITHIN: Final = 100  # characters before a reader in which it is said that an order is only spoken of
_MEMORY: Final = 33_554_432  # bytes that one compiled expression may take
_SURE: Final = 2  # weight beyond the least from which an order is sure
MOST_WINDOWS: Final = 1_000  # windows with a deed in one text; a text of more is taken for an order
_MOST_PARTS: Final = 250  # the same, with the parts of an order that addresses nobody
_ADDRESSED: Final = ("machine", "helper", "actor", "secrecy", "reset")
ANCHORS: Final = (*_ADDRESSED, "private", "unbound", "innards", "remote")
_READERS: Final = _ADDRESSED[:3]
_BESIDE: Final = (
    "duty",
    "thing",
    "place",
    "amount",
    "steer",
    "tells",
    "secrecy",
    "hush",
    "person",
    "reset",
    "whole",
    "beforehand",
)
_OF_WORTH: Final = frozenset({"thing", "place", "amount", "steer", "tells", "secrecy"})
_MEANT: Final = frozenset({"called", "hailed", "reading", "secrecy", "beforehand"})  # why a text speaks to its reader
_OF_A_MACHINE: Final = frozenset(
    {"serious", "place", "amount", "steer", "tells", "secrecy", "hush", "reading", "beforehand", "reset", "person"}
)
_END: Final = Lazy(r"[.!?](?:\s|$)|。|！|？|\n\s*(?:[-*#>|]|\d+[.)])\s?|\n\s*\n".encode())
_FREE: Final = frozenset({"calling", "forbidden", "place", "amount"})  # kinds whose expressions bound themselves
_BOUNDS: Final = frozenset(b" \t\n.,;:!?)"[at : at + 1] for at in range(10))  # what ends a word, and is none of it
_OF_A_NAME: Final = (
    b"/",
    b"@",
    b"_",
    b"=",
    b".",
    b"~",
    b"-",
    b"$",
    b"\\",
)  # beside a word that is part of a path or a name
_HANDLE: Final = Lazy(rb"(?:^|[\s(])@$")  # `@assistant`
_UTTERED: Final = Lazy(rb"[\"\[(<>;]|:\s|,\"")  # where a cell, a remark in brackets or a line of a talk begins
# Languages whose verbs stand at the end forbid there.
_FORBIDDEN_BEHIND: Final = Lazy(
    r"[^。、，\n]{0,14}(?:てはな|てはいけ|ではな|しないこと|べきでは|면 안|지 ?(?:않|마|말)|नहीं|मत )".encode()
)
_SAID_BY_NO: Final = frozenset(
    {"secrecy", "hush", "comply", "reset", "unbound"}
)  # kinds that say themselves what not to do
_SPEAKERS: Final = Lazy(rb"(?i)\b(?:customer|user|caller|client|guest|patient|kund(?:e|in)|cliente|visitor)\s?:\s")
_BLANKS: Final = Lazy(rb"[ \t]{2,}")
_SENT_TO: Final = Lazy(
    rb"(?i)^(?:the )?\w+ (?:to|for|of)\b"
)  # `messages to the model` speaks of him, or calls him with a colon
_HYPHENED: Final = Lazy(rb"[^\s\"(<>]*-$")
_CLAUSE: Final = Lazy(r"[.!?;:,\n]|。|！|？|，|、".encode())
_OPENING: Final = b" \t\r\n-*#>/<!\"'()[]:;,.|`_"


class Span(NamedTuple):
    """Where an order stands, in bytes; one that is not `sure` has just enough of its parts."""

    start: int
    end: int
    sure: bool


class PartsOfOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of what an order that addresses nobody is made: where it is looked for, what it needs, what each part weighs."""

    anchors: tuple[str, ...]
    least: int
    needs: tuple[str, ...]
    weights: Mapping[str, int]


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
        return msgspec.convert(yaml.safe_load(text), OrderWords)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError((Problem(message=f"the words of orders cannot be read: {error}", file=name),)) from error


@cache
def order_words() -> OrderWords:
    """The words that ship."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_data" / "orders", package.parent.parent / "data" / "orders"):
        if folder.is_dir():
            files = load_files(
                folder, "order-words", Path(__file__), OrderWords, read_words, cache=default_cache_folder()
            )
            if len(files) == 1:
                return files[0]
    raise ConfigError((Problem(message="the words of orders are missing from this installation"),))


_FIRST: Final = Lazy(r"^\(\?:([^()|]+)\|([^()|]+)\)")
_ALPHABETS: Final = 0x590  # letters before this one are of alphabets whose words stand between spaces


def pattern_of(kind: str, *, bounded: bool = True) -> str:
    """One expression for the words of a kind, in all languages; `bounded` ones begin and end as words do."""
    plain: list[str] = []
    accented: list[str] = []
    other: list[str] = []
    for word in (word for words in order_words().words[kind].values() for word in words):
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


def _opening(word: str) -> str:
    """What a word begins with, up to where anything may follow: an automaton of many gaps takes seconds to compile."""
    cut = min((at for gap in ("[^", ".{") if (at := word.find(gap)) > 0), default=len(word))
    opening = word[:cut].rstrip()
    return opening if opening and opening.count("(") == opening.count(")") else word


@cache
def _compiled(*kinds: str) -> Any:
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    return re2.compile("|".join(pattern_of(kind) for kind in kinds).encode(), options)


def expanded(pattern: str) -> str:
    """The expression that `<kind>` stands for in a rule, where an engine tries it; any other pattern as it is."""
    kind = pattern[1:-1]
    return pattern_of(kind, bounded=False) if kind in ANCHORS and pattern == f"<{kind}>" else pattern


def find_order(data: bytes, is_quoted: Callable[[str, int, int], bool]) -> Span | None:
    """Where a text orders a model about, surely before likely; `None` where it does not, or only `is_quoted` to."""
    anchors, deeds = _compiled(*_ADDRESSED), _compiled("serious", "deed", "duty")
    at, windows, deed = 0, 0, -1
    likely: Span | None = None
    while (anchor := anchors.search(data, at)) is not None:
        first, last = anchor.span()
        at = last
        last -= data[last - 1 : last] in _BOUNDS
        start, end = max(0, first - _BEFORE), last + _AFTER
        if deed < start:
            asked = deeds.search(data, start)
            if asked is None:
                return likely
            deed = asked.start()
        if deed >= end:
            at = max(at, deed - _AFTER)
            continue
        before, after = _window(data[start:first], data[last:end])
        windows += 1
        if windows > MOST_WINDOWS:
            return Span(first, last, sure=True)
        found = data[first:last]
        said = features(before, found, after)
        at = max(at, first + _STEP) if said else at
        weight = sum(said.values()) - order_words().least
        if weight >= 0:
            head, body = before.decode("utf-8", "ignore"), found.decode("utf-8", "ignore")
            text = head + body + after.decode("utf-8", "ignore")
            if not is_quoted(text, len(head), len(head) + len(body)):
                likely = Span(first, last, sure=weight >= _SURE)
                if likely.sure:
                    return likely
    return likely


def is_order(before: str, found: str, after: str) -> bool:
    """Whether a deed to something of worth is asked beside `found`, which sets an order aside."""
    said = features(before.encode(), found.encode(), after.encode())
    return sum(said.values()) >= order_words().least and not said.keys().isdisjoint(_OF_WORTH)


def features(before: bytes, found: bytes, after: bytes) -> dict[str, int]:
    """What counts around an address, `found`, and how much.

    (1) who is called, and that he has the text before him; (2) how far his order reaches: the sentence that he is the
    subject of, or where he is called, or no reader is named, what stands beside it; (3) the deed, behind the subject
    and not forbidden; (4) its object and the rest.
    """
    words = order_words()
    said: set[str] = set()
    own, further = _sentences(after)
    past, lead = _lead(before)
    reader = next((kind for kind in _READERS if _compiled(kind).search(found) is not None), "")
    if reader:
        if lead[-1:] == b"-" and own[:1] in b":," and own:
            lead = lead[: _HYPHENED.search(lead).start()]  # `triage-bot: `
        if _is_name(lead, after):
            return {}
        if _compiled("trade").search(lead[-_CALLED_WITHIN:] + found + own[:_CALLED_WITHIN]) is not None:
            return {}
        if reader != "machine" and own[:1] == b":" and _SPEAKERS.search(before + after) is not None:
            return {}  # who says a line of a talk
        said.add(reader)
        calling = _compiled("calling").match(own[:_CALLED_FAR])
        greeted = _hails("greeting").search(lead[-_CALLED_WITHIN:])
        hailed = greeted is not None and (calling is not None or _SENT_TO.search(greeted.group()) is None)
        told = own[:1] != b"," or _compiled("deed", "serious", "duty", "beforehand").match(own[1:].lstrip()) is not None
        opening = (_UTTERED.split(lead)[-1] if told else lead).lstrip(_OPENING)
        toward = calling is not None and _hails("toward").match(opening[-_CALLED_WITHIN:]) is not None
        if hailed or toward or (calling is not None and not opening):
            listed = _compiled(*_READERS).match(own[1:].lstrip()) is not None
            plain = told if own[:1] == b"," else own[:1] == b":" and (b" " in found.strip() or b"-" in found)
            direct = calling is not None and (hailed or toward or plain) and not listed
            said.add("hailed" if direct else "called")
        if _compiled("reading").search(lead + found + own) is not None:
            said.add("reading")
        if said.isdisjoint({"called", "hailed", "reading"}):
            asked = own
            turn = _compiled("turn").search(own)
            asked = own if turn is None else own[: turn.start()]
            if _compiled("duty").search(asked) is None:
                return {}
        else:
            asked = lead + found + own + further
    else:
        asked = past + lead + found + own + further
    deed = "serious" if _asked("serious", asked) else "deed" if _asked("deed", asked) else ""
    near = lead + found + asked if reader else asked
    said.update(kind for kind in _BESIDE if _asked(kind, near))
    if deed:
        said.add(deed)
    elif said.isdisjoint({"steer", "tells"}) and not (reader and not said.isdisjoint({"duty", "hailed"})):
        return {}
    if said.isdisjoint(_MEANT):
        said.discard("tells")  # what a product says to people is told of everywhere
    needed = said - {"hailed"} if reader in _READERS[1:] else said  # a person of a trade is called as well
    if not reader:
        enough = not needed.isdisjoint(_OF_WORTH - {"secrecy"} | {"serious"})
    elif said.isdisjoint({"called", "hailed", "reading"}):
        enough = "secrecy" in said or not needed.isdisjoint(words.needs)
    else:
        enough = not needed.isdisjoint({*words.needs, "secrecy", "serious", "person", "hush"})
    if not enough or (_is_a_person(reader, said) and not _asked("vault", near)):
        return {}
    if reader and said.isdisjoint(_MEANT):
        said.add("uncalled")
    if (
        reader
        and "hailed" not in said
        and _compiled("owned").search(lead[-_CALLED_WITHIN:] + found + own[:_CALLED_WITHIN]) is not None
    ):
        said.add("owned")
    if _compiled("told").search(before[-_TOLD_WITHIN:] + found + after[:_TOLD_WITHIN]) is not None:
        said.add("told")
    if _compiled("leave").search(near) is not None:
        said.add("leave")
    if _compiled("inside").search(near) is not None:
        said.add("inside")
    if said.isdisjoint({"serious", "secrecy", "steer", "tells"}) and _compiled("work").search(near) is not None:
        said.add("work")
    return {kind: words.weights[kind] for kind in said}


def _is_a_person(reader: str, said: set[str]) -> bool:
    """Whether nothing tells a program from a person of the trade: an agent, or an assistant whom nobody calls."""
    told_apart = reader == "machine" or (reader == "helper" and not said.isdisjoint(_MEANT))
    return not told_apart and said.isdisjoint(_OF_A_MACHINE)


def _is_name(lead: bytes, after: bytes) -> bool:
    """Whether a word is part of a name, a path or a number of a model, or stands in marks as names do in code."""
    return (
        (lead[-1:] in _OF_A_NAME and _HANDLE.search(lead) is None)
        or after[:1] in _OF_A_NAME[:4]
        or (after[:1] in b"-.#" and after[1:2].isalnum())
        or (lead[-1:] in b"\"'`" and after[:1] == lead[-1:])
    )


def find_parts(name: str, data: bytes, is_quoted: Callable[[str, int, int], bool]) -> Span | None:
    """Where the parts of an order that addresses nobody stand together, surely before likely.

    They are looked for around each of its anchors, in that sentence and the two that follow.
    """
    reading = order_words().readings[name]
    anchors, first_need = _compiled(*reading.anchors), _compiled(reading.needs[0])
    at, windows, needed = 0, 0, -1
    likely: Span | None = None
    while (anchor := anchors.search(data, at)) is not None:
        first, last = anchor.span()
        at = max(last, first + _STEP)
        last -= data[last - 1 : last] in _BOUNDS
        start, end = max(0, first - _BEFORE), last + _AFTER
        if needed < start:
            beside = first_need.search(data, start)
            if beside is None:
                return likely
            needed = beside.start()
        if needed >= end:
            at = max(at, needed - _AFTER)
            continue
        windows += 1
        if windows > _MOST_PARTS:
            return Span(first, last, sure=True)
        before, after = _window(data[start:first], data[last:end])
        own, further = _sentences(after)
        near = _lead(before)[1] + data[first:last] + own + further
        if not all(_asked(kind, near) for kind in reading.needs):
            continue
        said = {*reading.anchors, *(kind for kind in reading.weights if _asked(kind, near))}
        weight = sum(reading.weights.get(kind, 0) for kind in said) - reading.least
        if weight >= 0:
            head, body = before.decode("utf-8", "ignore"), data[first:last].decode("utf-8", "ignore")
            if not is_quoted(head + body + after.decode("utf-8", "ignore"), len(head), len(head) + len(body)):
                likely = Span(first, last, sure=weight >= _SURE)
                if likely.sure:
                    return likely
    return likely


def _window(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """What stands before and behind a word in its paragraph, with one blank for many."""
    before, after = before.rpartition(b"\n\n")[2], after.partition(b"\n\n")[0]
    return _BLANKS.sub(b" ", before), _BLANKS.sub(b" ", after)


@cache
def _hails(kind: str) -> Any:
    """What calls a reader, with an article and a word or two of what he does between."""
    return re2.compile(rf"(?i)(?:{pattern_of(kind)})(?:[\s'’]*[\w-]+){{0,2}}[\s'’\"*_]*$".encode())


def _sentences(after: bytes) -> tuple[bytes, bytes]:
    """What is left of a sentence, and the two that follow it."""
    first = _END.search(after)
    if first is None:
        return after, b""
    second = _END.search(after, first.end())
    third = None if second is None else _END.search(after, second.end())
    return after[: first.end()], after[first.end() : len(after) if third is None else third.end()]


def _lead(before: bytes) -> tuple[bytes, bytes]:
    """The sentence before that of a word, and what its own has said so far."""
    ends = [0, *(match.end() for match in _END.finditer(before))]
    return before[ends[-2] if len(ends) > 1 else 0 : ends[-1]], before[ends[-1] :]


def _asked(kind: str, text: bytes) -> bool:
    """Whether something is said in a text, and not forbidden in the same clause."""
    for match in _compiled(kind).finditer(text):
        clause = _CLAUSE.split(text[max(0, match.start() - _FORBIDDEN_WITHIN) : match.start()])[-1]
        if clause and _compiled("forbidden").search(clause) is not None:
            continue
        if kind not in _SAID_BY_NO and _FORBIDDEN_BEHIND.match(text[match.end() : match.end() + _FORBIDDEN_WITHIN]):
            continue
        return True
    return False
