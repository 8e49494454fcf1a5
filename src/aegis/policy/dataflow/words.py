"""The words of a user: which deeds they ask for, and which values they name."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from aegis.core.patterns import Lazy
from aegis.policy.dataflow.forms import ENGLISH, MAX_CHARS, Forms, forms_of, read_table
from aegis.policy.dataflow.values import ValueKind, families, find_values, host_of, normalise, tokens

_WORD: Final = Lazy(r"[\p{L}\p{N}]+(?:['’][\p{L}\p{N}]+)?|,")
_SENTENCE: Final = Lazy(r"[.!?;]+\s|[\n\r]+|\s[-•*]\s|\b[0-9]{1,2}\.\s")
_MAX_SENTENCES: Final = 2_000
_MAX_MATCHED: Final = 256  # sentences that are compared with the words of a tool's name
_ROOT: Final = 5  # characters that words of one family share
_MAX_NAMES: Final = 128  # of one user's words
_NAME_WORDS: Final = 3
_NAME: Final = Lazy(
    r"[\"'“‘`]([^\"'“”‘’`\n]{2,64})[\"'”’`]|(\p{Lu}[\p{L}\p{N}_-]*|[\p{L}_-]*[0-9][\p{L}\p{N}_-]*)|[^\s]+"
)
_MAX_ANSWERED: Final = 256  # deeds that were looked for in one user's words: names of tools can be made up
_BEFORE_NOUN: Final[frozenset[str]] = frozenset(ENGLISH["before_nouns"])
NOUNS: Final[frozenset[str]] = frozenset(ENGLISH["nouns"])
_BEFORE_ORDER: Final[frozenset[str]] = frozenset(ENGLISH["before_orders"])
_PRONOUNS: Final[frozenset[str]] = frozenset(ENGLISH["pronouns"])  # in whose sentence that before it is spoken of


_WIDE: Final = frozenset({"create", "modify"})  # deeds of so many verbs that those alike count where orders have theirs
_NO_WORDS: Final[frozenset[str]] = frozenset()

_LETTERS: Final = Lazy(r"[\p{L}\p{N}]+|,")
_ORDINAL: Final = Lazy(r"\b([0-9]{1,2})\. ?(\p{L})")  # a point behind the number of a day ends no sentence
_LEAST_MARKS: Final = 2
_WHOLE: Final = 4  # letters from which on a word is known by its beginning
_LONGEST_ENDING: Final = 5
_APART: Final = 12  # words between the parts of a verb
_BETWEEN: Final = frozenset({",", "and", "or", "und", "oder", "et", "ou", "y", "o"})  # clauses


class DeedWords(Struct, frozen=True, kw_only=True):
    """How a user asks for one kind of deed."""

    risky: bool = False
    asks: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    same_object: bool = False
    goods: frozenset[str] = frozenset()  # objects only for tools whose names have a word for the same
    pages: frozenset[str] = frozenset()  # words by which a user speaks of addresses that a document holds
    any: frozenset[str] = frozenset()  # words of tools' names that name no single thing
    takes: frozenset[str] = frozenset()  # verbs of tools' names that take away what the deed gives


class Lexicon(Struct, frozen=True, kw_only=True):
    """The shipped tables: kinds of tools by name, deeds by words, words for one thing, arguments that are sinks."""

    kinds: tuple[tuple[str, tuple[tuple[str, ...], ...], frozenset[str]], ...]  # with words that only lead a name
    deeds: dict[str, DeedWords]
    objects: dict[str, frozenset[str]]
    verbs: dict[str, frozenset[str]]
    sinks: tuple[tuple[ValueKind, tuple[tuple[str, ...], ...], frozenset[str]], ...]
    references: frozenset[str]
    listings: frozenset[str]
    defaults: frozenset[str]
    acting: frozenset[str]  # every verb by which a tool or a user names a deed
    namespaces: frozenset[str]  # of these, what begins a tool's name as a thing where a verb ends it


@cache
def lexicon() -> Lexicon:
    """The shipped tables, read once."""
    value = read_table("deeds.yaml")
    verbs = _alike(value["verbs"])
    acting = frozenset(verbs).union(
        value["acting"],
        *((*one.get("asks", ()), *one.get("needs", ())) for name, one in value["deeds"].items() if name != "execute"),
        *(one.get("leads", ()) for one in value["kinds"]),
    )
    return Lexicon(
        kinds=tuple(
            (one["does"], tuple(map(tuple, one["names"])), frozenset(one.get("leads", ()))) for one in value["kinds"]
        ),
        deeds={
            name: DeedWords(
                risky=one.get("risky", False),
                asks=frozenset(one.get("asks", ())),
                needs=frozenset(one.get("needs", ())),
                objects=frozenset(one.get("objects", ())),
                same_object=one.get("same_object", False),
                goods=frozenset(one.get("goods", ())),
                any=frozenset(one.get("any", ())),
                pages=frozenset(one.get("pages", ())),
                takes=frozenset(one.get("takes", ())),
            )
            for name, one in value["deeds"].items()
        },
        objects=_alike(value["objects"]),
        verbs=verbs,
        sinks=tuple(
            (one["is"], tuple(map(tuple, one["names"])), frozenset(one.get("does", ()))) for one in value["sinks"]
        ),
        references=frozenset(value["references"]),
        listings=frozenset(value["listings"]),
        defaults=frozenset(value["defaults"]),
        acting=acting,
        namespaces=frozenset(value["namespaces"]),
    )


def _alike(lines: list[list[str]]) -> dict[str, frozenset[str]]:
    """Of each word those that stand in a line with it."""
    found: dict[str, frozenset[str]] = {}
    for line in lines:
        for word in line:
            found[word] = found.get(word, frozenset()) | frozenset(line)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedWords:
    """What a user said in all turns, read once: sentences of words, and the values that they name."""

    sentences: tuple[tuple[str, ...], ...]
    text: str
    values: frozenset[str]
    hosts: frozenset[str]
    said: frozenset[str]
    roots: frozenset[str]
    sentence_roots: tuple[frozenset[str], ...]
    forms: Forms
    many: bool = False  # whether something is asked for more than one thing
    names: tuple[str, ...] = ()  # what is written like a name, an identifier or in quotes, as it stands in fields
    answered: dict[tuple[str, tuple[str, ...]], bool] = field(default_factory=dict, compare=False, repr=False)

    def asks_for(self, does: str, objects: tuple[str, ...]) -> bool:
        """Whether some sentence asks for a deed of this kind; `objects` are words of the tool's name."""
        known = self.answered.get((does, objects))
        if known is None:
            if len(self.answered) >= _MAX_ANSWERED:
                self.answered.clear()
            known = self.answered[does, objects] = self._asks_for(does, objects)
        return known

    def _asks_for(self, does: str, objects: Iterable[str]) -> bool:
        deed = lexicon().deeds.get(does)
        if deed is None:
            return False
        named = [word for word in objects if word not in deed.asks | deed.needs | deed.any]
        own = same_things(named) | frozenset(named)
        things = own if deed.same_object else frozenset[str]()
        beside = things or (deed.objects | deed.goods & own) or own
        before: frozenset[str] = frozenset()
        wide = does in _WIDE
        for sentence in self.sentences:
            words = frozenset(sentence) | frozenset(map(stem, sentence))
            words, before = words if words.isdisjoint(_PRONOUNS) else words | before, words
            for at, word in enumerate(sentence):
                root = stem(word)
                alike = lexicon().verbs.get(root, _NO_WORDS) if wide and _is_order(sentence, at) else _NO_WORDS
                if (
                    not alike.union((word, root)).isdisjoint(deed.asks)
                    and _is_verb(sentence, at)
                    and (not things or not things.isdisjoint(words))
                ):
                    return True
                if not {word, root}.isdisjoint(deed.needs) and not beside.isdisjoint(words):
                    return True
        return False

    def orders(self, verb: tuple[str, ...]) -> bool:
        """Whether some sentence has this verb, or one like it, where orders have theirs: first or behind `please`."""
        wanted = {stem(one) for known in verb for one in lexicon().verbs.get(known, {known})}
        return any(
            stem(word) in wanted and _is_order(sentence, at)
            for sentence in self.sentences[:_MAX_MATCHED]
            for at, word in enumerate(sentence)
        )

    def orders_tool(self, verb: str, name: tuple[str, ...]) -> bool:
        """Whether some sentence has a tool's verb where orders have theirs, and every word of the tool's name."""
        wanted, roots = stem(verb), frozenset(map(root, name))
        return len(name) > 1 and any(
            roots <= held and any(stem(word) == wanted and _is_order(sentence, at) for at, word in enumerate(sentence))
            for sentence, held in zip(self.sentences, self.sentence_roots, strict=False)
        )

    def says(self, kind: ValueKind, normal: str) -> bool:
        """Whether the user named this value."""
        family = families(kind)
        if f"{family}{normal}" in self.values:
            return True
        if family == "u":
            if "." not in normal and "/" not in normal:  # the name of a machine looks like any word
                return f" {_plain(normal)} " in self.text
            return host_of(normal) in self.hosts
        if family == "t":
            return len(normal) > 0 and f" {_plain(normal)} " in self.text
        return False

    def names_some(self, kind: ValueKind) -> bool:
        """Whether the user named any value of the kind."""
        return any(value.startswith(families(kind)) for value in self.values)

    def covers(self, text: str) -> bool:
        """Whether most words of a short text are the user's own."""
        plain = _plain(text)
        return bool(plain) and f" {plain} " in self.text


