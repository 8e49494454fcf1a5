"""Whether a text gives an order or only speaks of one: quoted as an example, or forbidden in the same sentence.

A module of its own because it is pure and judged by sentences alone, whatever rule found them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import re2

_MENTION: Final = re2.compile(
    r"(?i)\b(?:attack\w*|inject\w*|examples?|such as|e\.g|phrases?|like|writes?|sends?|types?|says?|saying|enters?|detect\w*|"
    r"texts?|strings?|words?|tricks?|called|contains?|jailbreak\w*|malicious|quot(?:es?|ed)|looks? for|tests?|assert\w*|"
    r"expect\w*|samples?|fixtures?|payloads?|patterns?|threats?|classif\w*|describes?|explains?|guidance|beispiel\w*|"
    r"angreifer\w*|ejemplos?|exemples?|esempi\w*)\b[^.!?\n]{0,60}$"
)
_MENTIONED: Final = re2.compile(
    r"(?i)^[^.!?\n]{0,30}\b(?:examples?|attack\w*|inject\w*|phrases?|patterns?|untrusted|should trigger|appears? in|"
    r"is (?:an?|one) |are |malicious|threats?|into (?:a|the)|in (?:white|a|the))\b"
)
_REFUSED: Final = re2.compile(
    r"(?i)\b(?:do not|don't|never|must not|should not|shall not|cannot|refuse to|attempts? to|tr(?:y|ies) to|(?:asks?|tells?|"
    r"telling|asking|convinc\w*|instruct\w*|trick\w*) (?:you|it|them|me|us|the (?:model|assistant|agent|bot)|an? \w+) to)\b"
    r"[^.!?;:\n]{0,60}$"
)
_QUOTES: Final[Mapping[str, str]] = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "\u201e": "\u201c"}
_OPENS: Final = re2.compile(r"(?:^|[^\w])([\"'`\x{201c}\x{2018}\x{ab}\x{201e}])")
_NEW_SENTENCE: Final = re2.compile(r"[.!?:;]\s")
_LONGEST_QUOTE: Final = 160


def spoken(text: str, start: int, end: int) -> bool:
    """Whether an order is given: neither only quoted in a sentence about such orders, nor what a sentence forbids."""
    found, before, after = text[start:end], text[:start].rpartition("\n")[2], text[end:].partition("\n")[0]
    if found[:1] not in _QUOTES and _REFUSED.search(before) is not None:
        return "," in before[before.rfind(" not ") :] and not re2.match(r"[^.!?\n]{0,30},? or\b", after)
    # The nearest quote that opens before it, or with it, and where that closes.
    whole, at = before + found + after, len(before)
    opened = max((match.start(1) for match in _OPENS.finditer(whole[: at + 1])), default=-1)
    if opened < 0:
        return True
    closing = _QUOTES[whole[opened]]
    closed = next((one.start() for one in re2.finditer(rf"{closing}(?:\W|$)", whole[opened + 1 :])), -1)
    quoted = whole[opened + 1 : opened + 1 + closed]
    if closed < 0 or opened + 1 + closed < at + len(found) - 1 or len(quoted) > _LONGEST_QUOTE:
        return True
    if _NEW_SENTENCE.search(quoted) is not None:
        return True  # a whole text in quotes, as in JSON, and no phrase that is spoken of
    return _MENTION.search(whole[:opened]) is None and _MENTIONED.search(whole[opened + 2 + closed :]) is None
