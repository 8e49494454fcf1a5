"""How likely a call with structured arguments does what an operator would want to be asked about, by learned weights.

Beside the deeds that are known by name (`data/tools`), a call is weighed by the words of its tool, the names of its
members, their values, and each value together with the words of its name and of the tool. The weights come from
`python -m benchmarks.calls` and are data. What scores enough is likely dangerous, never surely.

Work is linear: every word is looked up once, of a bounded number of short values.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice, pairwise
from math import sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from aegis.core.json import decode, escape
from aegis.core.patterns import Lazy
from aegis.core.shipped import shipped_folder
from aegis.errors import ConfigError, Problem

MOST_VALUES: Final = 48  # of one call that are weighed
_DEEPEST: Final = 8
_MOST_ITEMS: Final = 12  # of one list
_FEW: Final = 5  # items that are still some
_LONGEST: Final = 160  # characters of a value that is no text for people
_MOST_TOKENS: Final = 16  # of one value
_BRIEF: Final = 4  # tokens of a value that says one thing
_MOST_WORDS: Final = 8  # of one name
_SCALE: Final = 5.0
_LEAST_NAMED: Final = 1.0  # of what a call scores that words add, or values for their names: numbers alone say nothing
_FEWEST: Final = 24  # features of a call that says something; fewer weigh as little as in one of so many
_WORD: Final = Lazy(r"[A-Z]?[a-z]+|[A-Z]+|\d+|\p{L}+")
_NUMBER: Final = Lazy(r"^-?\d{1,15}(?:\.\d{1,15})?$")
_NETWORK: Final = Lazy(r"^\d{1,3}(?:\.\d{1,3}){3}/(\d{1,2})$")
_NUMERIC: Final = frozenset("-0123456789")
_SIZES: Final = ((10, "unit"), (100, "ten"), (1_000, "hundred"), (10_000, "thousand"), (1_000_000, "many"))
# An address where everybody can have one: of a customer or of a stranger, which the name of its member tells alone.
_OF_A_PERSON: Final = Lazy(
    r"(?i)^\s*[\w.+-]{1,64}@(?:gmail|googlemail|yahoo|ymail|outlook|hotmail|live|msn|icloud|me|aol|gmx|web|mail|yandex|"
    r"proton|protonmail|pm|tutanota|tuta|fastmail|zoho|libero|orange|free|wanadoo|qq|163|126|naver|hey)"
    r"\.(?:com|net|org|de|at|ch|fr|it|es|me|ru|io|co|uk|jp|br|in|co\.(?:uk|jp|in)|com\.(?:br|au|mx))\s*$"
)
FREE: Final = "#person"
_BARE: Final = frozenset({  # tokens that say something by the name of their member alone
    "n0", "n1", "negative", "part", "unit", "ten", "hundred", "thousand", "many", "millions", "written", "empty",
    "nothing", "[]", "{}", "true", "false", "#some", "#several",
})  # fmt: skip
# Uploads that never ended, which nobody has as an object, and what a mail is no longer filed under.
_OF_NOBODY: Final = frozenset({"AbortIncompleteMultipartUpload", "removeLabelIds"})
MOST_READ: Final = 4_096  # characters of a call's running text that are weighed
_APART: Final = str.maketrans({mark: f" {mark} " for mark in "!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~"})
_PLAIN: Final = str.maketrans(dict.fromkeys("!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~", " "))
_BLANKS: Final = str.maketrans(dict.fromkeys("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\t\n\r", " "))


_NOTHING: Final[Mapping[str, int]] = {}


class CallWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned: the score of a dangerous call, where a call starts from, and hundredths by feature.

    `tools` are words of a tool, `values` tokens of values, `members` tokens by a word of the member's name.
    """

    about: str
    least: float
    start: float
    tools: dict[str, int]
    values: dict[str, int]
    members: dict[str, dict[str, int]]


class TextWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned of running text: hundredths by token, and by each two of a line that follow one another."""

    about: str
    least: float
    start: float
    tokens: dict[str, int]
    pairs: dict[str, dict[str, int]]


class Weighed(NamedTuple):
    """One value of a call: where it stands, as the place of what holds it and its key there, its name and tokens."""

    place: Any
    name: str
    value: Any
    tokens: tuple[str, ...]

    @property
    def pointer(self) -> str:
        return _pointer(self.place)


class SaidLine(NamedTuple):
    """One line that a call says, and where it stands."""

    place: Any
    line: str

    @property
    def pointer(self) -> str:
        return _pointer(self.place)

    @property
    def tokens(self) -> list[str]:
        """The words of the line and the marks between them."""
        return self.line.lower().translate(_APART).split()


def _pointer(place: Any) -> str:
    keys: list[str] = []
    while place:
        place, key = place
        keys.append(escape(str(key)))
    return "".join(f"/{key}" for key in reversed(keys))


class Score(NamedTuple):
    """What a call scores, what of it words add and values for their names, and the value that adds most."""

    total: float
    named: float
    strongest: Weighed | None


class Likely(NamedTuple):
    """A call that scores enough: the pointer of the member that adds most, and what shows it."""

    pointer: str
    shown: str


class CallScorer:
    """Scores calls by the weights that it was given."""

    def __init__(self, weights: CallWeights):
        self.weights = weights

    def score(self, tool: str, arguments: Mapping[str, Any]) -> Score:
        """What a call scores, and the value that adds most to it."""
        weights = self.weights
        words = words_in(tool)
        total = sum([weights.tools.get(word, 0) for word in words])
        by_value, by_member = weights.values, weights.members
        seen: set[str] = set()
        members: set[tuple[str, str]] = set()
        strongest: Weighed | None = None
        most = named = 0
        for one in values_of(arguments):
            tokens = one.tokens
            added = 0
            for token in tokens:
                if token not in seen:
                    seen.add(token)
                    weight = by_value.get(token, 0)
                    added += weight
                    if weight > 0 and token not in _BARE:
                        named += weight
            for word in words_in(one.name):
                known = by_member.get(word, _NOTHING)
                for token in tokens:
                    pair = (word, token)
                    if pair not in members:
                        members.add(pair)
                        weight = known.get(token, 0)
                        added += weight
                        if weight > 0:
                            named += weight
            total += added
            if added > most:
                most, strongest = added, one
        each = weight_of(len(words) + len(seen) + len(members)) / 100
        return Score(weights.start + total * each, named * each, strongest)

    def likely(self, tool: str, arguments: Mapping[str, Any]) -> Likely | None:
        """What shows that a call is likely dangerous; nothing where it scores less than that needs."""
        score, named, strongest = self.score(tool, arguments)
        if strongest is None or score < self.weights.least or named < _LEAST_NAMED:
            return None
        return Likely(strongest.pointer, f"{tool} {strongest.name}={strongest.value}"[:_LONGEST])


class TextScorer:
    """Scores what a call says in running text, programs and commands among it, by the weights that it was given."""

    def __init__(self, weights: TextWeights):
        self.weights = weights

    def score(self, tool: str, arguments: Mapping[str, Any]) -> float:
        """What the text of a call scores."""
        tokens, pairs = tokens_and_pairs(said_in(tool, arguments))
        return self.weights.start + self._added(tokens, pairs) * weight_of(len(tokens) + len(pairs)) / 100

    def likely(self, tool: str, arguments: Mapping[str, Any]) -> Likely | None:
        """The line that adds most to a call that is likely dangerous; nothing where it scores less than that needs."""
        if self.score(tool, arguments) < self.weights.least:
            return None
        strongest = max(said_in(tool, arguments), key=lambda said: self._added(*tokens_and_pairs([said])))
        return Likely(strongest.pointer, strongest.line.strip()[:_LONGEST])

    def _added(self, tokens: Iterable[str], pairs: Iterable[tuple[str, str]]) -> int:
        """The hundredths that tokens and pairs add, without what each counts."""
        known, following = self.weights.tokens, self.weights.pairs
        alone = sum([known.get(token, 0) for token in tokens])
        return alone + sum([following.get(first, _NOTHING).get(second, 0) for first, second in pairs])


def said_in(tool: str, arguments: Mapping[str, Any]) -> Iterator[SaidLine]:
    """What a call says, line by line, as far as it is weighed: its tool, and each value behind its name."""
    yield SaidLine((), tool)
    waiting: list[tuple[Any, str, Any]] = [((), "", arguments)]
    left = MOST_READ
    while waiting and left > 0:
        place, name, value = waiting.pop()
        left -= 1
        if isinstance(value, Mapping):
            inner = islice(value.items(), MOST_VALUES)
            waiting += reversed([((place, key), str(key), one) for key, one in inner])
        elif isinstance(value, list) and not all(isinstance(one, str) for one in value):
            waiting += reversed([((place, at), name, one) for at, one in enumerate(value[:MOST_VALUES])])
        else:
            told = shlex.join(value[:MOST_VALUES]) if isinstance(value, list) else str(value)
            for line in f"{name}: {told[:left]}".split("\n"):
                yield SaidLine(place, line)
            left -= len(told)


def tokens_and_pairs(lines: Iterable[SaidLine]) -> tuple[set[str], set[tuple[str, str]]]:
    """The tokens of lines and each two of a line that follow one another, each once.

    The words that a name is put together from are tokens as well, marked as such: `~delete` of `deleteBucket`.
    """
    tokens: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    read: list[str] = []
    for said in lines:
        following = said.tokens
        tokens.update(following)
        pairs.update(pairwise(following))
        read.append(said.line)
    for name in set(" ".join(read).translate(_PLAIN).split()):
        if "_" in name or not (name.islower() or name.isupper() or name.istitle() or name.isdigit()):
            tokens.update(_parts(name))
    return tokens, pairs


@lru_cache(maxsize=8_192)
def _parts(name: str) -> tuple[str, ...]:
    words = words_in(name)
    return tuple([f"~{word}" for word in words]) if len(words) > 1 else ()


def weight_of(count: int) -> float:
    """What each of the features of a call counts: the less the more there are, so that length is no danger."""
    return _SCALE / sqrt(max(_FEWEST, count))


def features_of(tool: str, arguments: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """Every feature of a call, as kind and words: what weights are learned for."""
    found = {("tools", word, "") for word in words_in(tool)}
    for one in values_of(arguments):
        found.update(("values", token, "") for token in one.tokens if token != FREE)
        found.update(("members", word, token) for word in words_in(one.name) for token in one.tokens)
    return found


def values_of(arguments: Mapping[str, Any]) -> Iterator[Weighed]:
    """The values of a call in their order, as far as they are weighed."""
    waiting: list[tuple[Any, str, Any, int]] = [((), "", arguments, 0)]
    found = 0
    while waiting and found < MOST_VALUES:
        place, name, value, depth = waiting.pop()
        if type(value) is str:
            tokens = _tokens(value) if len(value) <= _LONGEST else ()
        elif isinstance(value, Mapping) and value and depth < _DEEPEST:
            inner = [one for one in list(value.items())[:MOST_VALUES] if one[0] not in _OF_NOBODY]
            waiting += [((place, key), str(key), one, depth + 1) for key, one in reversed(inner)]
            continue
        elif isinstance(value, list) and value and depth < _DEEPEST:
            items = list(enumerate(value[:_MOST_ITEMS]))
            if all(isinstance(one, list) for one in value):  # rows: how many, and empty cells, say nothing
                cells = [((place, at), to, one) for at, row in items for to, one in enumerate(row[:_MOST_ITEMS])]
                waiting += [((row, to), name, one, depth + 2) for row, to, one in reversed(cells) if one or one == 0]
                continue
            waiting += [((place, at), name, one, depth + 1) for at, one in reversed(items)]
            if len(value) == 1:
                continue
            tokens = ("#some",) if len(value) < _FEW else ("#several",)
        else:
            tokens = tokens_of(value)
        if tokens:
            found += 1
            yield Weighed(place, name, value, tokens)


@lru_cache(maxsize=8_192)
def words_in(name: str) -> tuple[str, ...]:
    """The words of a name, in small letters and each once."""
    return tuple(dict.fromkeys(word.lower() for word in _WORD.findall(name[:_LONGEST])[:_MOST_WORDS]))


def tokens_of(value: Any) -> tuple[str, ...]:
    """What a value is told by: a switch, the size of a number, the words of a text; nothing for a text for people."""
    if isinstance(value, bool):
        return ("true",) if value else ("false",)
    if isinstance(value, (int, float)):
        return (_size(value),)
    if isinstance(value, str):
        return _tokens(value) if len(value) <= _LONGEST else ()
    return ("nothing",) if value is None else ("{}",) if isinstance(value, Mapping) else ("[]",)


@lru_cache(maxsize=8_192)
def _tokens(value: str) -> tuple[str, ...]:
    if not value.strip():
        return ("empty",)
    if value[0] in _NUMERIC:
        if _NUMBER.match(value) is not None:
            return (_size(float(value)), "written")
        network = _NETWORK.match(value)
        if network is not None:
            return ("network", f"/{network.group(1)}")
    if value[0] == "-":  # an option of a program, which is no name of what it is done to
        return ("option",)
    if "@" in value and _OF_A_PERSON.match(value) is not None:
        return ("mail", FREE)
    lowered = value.lower()
    plain = lowered.translate(_BLANKS) if lowered.isascii() else "".join(_letter(char) for char in lowered)
    words = plain.split()
    found = dict.fromkeys(words[:_MOST_TOKENS])
    if "*" in value:
        found["*" if value.strip() == "*" else "has*"] = None
    if value == "/":
        found["/"] = None
    if "://" in value:
        found["url"] = None
    if "@" in value:
        found["mail"] = None
    if 0 < len(words) <= _BRIEF:
        found[f"={''.join(words)}"] = None
    return tuple(found)


def _letter(char: str) -> str:
    return char if char.isalnum() else " "


def _size(number: float) -> str:
    """The size of a number: two of a kind are as dangerous as each other."""
    if number in (0, 1):
        return f"n{int(number)}"
    if number < 0:
        return "negative"
    if number < 1:
        return "part"
    return next((name for below, name in _SIZES if number < below), "millions")


_Weights = TypeVar("_Weights", CallWeights, TextWeights)


def read_weights(data: bytes, kind: type[_Weights]) -> _Weights:
    """The weights that a file holds; raises `ConfigError` for what is none."""
    try:
        return decode(data, kind)
    except msgspec.DecodeError as error:
        raise ConfigError((Problem(message=f"the weights of calls cannot be read: {error}"),)) from error


def weights_path(name: str) -> Path:
    """The file of the weights of `calls` or of `texts`, inside the wheel or beside the source tree."""
    return shipped_folder("data/likely") / f"{name}.json"


@cache
def shipped() -> CallScorer:
    """The scorer with the weights that ship with Aegis."""
    return CallScorer(read_weights(weights_path("calls").read_bytes(), CallWeights))


@cache
def shipped_for_text() -> TextScorer:
    """The scorer of running text with the weights that ship with Aegis."""
    return TextScorer(read_weights(weights_path("texts").read_bytes(), TextWeights))