def read_words(turns: Sequence[str]) -> TrustedWords:
    """The words of these turns."""
    return _read(tuple(turns))


@lru_cache(maxsize=256)
def _read(turns: tuple[str, ...]) -> TrustedWords:
    sentences: list[tuple[str, ...]] = []
    values: set[str] = set()
    hosts: set[str] = set()
    plain: list[str] = []
    told: list[str] = []  # in English, of turns in other languages
    said: set[str] = set()
    for turn in turns:
        text = turn if turn.isascii() else unicodedata.normalize("NFKC", turn)
        plain.append(_plain(text))
        tongue = _tongue_of(text)
        spoken, pattern = text, _WORD
        if tongue.words:
            spoken, pattern = _ORDINAL.sub(r"\1 \2", text), _LETTERS
            said.update(match[0].lower() for match in _WORD.finditer(text) if match[0] != ",")
        for part in _SENTENCE.split(spoken)[:_MAX_SENTENCES]:
            words = tongue.sentence([match[0].lower() for match in pattern.finditer(part)])
            if words:
                sentences.append(tuple(words))
                if tongue.words:
                    told.append(" ".join(words))
        for value in find_values(text):
            values.add(f"{families(value.kind)}{value.normal}")
            if value.kind == "url":
                hosts.add(host_of(value.normal))
    said.update(word for sentence in sentences for word in sentence)
    return TrustedWords(
        sentences=tuple(sentences),
        text=f" {' '.join(plain)} ",
        values=frozenset(values),
        hosts=frozenset(hosts),
        said=frozenset(said),
        roots=frozenset(said | {root(word) for word in said}),
        sentence_roots=tuple(frozenset(map(root, sentence)) for sentence in sentences[:_MAX_MATCHED]),
        forms=forms_of("\n".join((*turns, *told))),
        many=_speaks_of_many(turns, told),
        names=_names(turns),
    )


