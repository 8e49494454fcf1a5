"""What is remembered of one result, and what a session knows from all of them: hashes, paths and flags, no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, pairwise, repeat
from operator import add
from typing import Any, Final, NamedTuple

import orjson
from msgspec import Struct

from aegis.core.json import escape
from aegis.core.names import glob_match
from aegis.policy.dataflow.declare import FIELDS, FieldTrust, ToolFlow, Trust, name_words
from aegis.policy.dataflow.forms import has_digit, shape_of
from aegis.policy.dataflow.orders import MAX_SPANS, names_in, spans_of
from aegis.policy.dataflow.values import (
    JoinedTexts,
    TypedValue,
    find_all,
    keyed,
    keyed_all,
    normal_texts,
    normalise,
    tokens,
)
from aegis.policy.dataflow.words import TrustedWords

MAX_VALUES: Final = 4_096  # of a session: with the other caps, what results of any size can make us keep
MAX_DOCUMENTS: Final = 512
MAX_SHINGLES: Final = 16_384
MAX_OF_RESULT: Final = 1_024  # values of one result
MAX_READ: Final = 262_144  # characters of one result: beyond it the session is saturated
MAX_STRINGS: Final = 4_096  # of one result
MAX_LINES: Final = 1_024  # lines of one text that are values by themselves
_SPAN_WORDS: Final = 48
_SPAN_NAMES: Final = 16
_LONGEST_NAME: Final = 40  # characters of a field's name in a text
_ONE_MARK: Final = str.maketrans(",;|", "\t\t\t")  # what divides the cells of a line
_MAX_CELLS: Final = 16  # of one line
_SHORT: Final = 96  # characters of a field that is a value and no text
_FEW: Final = 6  # words of one
_ACCOUNTS: Final = 9_999_999  # numbers above it can be accounts
_SMALL: Final = 128  # characters of a text that is remembered as a whole

TRUSTED: Final = 1
STRUCTURED: Final = 2
NAMED: Final = 4  # in a document that the user named
INSTRUCTION: Final = 8  # inside of what reads like an instruction
SECRET: Final = 16
HEADLINE: Final = 32  # a short field that people write, such as a title, as a whole

_WORDS_KNOWN: Final = 16_384  # words whose hashes a process remembers: most words stand in text after text
_BITS: Final = 2**64 - 1


class ValueOrigin(NamedTuple):
    """Where a value stands: the number of its document, the path in it, and its flags."""

    document: int
    path: str
    flags: int


class ResultReading(Struct, frozen=True, array_like=True):
    """What is remembered of one result: hash, path and flags of each value, and shingles of what reads like orders."""

    values: tuple[tuple[int, str, int], ...] = ()
    shingles: tuple[int, ...] = ()
    spans: int = 0
    saturated: bool = False
    text: bool = False  # whether anything of it is somebody else's word


class ReadDocument(Struct, frozen=True, array_like=True):
    """One result as the session remembers it; `tool` is `tool` or `server/tool`."""

    receipt: str
    tool: str
    trust: str
    sensitivity: str
    named: bool


class FlowGrant(Struct, frozen=True, kw_only=True):
    """What a person granted for a session: a document may name values of a kind at a sink, or a deed is asked for."""

    id: str
    document: str = ""
    place: str = ""  # the field in it; what other fields of the document hold is not granted
    sink: str = ""
    kind: str = ""
    does: str = ""
    tool: str = ""  # of a deed of no known kind: the only tool of it


class Stray(NamedTuple):
    """How far one call is from the user's words (0 to 100), whether it acts, and whether it does so unlicensed."""

    drift: int
    acts: bool
    strays: bool


