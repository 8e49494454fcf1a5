"""The values that fact extraction gives to the guards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from aegis.core.effects import ResourceEffect
from aegis.core.finding import Finding
from aegis.core.outcome import Effect, Risk
from aegis.core.text import TextRole
from aegis.detect.files import Files, Written

# How much the analysers of one call may read: what many strings, or one text read many times, can cost together.

MOST_EFFORT: Final = 73_728  # units of one call, about a third of a microsecond each: bounds crafted calls
MOST_STEPS: Final = 1_600  # of all parsers of a call: what the length of a text does not foresee
LEAST: Final = 64  # units that looking at anything costs, however short it is


class Effort(Struct):
    """What is left to one call. A unit is what reading one character of a shell text costs.

    `steps` are those that parsers may still take, by their own count: the same for the same text, on every machine.
    """

    left: int = MOST_EFFORT
    steps: int = MOST_STEPS

    def take(self, units: int) -> bool:
        """Whether `units` more, and never fewer than `LEAST`, may be spent; the caller says what it left unread."""
        self.left -= max(units, LEAST)
        return self.left >= 0


class Text(NamedTuple):
    """One string of a call: where it stands, whether it is a key, and what it is for.

    `confidence` (0 to 100) says how sure the role is; declared roles have 100. A tuple, because a
    call can hold ten thousand of them and a frozen dataclass takes three times as long to make.
    """

    path: str
    value: str
    is_key: bool = False
    role: TextRole = "unknown"
    confidence: int = 0


class Texts(Struct, frozen=True, kw_only=True):
    """A bounded walk over a JSON value. `limits` names each bound that was exceeded, with its place."""

    strings: tuple[Text, ...] = ()
    total_bytes: int = 0
    limits: tuple[Finding, ...] = ()
    unresolved: tuple[str, ...] = ()


class TextView(NamedTuple):
    """Another reading of a string: what a decoder, a shell or a reader would make of it.

    `source` is the index of the text in `Texts.strings`; `kinds` names the transformations in order. `role` is what
    the reading is for where that is not what its text is for: words that make a command together.
    """

    source: int
    value: str
    kinds: tuple[str, ...]
    role: TextRole | None = None


class Signal(NamedTuple):
    """Something that an analyser saw: a stable name (`sql.stacked`), where, and the piece that shows it.

    Rules turn signals into findings; an analyser never decides.
    """

    fact: str
    path: str
    evidence: str
    role: TextRole


class RanCommand(NamedTuple):
    """One command that a text of the call runs: the text's place, the folder that it runs in where that is told.

    `feeds` names the programs that its output goes into; `settings` are the variables set for it alone.
    """

    path: str
    folder: str
    name: str
    args: tuple[str, ...]
    feeds: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


class Vector(NamedTuple):
    """A command given as words: the pointer of what holds them."""

    path: str
    words: tuple[str, ...]


class Facts(Struct, frozen=True, kw_only=True):
    """What a call would do.

    `signals` are what analysers saw (destructive SQL, a reverse shell), for rules to judge; `findings`
    are notes that need no rule to be true (outcome `allow`). `unparsed` names pointers of strings that
    would be executed and could not be read: missing evidence. `tier` and `irreversible` follow from
    the facts alone; they never lower a registered tier. `shown` are the effects that the strings themselves
    show, without those that the tool's name speaks of. `together` holds every string and every other reading
    of a call that is small, a line each, for guards that look for what most calls have nothing of; `None` of
    a larger call. `ran` are the commands that its texts run, `vectors` those given as words; `runs` are the files that
    the call runs as programs, and `written` those that it writes. `resource_effects` are what the call does to which
    resource: each of them is a signal of the name `verb resource scope` as well, which rules judge.
    `unread` are the pointers of paths, written as people write them, whose files are only written or deleted.
    """

    texts: Texts
    effects: frozenset[Effect] = frozenset()
    irreversible: bool = False
    tier: Risk = Risk.LOW
    findings: tuple[Finding, ...] = ()
    unparsed: tuple[str, ...] = ()
    signals: tuple[Signal, ...] = ()
    views: tuple[TextView, ...] = ()
    shown: frozenset[Effect] = frozenset()
    together: str | None = None
    ran: tuple[RanCommand, ...] = ()
    vectors: tuple[Vector, ...] = ()
    runs: tuple[str, ...] = ()
    written: tuple[Written, ...] = ()
    resource_effects: tuple[ResourceEffect, ...] = ()
    unread: tuple[str, ...] = ()


class ReadLimits(Struct, frozen=True, kw_only=True):
    """How far one value is walked; going over any bound is a finding, never a plain allow."""

    max_depth: int = 32
    max_strings: int = 10_000
    max_bytes: int = 1_048_576


class FactSubject(Struct, frozen=True, kw_only=True):
    """What facts are computed from. `roles` are declared by the operator, by argument name or pointer.

    `files` is what is known of files that were written before the call.
    """

    tool: str
    server: str | None
    arguments: dict[str, Any]
    limits: ReadLimits
    schema: Mapping[str, Any] | None = None
    roles: Mapping[str, TextRole] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()
    files: Files | None = None
