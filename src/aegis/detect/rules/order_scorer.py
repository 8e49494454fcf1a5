"""How likely a text orders about the machine that reads it, by weights that were learned.

Beside the rules, which know the parts of an order, a sentence is weighed by its words, by each two that follow one
another, and by what it and its neighbours say in the vocabulary of orders (`data/orders`). The weights come from
`python -m benchmarks.orders` and are data. What scores enough is likely an order, never surely.

Work is linear: words are looked up, and only the few sentences of a text that their words make suspicious are asked
what they say. The longer a text, the more a sentence has to score, so one of more than 32 KiB is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from heapq import nlargest
from math import log
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import re2

from aegis.core.json import decode
from aegis.core.patterns import Lazy
from aegis.core.shipped import shipped_folder
from aegis.detect.rules.order_words import pattern_of
from aegis.detect.rules.orders import Span
from aegis.errors import ConfigError, Problem

LONGEST: Final = 32_768  # characters of a text that is read
_LETTERS: Final = 5  # of a word that count: its endings do not
_MOST_WORDS: Final = 200  # of a sentence
_LEAST_WORDS: Final = 3
_READ: Final = 12  # sentences of a text of which pairs of words are looked up as well
_SUSPECTED: Final = 4  # sentences of a text that are asked what they say
_USUAL: Final = 8  # sentences of a text for which what a sentence needs was measured
_FURTHER: Final = 1.2  # what more it needs where a text has e times as many
# What one word counts falls with the number of words: a long sentence is no order for having many of them.
_SMOOTHED: Final = 8
_DILUTED: Final = 0.8
_SCALE: Final = 5.8  # that of a sentence of usual length is then about one
_OPENS: Final = "^"
_MARKS: Final = ':,@"'  # that count as words
_SPACED: Final = b".;!?()[]{}<>'`*_#|/\\=+&%$~^-"
_BLANKS: Final = bytes.maketrans(_SPACED, b" " * len(_SPACED))
_OTHER_BLANKS: Final = "–—“”„’…、，"
_UNSPACED: Final = Lazy(r"[\x{3040}-\x{30ff}\x{4e00}-\x{9fff}\x{ac00}-\x{d7af}]")
_FIRST_UNSPACED: Final = "\u3040"
_MEMORY: Final = 33_554_432  # bytes that the automaton of the vocabulary may take


class OrderWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned: the score of an order, where a sentence starts from, and hundredths by feature.

    `most` is what the vocabulary adds to a sentence of an order at most.

    `words` are cut to five letters, `pairs` are two of them with a blank between (`^` opens a sentence); `says`,
    `before` and `after` are kinds of the vocabulary in the sentence, in the one before it and in the one behind it.
    """

    about: str
    least: float
    start: float
    most: float
    words: dict[str, int]
    pairs: dict[str, int]
    says: dict[str, int]
    before: dict[str, int]
    after: dict[str, int]


class Sentence(NamedTuple):
    """One sentence of a text: from and to which character it goes, and its words."""

    start: int
    end: int
    words: list[str]


class Suspect(NamedTuple):
    """What in a text is most like an order, from and to which character, and its score beyond the least."""

    start: int
    end: int
    beyond: float


class OrderScorer:
    """Scores texts by the weights it was given."""

    def __init__(self, weights: OrderWeights):
        self.weights = weights
        self._pairs: dict[tuple[str, str], int] = {}
        for pair, weight in weights.pairs.items():
            first, _, second = pair.partition(" ")
            self._pairs[first, second] = weight

    def suspect(self, text: str) -> Suspect | None:
        """What is most like an order in a text; `None` where no sentence can be one."""
        parts = sentences(text)
        if not parts:
            return None
        needed = self.weights.least + _FURTHER * max(0.0, log(len(parts) / _USUAL))
        alone = [self._alone(part.words) for part in parts]
        read = nlargest(_READ, range(len(parts)), key=alone.__getitem__)
        by_words = {at: self._by_words(alone[at], parts[at].words) for at in read}
        said: dict[int, list[str]] = {}
        best: Suspect | None = None
        for at in nlargest(_SUSPECTED, read, key=by_words.__getitem__):
            if by_words[at] + self.weights.most < needed:
                break
            own, before, after = _said_around(text, parts, at, said)
            beyond = by_words[at] + self._by_kinds(own, before, after) - needed
            if best is None or beyond > best.beyond:
                best = Suspect(parts[at].start, parts[at].end, beyond)
        return best

    def may_hold(self, text: str) -> bool:
        """Whether a text that may be one of the lines of `text` can hold an order: never false where one does."""
        parts = sentences(text)
        said: dict[int, list[str]] = {}
        for at, part in enumerate(parts):
            score = self._by_words(self._alone(part.words), part.words)
            if score + self.weights.most < self.weights.least:
                continue
            own, before, after = _said_around(text, parts, at, said)
            best = max(self._by_kinds(own, one, other) for one in ([], before) for other in ([], after))
            if score + best >= self.weights.least:
                return True
        return False

    def _alone(self, words: list[str]) -> float:
        """What the words of a sentence add, each by itself and once."""
        return share(words) * sum(filter(None, map(self.weights.words.get, set(words))))

    def _by_words(self, alone: float, words: list[str]) -> float:
        """What a sentence scores by its words, alone and in pairs."""
        pairs = sum(filter(None, map(self._pairs.get, set(zip([_OPENS, *words], words, strict=False)))))
        return self.weights.start + (alone + share(words) * pairs) / 100

    def _by_kinds(self, own: list[str], before: list[str], after: list[str]) -> float:
        """What a sentence scores by what it and its neighbours say."""
        weights = self.weights
        found = sum(weights.says.get(kind, 0) for kind in own)
        found += sum(weights.before.get(kind, 0) for kind in before)
        return (found + sum(weights.after.get(kind, 0) for kind in after)) / 100


