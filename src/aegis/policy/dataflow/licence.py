"""Whether a user asked for a call: by the verbs of the deed, else by a small trained matcher over counts.

What a call passes is looked for in the user's words as it is, and in the forms in which people say it: dates, times of
day, numbers in words, percentages, endings of words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

from msgspec import Struct

from aegis.policy.dataflow.declare import Does, ToolFlow, does_with, name_words, objects_of, strings_of, verb_of
from aegis.policy.dataflow.forms import forms_of, read_table
from aegis.policy.dataflow.values import tokens
from aegis.policy.dataflow.words import TrustedWords, lexicon, root, same_things

MAX_VALUES: Final = 64  # of one call that are counted
_LONGEST: Final = 160  # characters of a value that can be in a user's words
_MAX_PARTS: Final = 256  # words of a call's values
_LONG: Final = 4  # letters of a word that is none of the little ones
_CLOCK: Final = 8  # characters of a time of day
_FIRST: Final = frozenset({"pay", "share", "member"})
_WIDE: Final = frozenset({"create", "modify"})  # whose verbs are in most requests
_UNKNOWN: Final = frozenset({"other", "read"})
_FAR: Final = 3.0  # of the matcher's score below what is needed: nothing of the call is in the words


class FlowCall(Struct, frozen=True, kw_only=True):
    """One call as the steps see it."""

    tool: str
    arguments: Mapping[str, Any]
    flow: ToolFlow
    leaves: bool = False  # whether the facts show that something is sent
    hands_off: bool = False  # whether another agent of the session goes on, which knows what this one read

    @property
    def does(self) -> Does:
        """What the tool does, declared or by its name; who hands off tells another agent, and does nothing yet."""
        if self.hands_off and self.flow.does is None:
            return "read"
        return self.flow.does or does_with(self.tool, self.arguments)

    @property
    def gives(self) -> bool:
        """Whether somebody gets money or access by it; who takes it away again gives nothing."""
        return self.does in _FIRST and lexicon().deeds[self.does].takes.isdisjoint((verb_of(self.tool),))

    @property
    def is_risky(self) -> bool:
        """Whether such a deed has to be asked for by its own verbs."""
        deed = lexicon().deeds.get(self.does)
        return deed is not None and deed.risky


def is_licensed(call: FlowCall, words: TrustedWords) -> bool:
    """Whether the user's words ask for a deed like this call: a risky one by their verbs, else by the matcher."""
    return not licence_of(call, words)


def licence_of(call: FlowCall, words: TrustedWords) -> float:
    """How far a call is from what the user's words ask for, 0 (they do) to 1."""
    needed = licence_needed(call, words)
    if needed is None:
        return 1.0
    return min(1.0, shortfall(words, call.tool, call.does, call.arguments, needed) / _FAR) if needed else 0.0


def licence_needed(call: FlowCall, words: TrustedWords) -> str | None:
    """The name of the score that a call needs: empty where its verbs were said, `None` where only they would do."""
    does = call.does
    if words.asks_for(does, objects_of(call.tool)):
        return "made" if does in _WIDE else ""
    if call.is_risky:
        return "made" if words.orders_tool(verb_of(call.tool), name_words(call.tool)) else None
    if does != "read" and words.orders((verb_of(call.tool),)):
        return "made"
    return does if does in _UNKNOWN else "known"


@cache
def matcher() -> dict[str, Any]:
    """The trained weights by the names of the features, the score needed, and the words it is not led by."""
    value: dict[str, Any] = read_table("licence.yaml")
    words: dict[str, Any] = read_table("matching.yaml")
    return {**value, "empty": frozenset(words["empty"]), "unset": frozenset(words["unset"])}