def _names(turns: tuple[str, ...]) -> tuple[str, ...]:
    """What a user writes with a capital letter, a digit or in quotes: words, and up to three of them in a row."""
    found: dict[str, None] = {}
    for turn in turns:
        run: list[str] = []
        for match in _NAME.finditer(turn[:MAX_CHARS]):
            quoted, word = match[1], match[2]
            if quoted:
                found[normalise("text", quoted)] = None
            run = [*run, word] if word else []
            for length in range(1, min(_NAME_WORDS, len(run)) + 1):
                found[normalise("text", " ".join(run[-length:]))] = None
            if len(found) >= _MAX_NAMES:
                break
    return tuple(found)[:_MAX_NAMES]


# Words of a request for more than one thing; those in a path or an address are no words.
_MANY: Final = frozenset({
    "all", "each", "every", "everyone", "everybody", "both", "them", "those", "these", "bills", "invoices",
})  # fmt: skip


def _speaks_of_many(*texts: Iterable[str]) -> bool:
    """Whether a word for many stands by itself, with no sign but its punctuation."""
    return any(word.lower().strip(_AROUND) in _MANY for group in texts for text in group for word in text.split())


_AROUND: Final = ".,;:!?\"'()[]*-–—"


def _plain(text: str) -> str:
    return " ".join(tokens(normalise("text", text)))