@dataclass(kw_only=True)
class SessionView:
    """What guards know of a session. The collections grow with it and are nobody's to change.

    `drift` is the furthest of the calls so far; `acting` of them acted, `strays` without licence. `stray` is what was
    made of the call that is looked at. `measured` is how far what tools are called is from the words, 0 to 100,
    where an embedding model told it.
    """

    id: str = ""
    plan: str = ""  # the key of the session whose declared plan binds this one
    owner: str = ""  # the person for whom it runs, where its host said so
    key: bytes = b""
    words: TrustedWords | None = None
    values: dict[int, tuple[ValueOrigin, ...]] = field(default_factory=dict)
    documents: list[ReadDocument] = field(default_factory=list)
    shingles: set[int] = field(default_factory=set)
    labels: frozenset[str] = frozenset()
    untrusted: bool = False
    saturated: bool = False
    sources: frozenset[str] = frozenset()
    effects: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    calls: int = 0
    denials: int = 0
    turns: int = 0
    drift: int = 0
    acting: int = 0
    strays: int = 0
    stray: Stray | None = None
    measured: Mapping[str, int] = field(default_factory=dict)
    hands_off: bool = False  # whether the host says that the call that is looked at lets another agent go on
    reads: int = 0
    ended: bool = False
    spans: int = 0
    grants: tuple[FlowGrant, ...] = ()
    candidates: dict[tuple[int, str], int] = field(default_factory=dict)  # values of a family in a document
    lists: set[int] = field(default_factory=set)  # documents that have several records
    fields: set[str] = field(default_factory=set)  # families of which a field of a document that the user named has one

    def of_now(self) -> SessionView:
        """The view with the counts of this moment; what grows is shared."""
        view = object.__new__(SessionView)
        view.__dict__.update(self.__dict__)
        return view

    def grants_deed(self, does: str, tool: str) -> bool:
        """Whether a person granted deeds of this kind; where no kind is known, those of this tool."""
        return any(grant.does == does and grant.tool in {"", tool} for grant in self.grants)

    def candidates_in(self, document: int, family: str) -> int:
        """How many values of a family a document has that no instruction in it names."""
        return self.candidates.get((document, family), 0)

    def origins(self, family: str, normal: str) -> tuple[ValueOrigin, ...]:
        """Where a value stands in what was read."""
        return self.values.get(keyed(self.key, family, normal), ())

    def add(self, document: ReadDocument, reading: ResultReading) -> None:
        """Take in one result; what goes beyond a cap is not kept and saturates the session."""
        self.saturated = self.saturated or reading.saturated
        if len(self.documents) >= MAX_DOCUMENTS:
            self.saturated = True
            return
        number = len(self.documents)
        self.documents.append(document)
        for hashed, path, flags in reading.values:
            if not flags & INSTRUCTION and (family := _FAMILY_OF.get(flags >> _FAMILY_BITS)):
                self.candidates[number, family] = self.candidates.get((number, family), 0) + 1
                if document.named and flags & (STRUCTURED | TRUSTED):
                    self.fields.add("n" if family == "w" else family)  # who is paid has an account or a wallet
            if "/1" in path:
                self.lists.add(number)
            known = self.values.get(hashed, ())
            if not known and len(self.values) >= MAX_VALUES:
                self.saturated = True
                break
            if len(known) < _MOST_ORIGINS:
                self.values[hashed] = (*known, ValueOrigin(number, path, flags | (NAMED if document.named else 0)))
        if reading.spans:
            if self.spans >= MAX_SPANS or len(self.shingles) + len(reading.shingles) > MAX_SHINGLES:
                self.saturated = True
            else:
                self.spans += reading.spans
                self.shingles.update(reading.shingles)


_NO_FIELD: Final = ~(STRUCTURED | HEADLINE)  # what a value in a text is not
_MOST_ORIGINS: Final = 8
_FAMILY_BITS: Final = 8  # above the flags stands the number of a value's family
_FAMILY_OF: Final = {1: "e", 2: "u", 3: "n", 4: "w"}
_NUMBER_OF: Final = {family: number << _FAMILY_BITS for number, family in _FAMILY_OF.items()}


def is_field(origin: ValueOrigin) -> bool:
    """Whether a value is a field that is no prose, or a title of what the user named."""
    named = origin.flags & HEADLINE and origin.flags & NAMED
    return bool(origin.flags & (STRUCTURED | TRUSTED) or named)


def record_of(path: str) -> str:
    """The place of the record in a list that a value stands in; empty where it stands in none."""
    parts = path.split("/")
    last = next((at for at in range(len(parts) - 1, 0, -1) if parts[at].isdigit()), 0)
    return "/".join(parts[: last + 1]) if last else ""


# One text or number of a result: where it stands, and its flags as a short field and as anything longer.
_Leaf = tuple[str | int | float, str, tuple[int, int]]


