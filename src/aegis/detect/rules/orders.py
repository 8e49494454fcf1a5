"""Whether a text orders a model about: who is addressed, the deed that is asked, its object, and what is hidden.

Words are data (`data/orders`), in many languages. A text is looked at around each word that addresses a reader, sets
aside what he was told, or hides something from the person he works for; what stands close to it is added up. Work is
linear: every window is read once, and the words beside a window are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

from aegis.core.patterns import Lazy
from aegis.detect.rules.order_words import (
    BIDS,
    CLAUSE,
    DEEDS,
    PartsOfOrder,
    compiled,
    expression,
    function_word,
    is_bidden,
    order_words,
    pattern_of,
    says,
    says_any,
    words_for,
)

_BEFORE: Final = 200  # bytes of a window before the word that it is about, and behind it
_AFTER: Final = 320
_STEP: Final = 24  # bytes behind a word within which another one makes no window of its own
_CALLED_WITHIN: Final = 24  # characters before a reader in which a greeting calls him
_CALLED_FAR: Final = 60  # ... and behind him in which a comma or a colon does
_TOLD_WITHIN: Final = 100  # characters before a reader in which it is said that an order is only spoken of
_SURE: Final = 2  # weight beyond the least from which an order is sure
MOST_WINDOWS: Final = 600  # windows with a deed in one text; a text of more is taken for an order
_MOST_PARTS: Final = 250  # the same, with the parts of an order that addresses nobody
_ADDRESSED: Final = ("machine", "helper", "actor", "device", "secrecy", "reset")
_READERS: Final = _ADDRESSED[:4]
_BESIDE: Final = (
    "duty", "thing", "place", "amount", "steer", "tells", "secrecy", "hush", "person", "reset", "whole",
    "beforehand",
)  # fmt: skip
_OF_WORTH: Final = frozenset({"thing", "place", "amount", "steer", "tells", "secrecy"})
_MEANT: Final = frozenset({"called", "hailed", "reading", "secrecy", "beforehand"})  # why a text speaks to its reader
_OF_A_MACHINE: Final = frozenset(
    {"serious", "place", "amount", "steer", "tells", "secrecy", "hush", "reading", "beforehand", "reset", "person"}
)
_END: Final = Lazy(r"[.!?](?:\s|$)|。|！|？|\n\s*(?:[-*#>|]|\d+[.)])\s?|\n\s*\n".encode())
_BOUNDS: Final = frozenset(b" \t\n.,;:!?)"[at : at + 1] for at in range(10))  # what ends a word, and is none of it
_OF_A_NAME: Final = (b"/", b"@", b"_", b"=", b".", b"~", b"-", b"$", b"\\")  # beside a word of a path or a name
_HANDLE: Final = Lazy(rb"(?:^|[\s(])@$")  # `@assistant`
_UTTERED: Final = Lazy(rb"[\"\[(<>;]|:\s|,\"")  # where a cell, a remark in brackets or a line of a talk begins
_SPEAKERS: Final = Lazy(rb"(?i)\b(?:customer|user|caller|client|guest|patient|kund(?:e|in)|cliente|visitor)\s?:\s")
_ANSWERS: Final = Lazy(rb"(?i)^:\s*(?:hi|hello|hey|how|what|of course|certainly|sure|done|here|yes|no|thanks|i)\b")
_OF_SOMEBODY: Final = Lazy(
    rb"(?i)\b(?:your|our|my|his|her|their|dein|euer|ihr|unser|mein|votre|notre|ton|mon|tu|su|mi|nuestro|tuo|suo|nostro|seu)\s+$"
)
_BLANKS: Final = Lazy(rb"[ \t]{2,}")
_SENT_TO: Final = Lazy(
    rb"(?i)^(?:the )?\w+ (?:to|for|of)\b"
)  # `messages to the model` speaks of him, or calls him with a colon
_ARROW: Final = Lazy(r"^\s(?:->|=>|>|→)\s|^\s:|(?:->|>|→)$".encode())
_ARTICLES: Final = frozenset(b"the any all every die der das le la les el los il i o os as".split())
_MOST_OF_A_COMPOUND: Final = 2  # words
_PARTICIPLE: Final = Lazy(rb"(?i)(?:ing|ed|ion|ment|er|or)$")
_FOLLOWED: Final = Lazy(rb"^[:,>)]?\s*(?:please\s+)?([\p{Ll}][\p{Ll}'-]{2,16})\s+[^\s.]+\s+[^\s.]+")
_CLOSED: Final = Lazy(rb"^[\])*_\"'`]+(?:$|([:,]))")  # what closes a remark around a reader
_LACKING: Final = Lazy(rb"(?i)^\W*(?:without|ohne|sans|sin|senza|sem|zonder|bez)\b")
_FOR_A_THING: Final = Lazy(rb"(?i)^\s+for\s+(?:an?|the|their|his|her|any|more|passwords?|secrets?|keys?|tokens?)\b")
_TARGETS: Final = ("place", "amount")
_HYPHENED: Final = Lazy(rb"[^\s\"(<>]*-$")
_OPENING: Final = b" \t\r\n-*#>/<!\"'()[]:;,.|`_"


class Span(NamedTuple):
    """Where an order stands, in bytes; one that is not `sure` has just enough of its parts, or is `quoted`."""

    start: int
    end: int
    sure: bool
    quoted: bool = False


def find_order(data: bytes, is_quoted: Callable[[str, int, int], bool]) -> Span | None:
    """Where a text orders a model about, surely before likely; `None` where it does not, or only `is_quoted` to."""
    return _found(data, _ADDRESSED, ("serious", "deed", "duty", "steer", "tells"), MOST_WINDOWS, _weight, is_quoted)


def find_parts(name: str, data: bytes, is_quoted: Callable[[str, int, int], bool]) -> Span | None:
    """Where the parts of an order that addresses nobody stand together, surely before likely."""
    reading = order_words().readings[name]
    return _found(data, reading.anchors, reading.needs[:1], _MOST_PARTS, partial(_weight_of, reading), is_quoted)


def _found(
    data: bytes,
    anchors: Sequence[str],
    needed: Sequence[str],
    most: int,
    weigh: Callable[[bytes, bytes, bytes], int | None],
    is_quoted: Callable[[str, int, int], bool],
) -> Span | None:
    """The one walk over a text: each anchor with something needed near it is weighed with what stands around it.

    `weigh` says how far beyond the least an order weighs, below zero where it is none, and nothing where what counts
    is not said at all. More than `most` anchors that are weighed make an order of any text.
    """
    anchor_of, needed_of = compiled(*anchors), compiled(*words_for(needed))
    at, windows, need = 0, 0, -1
    likely: Span | None = None
    while (anchor := anchor_of.search(data, at)) is not None:
        first, last = anchor.span()
        at = last
        last -= data[last - 1 : last] in _BOUNDS
        start, end = max(0, first - _BEFORE), last + _AFTER
        if need < start:
            beside = needed_of.search(data, start)
            if beside is None:
                return likely
            need = beside.start()
        if need >= end:
            at = max(at, need - _AFTER)
            continue
        windows += 1
        if windows > most:
            return Span(first, last, sure=True)
        before, after = _window(data[start:first], data[last:end])
        weight = weigh(before, data[first:last], after)
        if weight is None:
            continue
        at = max(at, first + _STEP)
        if weight >= 0:
            head, body = before.decode("utf-8", "ignore"), data[first:last].decode("utf-8", "ignore")
            if is_quoted(head + body + after.decode("utf-8", "ignore"), len(head), len(head) + len(body)):
                # One that names where something is to go has a result fenced, whoever quotes it.
                if likely is None and compiled(*_TARGETS).search(after) is not None:
                    likely = Span(first, last, sure=False, quoted=True)
                continue
            likely = Span(first, last, sure=weight >= _SURE)
            if likely.sure:
                return likely
    return likely


def _weight(before: bytes, found: bytes, after: bytes) -> int | None:
    """How far beyond the least an order to `found` weighs."""
    said = features(before, found, after)
    if not said:
        return None
    weight = sum(said.values()) - order_words().least
    doubtful = (
        "line" in said
        or "device" in said
        or said.keys().isdisjoint(_OF_WORTH | {"serious", "reset"})
        or (said.keys().isdisjoint(_READERS) and "reset" in said and compiled("whole").search(found) is None)
    )
    return min(weight, _SURE - 1) if doubtful else weight


def _weight_of(reading: PartsOfOrder, before: bytes, found: bytes, after: bytes) -> int | None:
    """How far beyond the least the parts of a reading weigh in the sentence of `found` and the two that follow."""
    own, further = _sentences(after)
    past, lead = _lead(before)
    near = (past if reading.looks_back else b"") + lead + found + own + further
    if not all(says(kind, near) for kind in reading.needs):
        return None
    said = {*reading.needs, *(kind for kind in reading.weights if says(kind, near))}
    said |= {kind for plain, kind in reading.counts_as.items() if kind not in said and says(plain, near)}
    if said.isdisjoint(reading.anchors):
        return None  # what it is about is forbidden
    if "waived" in said:
        said.discard("leave")  # nobody has to agree
    return sum(reading.weights.get(kind, 0) for kind in said) - reading.least


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
    own, further = _sentences(after)
    past, lead = _lead(before)
    reader = next((kind for kind in _READERS if compiled(kind).search(found + after[:2]) is not None), "")
    if reader:
        address = _address(reader, lead, found, own, after, before)
        if address is None:
            return {}
        said, lead, own = address
        meant = not said.isdisjoint({"called", "hailed", "reading"})
        if meant:  # who only has the text before him is the subject of what follows
            asked = (b"" if said.isdisjoint({"called", "hailed"}) else lead) + found + own + further
        else:
            turn = compiled("turn").search(own)
            asked = own if turn is None else own[: turn.start()]
            if reader == "device" or (compiled("duty").search(asked) is None and not _has_to(lead, asked)):
                return {}
    elif _FOR_A_THING.match(own) is not None:
        return {}  # `never ask the user for a key`
    else:
        said, meant = set(), False
        asked = past + lead + found + own + further
    bidden = meant and (says(BIDS, asked) or _is_told(own))
    named = reader == "device" or (reader != "" and compiled("program").search(found) is not None)
    named = named and (reader == "device" or not said.isdisjoint({"called", "hailed"}))
    if bidden and named and not said.isdisjoint({"called", "hailed"}):
        said.add("commanded")
    deed = "serious" if says("serious", asked) else "deed" if bidden or says("deed", asked) else ""
    near = lead + found + asked if reader else asked
    said.update(kind for kind in _BESIDE if says(kind, near))
    if deed:
        said.add(deed)
    elif said.isdisjoint({"steer", "tells"}) and not (reader and not said.isdisjoint({"duty", "hailed"})):
        return {}
    if "thing" not in said:
        said.discard("whole")
    if said.isdisjoint(_MEANT):
        said.discard("tells")  # what a product says to people is told of everywhere
    needed = said - {"hailed"} if reader in _READERS[1:] else said  # a person of a trade is called as well
    if (
        not said.isdisjoint({"called", "hailed", "reading"})
        and said.isdisjoint(_OF_WORTH | {"serious", "reset", "hush"})
        and not bidden
    ) or (not reader and _LACKING.match(found) is not None and not says(BIDS, asked)):
        return {}
    if not reader:
        enough = not needed.isdisjoint(_OF_WORTH - {"secrecy"} | {"serious"})
    elif said.isdisjoint({"called", "hailed", "reading"}):
        enough = "secrecy" in said or not needed.isdisjoint(words.needs)
    else:
        enough = not needed.isdisjoint({*words.needs, "secrecy", "serious", "person", "hush"})
        enough = enough or (bidden and (named or reader == "machine"))
    if not enough or (_is_a_person(reader, said) and not says("vault", near)):
        return {}
    if reader and said.isdisjoint(_MEANT):
        said.add("uncalled")
    if (
        reader
        and "hailed" not in said
        and compiled("owned").search(lead[-_CALLED_WITHIN:] + found + own[:_CALLED_WITHIN]) is not None
    ):
        said.add("owned")
    if compiled("told").search(lead[-_TOLD_WITHIN:] + found + own[:_TOLD_WITHIN]) is not None:
        said.add("told")
    if compiled("leave").search(near) is not None and compiled("waived").search(near) is None:
        said.add("leave")
    if compiled("inside").search(near) is not None:
        said.add("inside")
    if said.isdisjoint({"serious", "secrecy", "steer", "tells"}) and compiled("work").search(near) is not None:
        said.add("work")
    return {kind: words.weights.get(kind, 0) for kind in said}


def _address(
    reader: str, lead: bytes, found: bytes, own: bytes, after: bytes, before: bytes
) -> tuple[set[str], bytes, bytes] | None:
    """How a reader is addressed, with what stands before and behind him in his sentence; `None` where he is not."""
    said = {reader}
    if _ARROW.match(own) is not None:
        own = _ARROW.sub(b":", own, count=1)
    if lead[-1:] == b"-" and own[:1] in b":," and own:
        lead = lead[: _HYPHENED.search(lead).start()]  # `triage-bot: `
    if b"_" in found and own[:1] in b"\"'" and own[1:].lstrip()[:1] == b":":
        own = own[1:].lstrip()  # a member of JSON that says to whom it is
    elif _is_name(lead, after):
        return None
    if compiled("trade").search(lead[-_CALLED_WITHIN:] + found + own[:_CALLED_WITHIN]) is not None:
        return None
    if reader == "device" and _ARROW.search(found) is not None:
        own = b":" + own
    own = _CLOSED.sub(rb"\1", own)
    if reader != "machine" and own[:1] == b":" and (_SPEAKERS.search(before + after) or _ANSWERS.match(own)):
        if not (says(BIDS, own[1:]) and says_any(("serious", "thing", *_TARGETS), own)):
            return None  # who says a line of a talk
        said |= {"line", "called"}
    calling = None if _OF_SOMEBODY.search(lead) is not None else compiled("calling").match(own[:_CALLED_FAR])
    greeted = _hails("greeting").search(lead[-_CALLED_WITHIN:])
    if greeted is not None and (
        _OF_SOMEBODY.search(lead) is not None
        or compiled("forbidden").search(CLAUSE.split(lead[: -len(greeted.group())])[-1]) is not None
    ):
        greeted = None  # `Hello, your bot`, `must not hold instructions for the model`
    hailed = greeted is not None and (calling is not None or _SENT_TO.search(greeted.group()) is None)
    told = own[:1] != b"," or says(BIDS, own[1:])
    opening = (_UTTERED.split(lead)[-1] if told else lead).lstrip(_OPENING)
    if reader == "device" and not opening and b" " not in found.strip():
        return None  # a key, as of settings: `system: `
    if calling is not None and told and len(calling.group().strip()) == 1 and _is_compound(opening):
        opening = b""
    toward = calling is not None and _hails("toward").match(opening[-_CALLED_WITHIN:]) is not None
    if hailed or toward or (calling is not None and not opening):
        listed = compiled(*_READERS).match(own[1:].lstrip()) is not None
        plain = told if own[:1] == b"," else own[:1] == b":" and (b" " in found.strip() or b"-" in found)
        direct = calling is not None and (hailed or toward or plain) and not listed
        said.add("hailed" if direct else "called")
    if lead[-1:] == b"@" and is_bidden(own, len(own) - len(own.lstrip())):
        said.add("called")
    if compiled("reading").search(lead + found + own) is not None:
        said.add("reading")
    return said, lead, own


def _is_compound(opening: bytes) -> bool:
    """Whether what stands before a reader only says which one: `the smart-home `, `Grading `."""
    words = opening.split()
    if words and words[0].lower() in _ARTICLES:
        words = words[1:]
    return len(words) <= _MOST_OF_A_COMPOUND and not any(
        function_word().match(word) is not None and _PARTICIPLE.search(word) is None for word in words
    )


def _is_told(own: bytes) -> bool:
    """Whether a verb follows the mark behind one who is called: a word of no closed class, with more behind it."""
    told = _FOLLOWED.match(own)
    return told is not None and function_word().match(told.group(1)) is None


def _has_to(lead: bytes, asked: bytes) -> bool:
    """Whether what follows a reader is his deed in a list of tasks: `assistant to pay the bill`."""
    stripped = asked.lstrip()
    return (
        stripped[:3].lower() == b"to "
        and compiled(*DEEDS).match(stripped[3:]) is not None
        and _is_compound(_UTTERED.split(lead)[-1].lstrip(_OPENING))
    )


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


def _window(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """What stands before and behind a word in its paragraph, with one blank for many."""
    before, after = before.rpartition(b"\n\n")[2], after.partition(b"\n\n")[0]
    return _BLANKS.sub(b" ", before), _BLANKS.sub(b" ", after)


@cache
def _hails(kind: str) -> Any:
    """What calls a reader, with an article and a word or two of what he does between."""
    return expression(rf"(?:{pattern_of(kind)})(?:[\s'’]*[\w-]+){{0,2}}[\s'’\"*_]*$")


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