def features(words: TrustedWords, tool: str, does: Does, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Numbers about a call and a user's words."""
    empty, unset, roots = matcher()["empty"], matcher()["unset"], words.roots
    name = name_words(tool)
    things = [word for word in name if word not in empty and not word.isdigit()]
    named = [_is_in(word, roots) for word in things]
    asked = words.asks_for(does, objects_of(tool))
    values = [one.value.strip() for one, _ in zip(strings_of(arguments), range(MAX_VALUES), strict=False)]
    short = [one for one in values if 0 < len(one) <= _LONGEST and one.lower() not in unset]
    texts = [one for one in short if not _is_number(one)]
    told = [is_said(words, one) for one in texts]
    counted = [is_said(words, one) for one in short if _is_number(one)]
    parts = [part for one in short for part in tokens(one.casefold())][:_MAX_PARTS]
    long = [_is_in(part, roots) for part in parts if len(part) >= _LONG and not part.isdigit()]
    about = [
        _is_in(word, roots) for key in list(arguments)[:MAX_VALUES] for word in name_words(key) if word not in empty
    ]
    of_name = frozenset(map(root, things))
    together = max((len(of_name & sentence) for sentence in words.sentence_roots), default=0)
    name_share, part_share = _share(named), _share(long)
    both = told + counted
    return {
        "bias": 1.0,
        "verb": float(bool(name) and _is_in(verb_of(tool), roots)),
        "thing": float(any(named)),
        "things": name_share,
        "letters": math.log1p(sum(len(word) for word, said in zip(things, named, strict=True) if said)) / 3,
        "same": float(not same_things(name).isdisjoint(words.said)),
        "together": min(together, 3) / 3,
        "about": _share(about),
        "about_any": float(any(about)),
        "values": _share(both),
        "texts": _share(told),
        "texts_many": math.log1p(sum(told)),
        "texts_letters": math.log1p(sum(len(one) for one, said in zip(texts, told, strict=True) if said)) / 4,
        "numbers": _share(counted),
        "numbers_many": math.log1p(sum(counted)),
        "all": float(bool(both) and all(both)),
        "parts": _share([_is_in(part, roots) for part in parts]),
        "long": part_share,
        "long_many": math.log1p(sum(long)),
        "no_values": float(not short),
        "no_numbers": float(not counted),
        "no_texts": float(not texts),
        "prompt": math.log1p(len(words.said)) / 6,
        "asked": float(asked),
        "asked_thing": asked * name_share,
        "unasked": float(not asked and does not in {"read", "other"}),
        "reads": float(does == "read"),
        "other": float(does == "other"),
        "makes": float(does in {"create", "modify"}),
        "sends": float(does in {"send", "post", "book"}),
        "thing_values": name_share * _share(both),
        "thing_long": name_share * part_share,
    }


def is_said(words: TrustedWords, value: str) -> bool:
    """Whether a user named this value, in whatever form people say it."""
    if words.covers(value):
        return True
    said = words.forms
    if value[:1].isdigit() or value[:1] in {"-", "."}:
        with suppress(ValueError):
            number = float(value)
            return number in said.numbers
    if not any(char.isdigit() for char in value):
        return False
    forms = forms_of(value)
    if forms.dates:
        return not forms.dates.isdisjoint(said.dates) or any(day.bounds in said.months for day in forms.dates)
    return len(value) <= _CLOCK and not forms.times.isdisjoint(said.times)


def _is_number(value: str) -> bool:
    return value.replace(".", "").replace("-", "").isdigit()


def _is_in(word: str, roots: frozenset[str]) -> bool:
    return word in roots or root(word) in roots


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 0.0


def score(weights: Mapping[str, float], row: Mapping[str, float]) -> float:
    """The sum of the weighted features."""
    return sum(weight * row[name] for name, weight in weights.items())


def shortfall(words: TrustedWords, tool: str, does: Does, arguments: Mapping[str, Any], needed: str) -> float:
    """What a call lacks to be taken for one that these words ask for, 0 where nothing; `needed` names the score."""
    trained, row = matcher(), features(words, tool, does, arguments)
    return max(0.0, float(trained["needed"][needed]) - score(trained["weights"], row))