class _Taking:
    """Collects what one result holds: its leaves first, then each text that differs is looked at once."""

    def __init__(self, flow: ToolFlow, trust: Trust):
        self.trust = trust
        self.fields = flow.result.fields
        self.values: dict[str, tuple[str, int]] = {}  # by family and normal form
        self.spans: list[str] = []
        self.left = MAX_READ
        self.saturated = False
        self.text = False
        self.leaves: list[_Leaf] = []
        self.names: dict[str, tuple[str, tuple[int, int]]] = {}  # of undeclared fields

    def walk(self, value: Any, path: str, dotted: str, name: str, depth: int) -> None:
        """Collect the leaves below a value, as many as are read; `dotted` is told where fields are declared."""
        if depth > 32 or len(self.leaves) >= MAX_STRINGS or self.left <= 0:
            self.saturated = True
            return
        if isinstance(value, dict):
            self.members(value, path, dotted, depth + 1)
        elif isinstance(value, list):
            names = self.names
            if not self.fields and (keys := _identifying(value)):
                plain = {key: (_token(key), self.flags("-", "id")) for key in keys}
                self.names = {**names, **plain}
            for number, held in enumerate(value):
                below = (f"{dotted}.{number}" if dotted else str(number)) if self.fields else "-"
                self.walk(held, f"{path}/{number}", below, name, depth + 1)
            self.names = names
        elif isinstance(value, str):
            if len(value) > self.left:
                value, self.saturated = value[: self.left], True
            self.left -= len(value)
            self.leaves.append((value, path, self.flags(dotted, name)))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            self.leaves.append((value, path, self.flags(dotted, name)))

    def members(self, record: dict[str, Any], path: str, dotted: str, depth: int) -> None:
        """`walk` of each member. Short texts of fields that nobody declared are most of what tools return."""
        names, leaves, declared = self.names, self.leaves, bool(self.fields)
        plain = depth <= 32 and not declared
        for inner, held in record.items():
            known = names.get(inner)
            if known is None:
                known = names[inner] = (_token(inner), self.flags("" if declared else "-", inner))
            token, flags = known
            kind = type(held)
            size = len(held) if kind is str else 0 if kind is int or kind is float else MAX_READ
            if plain and size < self.left and len(leaves) < MAX_STRINGS:
                self.left -= size
                leaves.append((held, f"{path}/{token}", flags))
            else:
                below = (f"{dotted}.{inner}" if dotted else inner) if declared else "-"
                self.walk(held, f"{path}/{token}", below, inner, depth)

    def flags(self, dotted: str, name: str) -> tuple[int, int]:
        """Trust of a field: declared, else by the tool's trust; a short value of a mixed result is structured."""
        told: FieldTrust | None = None
        if self.fields and dotted:
            told = next((trust for field, trust in self.fields.items() if glob_match(field, dotted)), None)
        secret, is_prose = _named_so(name)
        if told == "trusted" or (told is None and self.trust == "trusted"):
            return (secret | TRUSTED | STRUCTURED,) * 2
        if told == "structured":
            return (secret | STRUCTURED,) * 2
        if told is None and self.trust == "mixed" and dotted:
            return secret | (_headline(name) if is_prose else STRUCTURED), secret
        return secret, secret

    def take(self) -> None:
        """Keep what the leaves hold."""
        distinct = list(dict.fromkeys([leaf[0] for leaf in self.leaves if isinstance(leaf[0], str)]))
        long = {text for text in distinct if len(text) > _SHORT or text.count(" ") >= _FEW}
        small = [text for text in distinct if len(text) <= _SMALL]
        wholes = {text: f"t{plain}" for text, plain in zip(small, normal_texts(small), strict=True) if plain}
        typed = {
            text: _in_text(text, one)
            for text, one in zip(distinct, find_all(JoinedTexts(distinct)), strict=True)
            if one
        }
        flagged = [flags[value in long] for value, _, flags in self.leaves]
        prose = dict.fromkeys(
            [
                leaf[0]
                for leaf, flags in zip(self.leaves, flagged, strict=True)
                if not flags & STRUCTURED and isinstance(leaf[0], str)
            ]
        )
        spans = {text: one for text, one in zip(prose, spans_of(JoinedTexts(list(prose))), strict=True) if one}
        values = self.values
        for (value, path, _), flags in zip(self.leaves, flagged, strict=True):
            if not isinstance(value, str):
                self.number(value, path, flags)
                continue
            whole = wholes.get(value)
            if whole is not None:
                known = values.get(whole)
                if known is None or known[1] != flags:
                    self.keep(whole, path, flags)
            if value in typed:
                self.typed(value, path, flags, typed[value], spans.get(value, ()))
            if not flags & STRUCTURED and (not self.text or value in spans or len(value) > _SHORT or "\n" in value):
                self.prose(value, path, flags, spans.get(value, ()))

    def number(self, value: float, path: str, flags: int) -> None:
        """Keep a number; a long one can be an account."""
        self.keep(f"t{value}", path, flags)
        if isinstance(value, int) and abs(value) > _ACCOUNTS:
            self.keep(f"n{abs(value)}", path, flags | _NUMBER_OF["n"])

    def typed(
        self, text: str, path: str, flags: int, found: Sequence[_InText], spans: Sequence[tuple[int, int]]
    ) -> None:
        """Keep the values of a text; one that is not the whole of it stands in no field."""
        for place, number, start, is_whole in found:
            told = number | (flags if is_whole or flags & TRUSTED else flags & _NO_FIELD)
            if spans and any(begin <= start < end for begin, end in spans):
                told |= INSTRUCTION
            known = self.values.get(place)
            if known is None or known[1] != told:
                self.keep(place, path if is_whole else f"{path}{_label_at(text, start)}", told)

    def prose(self, text: str, path: str, flags: int, spans: Sequence[tuple[int, int]]) -> None:
        """Keep the lines of a text that somebody wrote, and what of it reads like an order."""
        self.text = self.text or bool(text.strip())
        if "\n" in text or len(text) > _SMALL:
            for line in text.split("\n", MAX_LINES)[:MAX_LINES]:
                if len(line) <= _SHORT:
                    name, said = _line_value(line)
                    place = f"{path}/{_token(name)}" if name and is_prose_name(name) else path
                    self.named(said, place, flags & ~HEADLINE)
                    for cell in _cells_of(line):
                        self.named(cell, path, flags & ~HEADLINE)
        for start, end in spans[: MAX_SPANS - len(self.spans)]:
            span = text[start:end]
            self.spans.append(span)
            for name in islice(names_in(span), _SPAN_NAMES):
                self.named(name, path, (flags & ~HEADLINE) | INSTRUCTION)

    def named(self, text: str, path: str, flags: int) -> None:
        normal = normalise("text", text)
        if normal:
            self.keep(f"t{normal}", path, flags)

    def keep(self, value: str, path: str, flags: int) -> None:
        """Keep a value, which its family stands before."""
        known = self.values.get(value)
        if known is None:
            if len(self.values) < MAX_OF_RESULT:
                self.values[value] = (path, flags)
            else:
                self.saturated = True
        elif known[1] != flags:  # of two places the less trusted counts, and an instruction is never forgotten
            both = (known[1] & flags & ~(INSTRUCTION | SECRET)) | ((known[1] | flags) & (INSTRUCTION | SECRET))
            self.values[value] = (known[0] if known[1] <= flags else path, both)