def _is_order(sentence: Sequence[str], at: int) -> bool:
    """Whether a word stands where orders have their verb: first, or behind `please` and its like."""
    return not at or sentence[at - 1] in _BEFORE_ORDER


def _is_verb(sentence: Sequence[str], at: int) -> bool:
    """Whether a word that can be a noun stands where a verb can: not behind an article or a possessive."""
    return sentence[at] not in NOUNS or at == 0 or sentence[at - 1] not in _BEFORE_NOUN


def stem(word: str) -> str:
    """A word without its ending."""
    for ending in ("ing", "ed", "es", "s"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=16_384)
def root(word: str) -> str:
    """What words of one family begin with: `calculate` and `calculation` are one."""
    return stem(word)[:_ROOT]


def same_things(words: Sequence[str]) -> frozenset[str]:
    """The words that name the same things as these."""
    objects = lexicon().objects
    found: frozenset[str] = frozenset()
    for word in words:
        found |= objects.get(word, frozenset())
    return found


# What a user's words say: the words of the other tables, where each of his stands.


class Tongue(Struct, frozen=True, kw_only=True):
    """One language: the words by which it is known, what its words say, and verbs whose two parts stand apart."""

    marks: frozenset[str]
    words: dict[str, tuple[str, ...]]
    apart: dict[str, tuple[tuple[str, str], ...]]  # by the first part: the second one, and what both say

    def sentence(self, words: Sequence[str]) -> list[str]:
        """The words of a sentence, whose commas stand among them, in English as far as they are known."""
        bare = [_bare(word) for word in words]
        found: list[str] = []
        for at, word in enumerate(bare):
            if word == ",":
                continue
            found += [verb for second, verb in self.apart.get(word, ()) if _is_behind(second, bare, at)]
            found += self._said(word) or (words[at],)
        return found

    def _said(self, word: str) -> tuple[str, ...]:
        for length in range(len(word), max(_WHOLE, len(word) - _LONGEST_ENDING) - 1, -1):
            found = self.words.get(word[:length])
            if found is not None:
                return found
        return self.words.get(word, ())


def _is_behind(second: str, words: Sequence[str], at: int) -> bool:
    """Whether the second part of a verb stands next to the first one, or at the end of its clause."""
    for place in range(at + 1, min(len(words), at + _APART)):
        if words[place] in _BETWEEN:
            return False
        if words[place] == second:
            if place == at + 2 and words[at + 1] not in _BEFORE_NOUN:  # `take him off the list`
                return True
            return place == at + 1 or place + 1 == len(words) or words[place + 1] in _BETWEEN
    return False


@cache
def _tongues() -> tuple[Tongue, ...]:
    """English and the other languages of the table."""
    found: list[Tongue] = []
    for one in read_table("tongues.yaml")["languages"]:
        words: dict[str, tuple[str, ...]] = {}
        for english, begins in one.get("words", {}).items():
            for begin in begins:
                words[begin] = (*words.get(begin, ()), english)
        apart: dict[str, tuple[tuple[str, str], ...]] = {}
        for english, pairs in one["apart"].items():
            for first, second in pairs:
                apart[first] = (*apart.get(first, ()), (second, english))
        found.append(Tongue(marks=frozenset(one["marks"]), words=words, apart=apart))
    return tuple(found)


def _tongue_of(text: str) -> Tongue:
    """The language of a text: English, unless more words of another one stand in it."""
    words = [_bare(match[0]) for match in _LETTERS.finditer(text[:MAX_CHARS])]
    english, *others = _tongues()
    counts = [sum(word in one.marks for word in words) for one in others]
    most = max(counts)
    if most < _LEAST_MARKS or most <= sum(word in english.marks for word in words):
        return english
    return others[counts.index(most)]


def _bare(word: str) -> str:
    """A word in lower case, without accents."""
    if word.isascii():
        return word.lower()
    folded = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in folded if not unicodedata.combining(char))
