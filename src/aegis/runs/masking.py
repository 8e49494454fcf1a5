"""Secrets and personal data behind placeholders on the way to a model, and back in the answer to the client.

One value has one placeholder in a run, so a model can still tell two people apart. The map stays in the run's vault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from aegis.core.json import convert
from aegis.core.outcome import Category, Outcome, Reason
from aegis.core.patterns import Lazy
from aegis.detect.rules.scanner import Scanner
from aegis.runs.state import GuardContext, RunReport, RunView, Stage, all_texts, with_texts

# Reading the options of a guard: unknown ones are refused, wrong ones are explained.

T = TypeVar("T")


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a part takes that has no options."""


def read_options(options: Mapping[str, Any], kind: type[T]) -> T:
    """`options` as `kind` (a frozen struct that forbids unknown fields); raises `ValueError` naming the member."""
    try:
        return convert(dict(options), kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).lower().replace("object ", "")) from error


# A label for how sensitive a run is, from what its texts hold; it only rises during a run.

LABEL: Final = "classification"


class _Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    categories: tuple[Category, ...] = ()
    words: tuple[str, ...] = ()


class _ClassifyOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    levels: tuple[_Level, ...] = (
        _Level(name="public"),
        _Level(name="personal", categories=("pii",)),
        _Level(name="secret", categories=("secret",)),
    )


class ClassifyGuard:
    """Writes `labels.classification`: the highest level whose categories or words occur; the first is the floor."""

    name = "classify"
    stages: frozenset[Stage] = frozenset({"ingress", "result"})

    def __init__(self, levels: tuple[_Level, ...]) -> None:
        self._levels = levels
        self._rank = {level.name: rank for rank, level in enumerate(levels)}

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> ClassifyGuard:
        """From `{levels: [{name, categories, words}]}`, lowest first; raises `ValueError`."""
        levels = read_options(options, _ClassifyOptions).levels
        if not levels or len({level.name for level in levels}) != len(levels):
            raise ValueError("`levels` needs at least one level, and each a name of its own")
        return cls(levels)

    def check(self, view: RunView, context: GuardContext) -> RunReport:
        """`allow` with the label; it never falls below what it was."""
        found: set[Category] = set()
        words: set[str] = set()
        for text in all_texts((*view.messages, *view.documents)):
            found |= {hit.rule.category for hit in context.policy.scanner.scan(text, "result")}
            folded = text.casefold()
            words |= {word for level in self._levels for word in level.words if word.casefold() in folded}
        reached = [
            rank
            for rank, level in enumerate(self._levels)
            if not found.isdisjoint(level.categories) or not words.isdisjoint(level.words)
        ]
        rank = max([0, self._rank.get(view.labels.get(LABEL, ""), 0), *reached])
        return RunReport(labels={LABEL: self._levels[rank].name})


MOST_PLACEHOLDERS: Final = 1_000  # a vault is kept with every checkpoint, and every text is searched for each value
_OPENING: Final = "[["
_PLACEHOLDER: Final = Lazy(r"\[\[[a-z0-9-]+:[0-9]+\]\]")


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    categories: tuple[Category, ...] = ("pii", "secret")


class MaskGuard:
    """Puts placeholders in the place of what the rules of the chosen categories find."""

    name = "mask"
    stages: frozenset[Stage] = frozenset({"ingress", "result"})

    def __init__(self, categories: tuple[Category, ...]) -> None:
        self._categories = frozenset(categories)

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> MaskGuard:
        """From `{categories}`; raises `ValueError`."""
        return cls(read_options(options, _Options).categories)

    def check(self, view: RunView, context: GuardContext) -> RunReport:
        """`sanitize` where something was found; a run with too many different values is blocked."""
        masking = _Masking(context.policy.scanner, self._categories, view.vault)
        messages = tuple(with_texts(message, masking.masked) for message in view.messages)
        documents = tuple(with_texts(document, masking.masked) for document in view.documents)
        if masking.full:
            return RunReport(
                outcome=Outcome.BLOCK, reason=Reason.SENSITIVE_DATA, message="the run holds too much personal data"
            )
        if not masking.rules:
            return RunReport()
        return RunReport(
            outcome=Outcome.SANITIZE,
            reason=Reason.SENSITIVE_DATA,
            rules=tuple(sorted(masking.rules)),
            messages=messages,
            documents=documents,
            vault=masking.added,
        )


