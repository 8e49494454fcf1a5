"""What words say of a call, held against what it does; and instructions of others that stand in them. Pure.

Words are read in bounded pieces by linear patterns out of a table. They are never a licence: what is found here can
only make a decision stricter.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any, Final, NamedTuple

import re2
import yaml

from aegis.core.effects import Verb
from aegis.core.patterns import Lazy
from aegis.core.reasoning import Reasoning
from aegis.detect.facts import Facts
from aegis.policy.dataflow.declare import name_words
from aegis.policy.dataflow.forms import tables_folder
from aegis.policy.dataflow.reading import SessionView, shingles
from aegis.policy.dataflow.values import tokens

MAX_READ: Final = 16_384  # characters before a call in which a promise is looked for: older ones are of other calls
RUN_WORDS: Final = 8  # words in a row of an instruction that no model writes by chance
MAX_NAMED: Final = 16_384  # bytes of a call in which it is looked for what words name
_NEAR: Final = 5  # words behind a denial among which its deed stands
_PARTS: Final = Lazy(r"[^,;:!?\n]+?(?:[,;:!?\n]|[.](?:\s|$)|$)")
_SAID: Final = Lazy(r"\w+")
_COMMAND_WORDS: Final = Lazy(r"[^\s;|&()`\"']+")
_WINDOW: Final = 48  # words that are hashed at once
_AROUND: Final = 240  # characters around a quotation in which it may be refused
_REPORTED: Final = ("that ", "dass ")  # words after which it is told what somebody did, or is to do
_ASCII_WORD: Final = r"\b(?:%s)\b"

CHANGES: Final = frozenset({"write", "external_send"})
# Verbs of effects that change something, or send it away.
CHANGING: Final[frozenset[Verb]] = frozenset(
    {"write", "delete", "encrypt", "send", "permit", "persist", "escalate", "hide", "disable", "expose", "stop"}
)


class StatedWords(NamedTuple):
    """The table, compiled."""

    promises: Any
    purposes: Any
    acts: Any
    refuses: Any
    mixed: Mapping[str, int]
    act_words: frozenset[str]
    requests: Any
    asks: Any
    deeds: Mapping[str, frozenset[str]]
    whole: frozenset[str]
    neutral: frozenset[str]
    besides: frozenset[str]
    denials: frozenset[str]


def stated_table() -> dict[str, Any]:
    """The shipped table."""
    text = (tables_folder() / "stated.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)
    return table


@cache
def stated_words() -> StatedWords:
    """The shipped table, read once."""
    table = stated_table()
    languages = table["languages"]
    return StatedWords(
        promises=_compiled(pattern for one in languages for pattern in one["promises"]),
        purposes=_compiled(f"^\\W*(?:{pattern})" for one in languages for pattern in one["purposes"]),
        acts=_compiled(_word(word) for one in languages for word in one["acts"]),
        refuses=_compiled(_word(word) for one in languages for word in one["refuses"]),
        mixed=table["mixed"],
        act_words=frozenset(word for one in languages for word in one["acts"]),
        requests=re2.compile(table["requests"]),
        asks=re2.compile(table["asks"]),
        deeds=_by_word(table["deeds"]),
        whole=frozenset(table["whole"]),
        neutral=frozenset(table["neutral"]),
        besides=frozenset(table["besides"]),
        denials=frozenset(table["denials"]),
    )


def _by_word(deeds: Sequence[Mapping[str, Sequence[str]]]) -> Mapping[str, frozenset[str]]:
    """For each word by which a deed is denied, the words by which calls may name that deed."""
    found: dict[str, frozenset[str]] = {}
    for one in deeds:
        for word in one["said"]:
            found[word] = found.get(word, frozenset()).union(one["said"], one["called"])
    return found


def _compiled(patterns: Iterator[str]) -> Any:
    return re2.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def _word(word: str) -> str:
    plain: str = re2.escape(word)
    return _ASCII_WORD % plain if word.isascii() else plain


def folded(text: str) -> str:
    """A text in lower case without accents, with one kind of apostrophe and blank."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("\u00df", "ss")).casefold()
    return unicodedata.normalize("NFC", "".join(char for char in plain if not "\u0300" <= char <= "\u036f"))


def promises_reading(reasoning: Reasoning) -> bool:
    """Whether the last words before a call say that it only reads: in reasoning, or in a stated purpose."""
    words = stated_words()
    purpose = folded(reasoning.purpose)
    if purpose and words.purposes.search(purpose) and not words.acts.search(purpose):
        return True
    text = folded(reasoning.text[-MAX_READ:])
    found = words.promises.finditer(text)
    end = max((match.end() for match in found if not text[: match.start()].endswith(_REPORTED)), default=-1)
    return end >= 0 and not words.acts.search(text[end:])