def _said_around(
    text: str, parts: Sequence[Sentence], at: int, said: dict[int, list[str]]
) -> tuple[list[str], list[str], list[str]]:
    """What a sentence, the one before it and the one behind it say; `said` is what is known already."""
    for near in (at, at - 1, at + 1):
        if near not in said:
            inside = 0 <= near < len(parts)
            said[near] = kinds_in(text[parts[near].start : parts[near].end]) if inside else []
    return said[at], said[at - 1], said[at + 1]


def find_likely(data: bytes) -> Span | None:
    """Where a text most likely orders its reader about, in bytes; `None` where no sentence of it scores enough."""
    if len(data) > LONGEST:
        return None
    text = data.decode("utf-8", "replace")
    suspect = _shipped().suspect(text)
    if suspect is None or suspect.beyond < 0:
        return None
    start = len(text[: suspect.start].encode("utf-8", "replace"))
    return Span(start, start + len(text[suspect.start : suspect.end].encode("utf-8", "replace")), sure=False)


def may_hold(data: bytes) -> bool:
    """Whether any of the texts that are lines of `data` may order its reader about."""
    return len(data) > LONGEST or _shipped().may_hold(data.decode("utf-8", "replace"))


def sentences(text: str) -> list[Sentence]:
    """The sentences of a text that have some words: lines of it, and what ends in a mark and a blank."""
    lined = text.replace(". ", ".\n").replace("! ", "!\n").replace("? ", "?\n")
    if not text.isascii():
        lined = lined.replace("。", "\n").replace("！", "\n").replace("？", "\n")
    found, at = [], 0
    for line, words in zip(lined.split("\n"), _spaced(lined).split("\n"), strict=True):
        cut = [word[:_LETTERS] for word in words.split()]
        if len(cut) >= _LEAST_WORDS:
            found.append(Sentence(at, at + len(line), cut[:_MOST_WORDS]))
        at += len(line) + 1
    return found


def _spaced(text: str) -> str:
    """A text in small letters with blanks around its words; letters of scripts without blanks and `_MARKS` are some."""
    lowered = text.lower()
    if not lowered.isascii():
        for mark in _OTHER_BLANKS:
            lowered = lowered.replace(mark, " ")
        if _UNSPACED.search(lowered) is not None:
            lowered = "".join(f" {char} " if char >= _FIRST_UNSPACED else char for char in lowered)
    lowered = lowered.encode("utf-8", "replace").translate(_BLANKS).decode()
    for mark in _MARKS:
        lowered = lowered.replace(mark, f" {mark} ")
    return lowered


def share(words: Sequence[str]) -> float:
    """What one of its words counts in a sentence."""
    return float(_SCALE * (len(words) + _SMOOTHED) ** -_DILUTED)


def kinds_in(sentence: str) -> list[str]:
    """What a sentence says, in kinds of the vocabulary."""
    kinds, automaton = _vocabulary()
    return [kinds[place] for place in automaton.Match(sentence.encode("utf-8", "replace")) or ()]


def read_weights(text: bytes) -> OrderWeights:
    """Weights as they are written; raises `ConfigError` for what is none."""
    try:
        return decode(text, OrderWeights)
    except msgspec.DecodeError as error:
        raise ConfigError((Problem(message=f"the weights of orders cannot be read: {error}"),)) from error


def weights_path() -> Path:
    """The file of the weights, inside the wheel or beside the source tree."""
    return shipped_folder("data/orders") / "weights.json"


@cache
def _shipped() -> OrderScorer:
    return OrderScorer(read_weights(weights_path().read_bytes()))


# Kinds of the vocabulary that tell orders from what people write to people.
KINDS: Final = (
    "device", "calls_tool", "told", "steer", "pressing", "program", "actor", "owned", "cast", "waived", "utter",
    "place", "machine", "helper", "remote", "beforehand", "greeting", "reading", "thing", "vault", "besides", "fills",
    "hush", "tells", "serious", "duty", "person",
)  # fmt: skip


@cache
def _vocabulary() -> tuple[tuple[str, ...], Any]:
    """One automaton that finds all kinds at once, and their names by place."""
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    automaton = re2.Set.SearchSet(options)
    for kind in KINDS:
        automaton.Add(pattern_of(kind).encode())
    automaton.Compile()
    return KINDS, automaton
