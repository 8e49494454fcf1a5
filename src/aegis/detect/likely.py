"""How likely a call does what an operator would want to be asked about, by learned weights.

Beside what rules know, a call is weighed by what it says in running text (words, marks and which follow one another),
by the words of its tool, and by its values together with the words of their names. The weights come from
`python -m benchmarks.calls` and are data. What scores enough is likely dangerous, never surely.

Work is linear and bounded: every word is looked up once, of a bounded piece of the text.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice, pairwise, repeat
from math import sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple

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
_FREE: Final = "#person"
_BARE: Final = frozenset({  # tokens that say something by the name of their member alone
    "n0", "n1", "negative", "part", "unit", "ten", "hundred", "thousand", "many", "millions", "written", "empty",
    "nothing", "[]", "{}", "true", "false", "#some", "#several",
})  # fmt: skip
# Uploads that never ended, which nobody has as an object, and what a mail is no longer filed under.
_OF_NOBODY: Final = frozenset({"AbortIncompleteMultipartUpload", "removeLabelIds"})
MOST_READ: Final = 4_096  # characters of a call's running text that are weighed
_MARKS: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~")
_PASSED_OVER: Final = _MARKS - frozenset("$*/~")  # between the words of a phrase
_PLAIN: Final = str.maketrans(dict.fromkeys(_MARKS, " "))
_BLANKS: Final = str.maketrans(dict.fromkeys(_MARKS | frozenset("_\t\n\r"), " "))


_NOTHING: Final[Mapping[str, int]] = {}


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned: the score of a dangerous call, where a call starts from, and hundredths by feature.

    `tokens` are words and marks of running text, `pairs` each two of a line that follow one another, `phrases` each two
    words with whatever marks between; `tools` are words of a tool, `values` what a value is told by, and `members` that
    by a word of the member's name.
    """

    about: str
    least: float
    start: float
    tokens: dict[str, int]
    pairs: dict[str, dict[str, int]]
    phrases: dict[str, dict[str, int]]
    tools: dict[str, int]
    values: dict[str, int]
    members: dict[str, dict[str, int]]


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
        line = self.line.lower()
        for mark in _MARKS.intersection(line):
            line = line.replace(mark, f" {mark} ")
        return line.split()


def _pointer(place: Any) -> str:
    keys: list[str] = []
    while place:
        place, key = place
        keys.append(escape(str(key)))
    return "".join(f"/{key}" for key in reversed(keys))


class Features(NamedTuple):
    """What a call is weighed by, each once; see `Weights`."""

    tokens: set[str]
    pairs: set[tuple[str, str]]
    phrases: set[tuple[str, str]]
    tools: tuple[str, ...]
    values: set[str]
    members: set[tuple[str, str]]

    @property
    def many(self) -> int:
        """How many there are."""
        alone = len(self.tokens) + len(self.tools) + len(self.values)
        return alone + len(self.pairs) + len(self.phrases) + len(self.members)

    @property
    def names(self) -> Iterator[str]:
        """Each feature as its kind and its words: what weights are learned for."""
        for kind, words in (("tokens", self.tokens), ("tools", self.tools), ("values", self.values)):
            yield from [f"{kind} {word}" for word in words]
        for kind, twos in (("pairs", self.pairs), ("phrases", self.phrases), ("members", self.members)):
            yield from [f"{kind} {first} {second}" for first, second in twos]


class Likely(NamedTuple):
    """A call that scores enough: the pointer of the member that adds most, and what shows it."""

    pointer: str
    shown: str


