"""Where a text reads like an order to somebody, and what such an order names: a heuristic that only ever tightens.

A value inside an order is never taken for one that a document may supply. What no sign below begins is judged as any
other text is, so a miss loosens nothing that the other steps hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aegis.core.patterns import Lazy
from aegis.policy.dataflow.forms import has_digit, shape_of
from aegis.policy.dataflow.values import JoinedTexts

MAX_SPANS: Final = 256
_SPAN_CHARS: Final = 240
_SPAN_NEXT: Final = 120  # at most, of an order that stands in another
_SPAN_LONGEST: Final = 720  # of all of them
_SPAN_LEAST: Final = 12  # characters of a text that can tell somebody to do something
# Of every ASCII character itself where it can stand in a name, else a blank.
_NAMING: Final = "".join(chr(code) if chr(code).isalnum() or chr(code) in "_-" else " " for code in range(128))

_AROUND: Final = ".,;:!?\"'`()<>[]{}"
_INSIDE: Final = frozenset("./:#@")
# Where an instruction begins: an address to somebody, or a verb that orders at the beginning of a sentence.
_ORDER: Final = Lazy(
    r"(?i)(?:\b(?:please|kindly|you (?:must|should|need to|have to|are required to)|make sure|be sure|do not forget"
    r"|don't forget|remember to|instead|ignore|before you|important|urgent|to-?do|task|instruction|new goal"
    r"|your goal)\b"
    r"|\b(?:note|notice|message|attention)(?: to| for|:)? (?:the |all |any |our )?"
    r"(?:assistants?|ai|agents?|bots?|models?)\b"
    r"|(?:^|[.,;:!?>\"\n]\s*)(?:then |also |and |now |first |next |finally )?"
    r"(?:send|forward|transfer|pay|wire|delete|remove|create|invite|add|share"
    r"|visit|open|click|update|change|modify|reset|set|book|reserve|make|post|publish|email|mail|write|get|give|buy"
    r"|purchase|order|schedule|cancel|grant|upload|download|run|execute|install|reply|tell|notify|concatenate|call|use"
    r"|submit|append|move|rename|enter|approve|reject|confirm|assign|refund|issue|enroll?|register|unlock|enable"
    r"|disable|activate|deactivate|suspend|close|release|redirect|replace|look up|go to|promote|escalate|withdraw"
    r"|donate|allow|revoke|read|load|text|admit|discard|waive|deliver|ship|erase|destroy|wipe|terminate|expel|dismiss"
    r"|unlock|unblock|extend|inform|warn|connect|disclose|reveal|respond|disconnect|restart|reboot|sell"
    r"|override|bypass)\s"
    # What is a noun as well orders only before what it is done to.
    r"|(?:^|[.,;:!?>\"\n]\s*)(?:then |also |and |now |first |next |finally )?"
    r"(?:request|ask|put|credit|charge|debit|start|stop|export|answer|drop|raise|lower|clear|block|lock|sign|file|log"
    r"|record|print|copy|link|hand|place|switch|turn|point|trade|exchange|lend|hire|call|message|pin|bill|accept|decline"
    r"|merge|deploy|label|tag|mark|set up|ban|kick) (?:out |over )?"
    r"(?:the|a|an|all|any|my|your|our|this|that|every|each|it|him|her|them|us|me)\b"
    r"|\b(?:and|then) (?:send|forward|transfer|pay|wire|delete|invite|share|email|mail|publish|grant|deliver|write"
    r"|text)\s"
    # In the middle of a line, where a text was put behind another one without a full stop.
    r"|(?-i:\b(?:Send|Forward|Transfer|Pay|Delete|Remove|Create|Invite|Add|Share|Visit|Update|Change|Reset|Book|Reserve"
    r"|Make|Post|Publish|Email|Write|Give|Buy|Cancel|Grant|Upload|Get|Read)"
    r" (?:the|a|an|all|any|my|your|this|that|every|it|him|her|them)\b))"
)


def spans_of(joined: JoinedTexts) -> list[list[tuple[int, int]]]:
    """Where each text reads like an order: from its sign on, some sentences."""
    spans: list[list[tuple[int, int]]] = [[] for _ in joined.texts]
    if joined.is_plain:
        for number, start, _ in joined.matches(_ORDER):
            _begin(spans[number], joined.texts[number], start)
    else:
        for found, text in zip(spans, joined.texts, strict=True):
            for match in _ORDER.finditer(text):
                _begin(found, text, match.start())
                if len(found) >= MAX_SPANS:
                    break
    return spans


def _begin(found: list[tuple[int, int]], text: str, start: int) -> None:
    """Begin a span, or reach to the end of the line where one order stands in another."""
    if found and start < found[-1][1]:
        first, end = found[-1]
        limit = min(len(text), start + _SPAN_NEXT, first + _SPAN_LONGEST)
        if limit > end:
            line = text.find("\n", start + 1, limit)
            found[-1] = (first, max(end, limit if line < 0 else line))
    elif len(text) >= _SPAN_LEAST and len(found) < MAX_SPANS:
        found.append((start, min(len(text), start + _SPAN_CHARS)))


def names_in(text: str) -> Iterator[str]:
    """What is written like a name, with a capital letter, or like an identifier, with a digit."""
    if not text.isascii():
        text = text.encode("ascii", "replace").decode()
    if has_digit(text):
        for word in text.split():  # an identifier with a sign inside stands as a whole as well
            if word.isalpha():
                continue
            word = word.strip(_AROUND)
            if not _INSIDE.isdisjoint(word) and shape_of(word):
                yield word
    for word in text.translate(_NAMING).split():
        if word.islower() and word.isalpha():
            continue
        word = word.lstrip("-")
        if has_digit(word):
            yield word
            continue
        # Letters alone: from the first capital on that begins the word or stands behind a hyphen.
        at = next((at for at, char in enumerate(word[:-1]) if char.isupper() and (not at or word[at - 1] == "-")), None)
        if at is not None:
            yield word[at:]