# One value of a text: with its family before it, the number of that, where it begins, and whether it is the whole text.
_InText = tuple[str, int, int, bool]


def _in_text(text: str, found: Sequence[TypedValue]) -> list[_InText]:
    length = len(text.strip()) - 1
    return [
        (family + one.normal, _NUMBER_OF[family], one.start, one.end - one.start >= length)
        for one in found
        for family in (_FAMILIES[one.kind],)
    ]


def _line_value(line: str) -> tuple[str, str]:
    """The name that a line of a list or of `name: value` begins with, if any, and what it says."""
    plain = line.strip(" \t>*\u2022-")
    name, sign, value = plain.partition(": ")
    if not (sign and value and len(name) <= _LONGEST_NAME):
        name, value = "", plain
    return name, value.strip("\"',; ")


def _cells_of(line: str) -> list[str]:
    """The identifiers among the cells of a line of a table."""
    if not has_digit(line):
        return []
    parts = line.translate(_ONE_MARK).split("\t", _MAX_CELLS)
    return [cell for part in parts if shape_of(cell := part.strip(" \"'"))]


def _label_at(text: str, at: int) -> str:
    """The name at the beginning of the line in which a value stands, as it stands in a path; empty where none does."""
    start = text.rfind("\n", max(0, at - _SHORT), at) + 1
    name, _ = _line_value(text[start:at] + "?")
    return f"/{_token(name)}" if name.isidentifier() and name.islower() else ""