class Scorer:
    """Scores calls by the weights that it was given."""

    def __init__(self, weights: Weights):
        self.weights = weights

    def score(self, tool: str, arguments: Mapping[str, Any]) -> float:
        """What a call scores."""
        features = features_of(tool, arguments)
        return self.weights.start + self._added(features) * weight_of(features.many) / 100

    def likely(self, tool: str, arguments: Mapping[str, Any]) -> Likely | None:
        """The line or value that adds most to a call that is likely dangerous; nothing where it scores less."""
        if self.score(tool, arguments) < self.weights.least:
            return None
        said = max(said_in(tool, arguments), key=lambda one: self._added(_in_lines([one])))
        value = max(values_of(arguments), key=lambda one: self._added(_in_values([one])), default=None)
        if value is None or self._added(_in_lines([said])) >= self._added(_in_values([value])):
            return Likely(said.pointer, said.line.strip()[:_LONGEST])
        return Likely(value.pointer, f"{tool} {value.name}={value.value}"[:_LONGEST])

    def _added(self, features: Features) -> int:
        """The hundredths that features add, without what each counts."""
        weights = self.weights
        return (
            _sum(weights.tokens, features.tokens)
            + _sum_of_two(weights.pairs, features.pairs)
            + _sum_of_two(weights.phrases, features.phrases)
            + _sum(weights.tools, features.tools)
            + _sum(weights.values, features.values)
            + _sum_of_two(weights.members, features.members)
        )


def _sum(weights: Mapping[str, int], found: Iterable[str]) -> int:
    return sum(map(weights.get, found, repeat(0)))


def _sum_of_two(weights: Mapping[str, Mapping[str, int]], found: Iterable[tuple[str, str]]) -> int:
    return sum([weights.get(first, _NOTHING).get(second, 0) for first, second in found])


def features_of(tool: str, arguments: Mapping[str, Any]) -> Features:
    """Every feature of a call."""
    lines, values = _in_lines(said_in(tool, arguments)), _in_values(values_of(arguments))
    return lines._replace(tools=words_in(tool), values=values.values, members=values.members)


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


def _in_lines(lines: Iterable[SaidLine]) -> Features:
    """What lines are weighed by.

    The words that a name is put together from are tokens as well, marked as such: `~delete` of `deleteBucket`.
    """
    tokens: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    phrases: set[tuple[str, str]] = set()
    read: list[str] = []
    for said in lines:
        following = said.tokens
        tokens.update(following)
        pairs.update(pairwise(following))
        phrases.update(pairwise([token for token in following if token not in _PASSED_OVER]))
        read.append(said.line)
    for name in set(" ".join(read).translate(_PLAIN).split()):
        if "_" in name or not (name.islower() or name.isupper() or name.istitle() or name.isdigit()):
            tokens.update(_parts(name))
    return Features(tokens, pairs, phrases, (), set(), set())


def _in_values(values: Iterable[Weighed]) -> Features:
    """What values are weighed by: their kinds, and all that they are told by with the words of their names."""
    kinds: set[str] = set()
    members: set[tuple[str, str]] = set()
    for one in values:
        kinds.update([token for token in one.tokens if token in _BARE or token[0] in "=/"])
        for word in words_in(one.name):
            members.update([(word, token) for token in one.tokens])
    return Features(set(), set(), set(), (), kinds, members)


@lru_cache(maxsize=8_192)
def _parts(name: str) -> tuple[str, ...]:
    words = words_in(name)
    # A letter or a figure alone is a piece of a key or a hash, and tells nothing of either.
    return tuple([f"~{word}" for word in words if len(word) > 1]) if len(words) > 1 else ()


def weight_of(count: int) -> float:
    """What each of the features of a call counts: the less the more there are, so that length is no danger."""
    return _SCALE / sqrt(max(_FEWEST, count))


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
        return ("mail", _FREE)
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


def read_weights(data: bytes) -> Weights:
    """The weights that a file holds; raises `ConfigError` for what is none."""
    try:
        return decode(data, Weights)
    except msgspec.DecodeError as error:
        raise ConfigError((Problem(message=f"the weights of calls cannot be read: {error}"),)) from error


def weights_path() -> Path:
    """The file of the weights, inside the wheel or beside the source tree."""
    return shipped_folder("data/likely") / "calls.json"


@cache
def shipped() -> Scorer:
    """The scorer with the weights that ship with Aegis."""
    return Scorer(read_weights(weights_path().read_bytes()))