def denies_deed(reasoning: Reasoning, tool: str, arguments: bytes) -> bool:
    """Whether the last words before a call say that its very deed is not done: none at all, or not to what it names.

    What is denied of something else, of another time or with an exception is no denial, and neither is one behind which
    it is said what is done.
    """
    words, text = stated_words(), folded(f"{reasoning.purpose}\n{reasoning.text}"[-MAX_READ:])
    named = arguments[:MAX_NAMED].decode("utf-8", "replace")
    called = frozenset(tokens(folded(" ".join((*name_words(tool), named)))))
    end, denied = 0, False
    for part in _PARTS.finditer(text):
        said = _SAID.findall(part[0].replace("n't", " not"))
        at = next((at for at, word in enumerate(said) if word in words.denials), -1)
        if at < 0 or not words.besides.isdisjoint(said):
            continue
        before, behind = said[:at], said[at + 1 :][:_NEAR]
        if said[at] == "without":  # what stands before it is what is done
            before, said = [], said[at:]
        near = behind or (before if said[at] in words.whole else ())  # `I grant nothing`
        deed = next((word for word in near if word in words.deeds), "")
        if not deed or words.deeds[deed].isdisjoint(called):
            continue
        if behind and not words.deeds[deed].isdisjoint(before):
            continue  # `delete these and do not delete those`
        own = frozenset(said) - {deed} - words.denials - words.neutral
        if own <= called or not words.whole.isdisjoint(said):
            denied, end = True, part.end()
    return denied and not words.acts.search(text[end:])


def changes(facts: Facts) -> bool:
    """Whether what runs programs surely changes or sends something, by what the programs do."""
    if facts.written or any(effect.verb in CHANGING for effect in facts.resource_effects):
        return True
    words, texts = stated_words(), [text.value[:MAX_READ] for text in facts.texts.strings]
    if any(words.requests.search(text) and not words.asks.search(text) for text in texts):
        return True
    commands = [_COMMAND_WORDS.findall(folded(text)) for text in texts]
    if any(_acts(command, words) for command in commands):
        return True
    return not CHANGES.isdisjoint(facts.effects) and all(words.mixed.keys().isdisjoint(one) for one in commands)


def _acts(command: Sequence[str], words: StatedWords) -> bool:
    """Whether a program that may read or change is told to change something."""
    for at, word in enumerate(command):
        told = command[at + 1 : at + 1 + words.mixed.get(word.rpartition("/")[2], 0)]
        if any(one in words.act_words for one in takewhile(lambda one: not one.startswith("-"), told)):
            return True
    return False


def repeated_order(reasoning: Reasoning, view: SessionView) -> str:
    """A passage of the reasoning that an untrusted result of the session said word for word, as an instruction.

    Empty where there is none, where the user said it too, or where the words around it refuse it.
    """
    if not view.shingles:
        return ""
    text = reasoning.text
    words = tokens(text.casefold())
    for start, stop in _runs(words, view):
        said = " ".join(words[start:stop])
        if view.words is not None and view.words.covers(said):
            continue
        if not _is_refused(words, start, stop):
            return said
    return ""


def _runs(words: list[str], view: SessionView) -> Iterator[tuple[int, int]]:
    """Where words stand in a row that stood so in an instruction: from one place up to another."""
    begun = -1
    for at, is_known in enumerate(_known(words, view)):
        if is_known and begun < 0:
            begun = at
        if not is_known and begun >= 0:
            if at + 2 - begun >= RUN_WORDS:
                yield begun, at + 2
            begun = -1
    if begun >= 0 and len(words) - begun >= RUN_WORDS:
        yield begun, len(words)


def _known(words: list[str], view: SessionView) -> Iterator[bool]:
    """For each three words that stand together, whether they stood so in an instruction."""
    for start in range(0, max(len(words) - 2, 0), _WINDOW):
        piece = words[start : start + _WINDOW + 2]
        hashed = list(shingles(view.key, " ".join(piece)))
        yield from (one in view.shingles for one in hashed[len(piece) - 1 :])


def _is_refused(words: list[str], start: int, stop: int) -> bool:
    """Whether the words around a passage say that it is not followed."""
    before = " ".join(words[max(start - _WINDOW, 0) : start])[-_AROUND:]
    after = " ".join(words[stop : stop + _WINDOW])[:_AROUND]
    refuses = stated_words().refuses
    return bool(refuses.search(folded(before)) or refuses.search(folded(after)))