class UnmaskGuard:
    """Puts what the placeholders stand for back into the answer."""

    name = "unmask"
    stages: frozenset[Stage] = frozenset({"egress"})

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> UnmaskGuard:
        """Takes no options."""
        read_options(options, NoOptions)
        return cls()

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        """`sanitize` where the answer holds a placeholder of this run."""
        output = revealed(view.output, view.vault)
        return RunReport() if output == view.output else RunReport(outcome=Outcome.SANITIZE, output=output)

    def pieces(self, vault: Mapping[str, str]) -> Revealing:
        """The same for a text that comes in pieces."""
        return Revealing(vault)


class _Masking:
    def __init__(self, scanner: Scanner, categories: frozenset[Category], vault: Mapping[str, str]) -> None:
        self._scanner = scanner
        self._categories = categories
        self._by_value = {value: placeholder for placeholder, value in vault.items()}
        self._vault = vault
        self.added: dict[str, str] = {}
        self.rules: set[str] = set()

    @property
    def full(self) -> bool:
        return len(self._vault) + len(self.added) > MOST_PLACEHOLDERS

    def masked(self, text: str) -> str:
        found = [hit.rule for hit in self._scanner.scan(text, "result") if hit.rule.category in self._categories]
        spans = sorted((start, -end, rule.id) for rule in found for start, end in self._scanner.spans(rule, text))
        pieces: list[str] = []
        at = 0
        for start, negative, rule in spans:
            end = -negative
            if start < at:  # inside of what a longer match took already
                continue
            pieces += [text[at:start], self._placeholder(text[start:end], rule)]
            self.rules.add(rule)
            at = end
        return "".join(pieces) + text[at:]

    def _placeholder(self, value: str, rule: str) -> str:
        known = self._by_value.get(value)
        if known is not None:
            return known
        placeholder = f"[[{rule}:{len(self._vault) + len(self.added) + 1}]]"
        self._by_value[value] = placeholder
        self.added[placeholder] = value
        return placeholder


class Revealing:
    """Puts values back in a text that comes in pieces: what may be the beginning of a placeholder is held back."""

    def __init__(self, vault: Mapping[str, str]) -> None:
        self._vault = vault
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can go on."""
        text = self._held + piece
        at = next((at for at in (text.rfind(_OPENING), len(text) - 1) if self._begins(text[max(at, 0) :])), len(text))
        self._held = text[at:]
        return revealed(text[:at], self._vault)

    def end(self) -> str:
        """What was held back and came to no placeholder."""
        held, self._held = self._held, ""
        return held

    def _begins(self, tail: str) -> bool:
        return tail[:1] == _OPENING[0] and any(len(tail) < len(one) and one.startswith(tail) for one in self._vault)


def revealed(text: str, vault: Mapping[str, str]) -> str:
    """`text` with every placeholder of this vault replaced; one pass, so that a value is never read as another."""
    pieces: list[str] = []
    at = 0
    for match in _PLACEHOLDER.finditer(text):
        value = vault.get(match.group())
        if value is not None:
            pieces += [text[at : match.start()], value]
            at = match.end()
    return "".join(pieces) + text[at:]


def reveal_value(value: Any, vault: Mapping[str, str]) -> Any:
    """A JSON value with the placeholders of its strings replaced; keys are kept."""
    if isinstance(value, str):
        return revealed(value, vault)
    if isinstance(value, list):
        return [reveal_value(item, vault) for item in value]
    if isinstance(value, dict):
        return {key: reveal_value(item, vault) for key, item in value.items()}
    return value


def concealed(text: str, vault: Mapping[str, str]) -> str:
    """`text` with every value of the vault behind its placeholder again, longest first."""
    for placeholder, value in sorted(vault.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, placeholder)
    return text