def _identifying(records: list[Any]) -> list[str]:
    """The members of a list's records that are called like a thing that people write, and hold its identifier in each.

    Who writes into one of the records cannot make a text of his such a member: the others hold none of that shape.
    """
    first = records[0] if len(records) > 1 else None
    if type(first) is not dict:
        return []
    found: list[str] = []
    for name, held in first.items():
        if name in FIELDS["things"] and type(held) is str and len(held) <= _SMALL and (shape := shape_of(held)):
            others = (one.get(name) if type(one) is dict else None for one in records)
            if all(type(one) is str and shape_of(one) == shape for one in others):
                found.append(name)
    return found


@lru_cache(maxsize=4_096)
def _token(name: str) -> str:
    """The name of a member as it stands in a path."""
    return escape(name)[:64]


def is_prose_name(name: str) -> bool:
    """Whether a field's name says that people write what they like into it."""
    return _named_so(name)[1]


@lru_cache(maxsize=4_096)
def _named_so(name: str) -> tuple[int, bool]:
    """Whether a field's own name says that it is kept secret, and that people write what they like into it."""
    words = name_words(name)
    is_prose = not FIELDS["prose"].isdisjoint(words) and words[-1] not in FIELDS["numbers"]
    return 0 if FIELDS["secret"].isdisjoint(words) else SECRET, is_prose


@lru_cache(maxsize=4_096)
def _headline(name: str) -> int:
    return 0 if FIELDS["headlines"].isdisjoint(name_words(name)) else HEADLINE


_FAMILIES: Final = {"email": "e", "url": "u", "host": "u", "account": "n", "card": "n", "phone": "n", "wallet": "w"}


def read_result(value: Any, key: bytes, flow: ToolFlow, trust: Trust | None = None) -> ResultReading:
    """What is remembered of a result, given the session's key and whose word it is."""
    taking = _Taking(flow, trust or flow.result.trust or "mixed")
    if isinstance(value, str) and value[:1] in {"{", "["}:
        with suppress(orjson.JSONDecodeError):  # a text that only begins like JSON is a text
            value = orjson.loads(value) if len(value) <= MAX_READ else value
    taking.walk(value, "", "", "", 0)
    taking.take()
    hashes = keyed_all(key, list(taking.values))
    return ResultReading(
        values=tuple([(hashed, *place) for hashed, place in zip(hashes, taking.values.values(), strict=True)]),
        shingles=tuple(dict.fromkeys(chain.from_iterable([shingles(key, span) for span in taking.spans]))),
        spans=len(taking.spans),
        saturated=taking.saturated,
        text=taking.text or (bool(taking.values) and taking.trust != "trusted"),
    )


def shingles(key: bytes, text: str) -> list[int]:
    """Hashes of two and of three words that stand together, of the first words of `text`.

    A word's hash is keyed; those of words that stand together are sums of theirs, each word with a weight of its place.
    """
    hashed = _hashed_words(key, text)
    pairs = list(map(add, hashed, [one << 1 for one in hashed[1:]]))
    triples = map(add, pairs, [one << 2 for one in hashed[2:]])
    return [one & _BITS for one in chain(pairs, triples)]


def pairs_of(key: bytes, text: str) -> list[int]:
    """Those of `shingles` that are of two words: more than a half."""
    hashed = _hashed_words(key, text)
    return [(one + (after << 1)) & _BITS for one, after in pairwise(hashed)]


def _hashed_words(key: bytes, text: str) -> list[int]:
    return list(map(_word, repeat(key), tokens(text.casefold())[: _SPAN_WORDS + 2]))


@lru_cache(maxsize=_WORDS_KNOWN)
def _word(key: bytes, word: str) -> int:
    return keyed(key, "2", word)
