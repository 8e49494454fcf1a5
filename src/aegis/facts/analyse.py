"""Hands each string to the analyser of its role, and collects what they saw."""

from __future__ import annotations

import importlib
from typing import Final

from aegis.core.finding import Finding
from aegis.core.outcome import Category, Effect, Outcome, Risk
from aegis.core.text import TextRole
from aegis.facts.hosts import is_local, is_metadata, is_wildcard_name, read_target
from aegis.facts.model import Signal, Text
from aegis.facts.paths import climb, is_secret_file

MOST_PARSED: Final = 32  # strings of one call that are parsed: bounds what many small ones can cost
EXECUTED: Final = 60  # the confidence from which a text in the role of code counts as run by the tool
_EVIDENCE: Final = 200
_MOST_SIGNALS: Final = 200
_MOST_PROGRAMS: Final = 4  # pieces of code in one command that are parsed


def preload() -> None:
    """Import every parser now; without it the first text that needs one waits for that."""
    for name in ("code", "shell", "sql"):
        importlib.import_module(f"aegis.facts.{name}")


class Gathering:
    """What the analysers of one call found so far."""

    __slots__ = ("effects", "irreversible", "notes", "parsed", "signals", "tier", "touched", "unparsed")

    def __init__(self) -> None:
        self.effects: frozenset[Effect] = frozenset()
        self.irreversible = False
        self.tier = Risk.LOW
        self.notes: list[Finding] = []
        self.unparsed: list[str] = []
        self.signals: list[Signal] = []
        self.parsed = 0
        self.touched = False

    def signal(self, fact: str, text: Text, evidence: str) -> None:
        self.touched = True
        if len(self.signals) < _MOST_SIGNALS:
            self.signals.append(Signal(fact, text.path, evidence[:_EVIDENCE], text.role))

    def raise_tier(self, tier: Risk) -> None:
        self.touched = True
        self.tier = max(self.tier, tier)

    def note(self, rule: str, category: Category, text: Text, message: str, evidence: str) -> None:
        self.notes.append(
            Finding(
                guard="facts",
                rule=rule,
                category=category,
                severity=Risk.HIGH,
                outcome=Outcome.ALLOW,
                path=text.path,
                message=message,
                evidence=evidence[:_EVIDENCE],
            )
        )


def analyse(text: Text, found: Gathering, tool: str = "") -> None:
    """Add to `found` what the analyser of the text's role sees in it; `tool` is the name of what takes it."""
    role: TextRole = text.role
    if role == "sql":
        _sql(text, found)
    elif role == "command":
        _shell(text, found)
    elif role == "code":
        _code(text, found, tool)
    elif role == "path":
        _path(text, found)
    elif role == "url" or (role != "content" and "://" in text.value):
        _url(text, found)


def analyse_reading(text: Text, reading: str, found: Gathering) -> None:
    """The same for another reading of a text, where a decoder stands between the tool and the value."""
    if text.role in {"path", "url", "identifier", "unknown", "query_fragment"}:
        role: TextRole = text.role if text.role in {"path", "url"} else "url"
        analyse(Text(text.path, reading, False, role, text.confidence), found)


def _parse_allowed(text: Text, found: Gathering) -> bool:
    found.parsed += 1
    if found.parsed > MOST_PARSED:
        found.touched = True
        found.unparsed.append(text.path)
        return False
    return True


def _sql(text: Text, found: Gathering) -> None:
    if not _parse_allowed(text, found):
        return
    # The parsers take long to load; a call that holds no statement does not pay for that.
    from aegis.facts.sql import analyse_sql

    facts = analyse_sql(text.value)
    found.touched = True
    if facts.reads:
        found.effects |= {"read"}
    if facts.writes:
        found.effects |= {"write"}
        found.raise_tier(Risk.MEDIUM)
    if facts.irreversible:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
        found.note("facts-sql-irreversible", "destructive", text, "the statement destroys data for good", text.value)
    if facts.too_long:
        found.unparsed.append(text.path)
    for name, evidence in facts.signals:
        found.signal(name, text, evidence)


def _shell(text: Text, found: Gathering) -> None:
    if not _parse_allowed(text, found):
        return
    from aegis.facts.shell import analyse_shell

    facts = analyse_shell(text.value)
    found.touched = True
    effects: set[Effect] = {"exec"}
    if facts.network:
        effects.add("network")
    if facts.writes:
        effects.add("write")
        found.raise_tier(Risk.MEDIUM)
    found.effects |= effects
    if facts.irreversible:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
        found.note("facts-shell-irreversible", "destructive", text, "the command destroys data for good", text.value)
    if facts.too_long:
        found.unparsed.append(text.path)
    for name, evidence in facts.signals:
        found.signal(name, text, evidence)
    for statement in facts.statements[:_MOST_PROGRAMS]:
        _destroys_data(statement, text, found)
    if facts.programs:
        from aegis.facts.code import analyse_code

        for language, program in facts.programs[:_MOST_PROGRAMS]:
            for name, evidence in analyse_code(program, language).signals:
                found.signal(name, text, evidence)


def _destroys_data(statement: str, text: Text, found: Gathering) -> None:
    """A statement that a command hands to a database: what it destroys for good counts as the command's."""
    from aegis.facts.sql import analyse_sql

    if analyse_sql(statement).irreversible:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
        found.note("facts-sql-irreversible", "destructive", text, "the statement destroys data for good", statement)


def _code(text: Text, found: Gathering, tool: str) -> None:
    if not _parse_allowed(text, found):
        return
    from aegis.facts.code import analyse_code

    facts = analyse_code(text.value, tool.lower())
    executed = text.confidence >= EXECUTED
    if executed:
        found.touched = True
        found.effects |= {"exec", "network"} if facts.network else {"exec"}
    if facts.irreversible and executed:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
    if facts.too_long and executed:
        found.unparsed.append(text.path)
    for name, evidence in facts.signals:
        found.signal(name, text, evidence)


def _path(text: Text, found: Gathering) -> None:
    value = text.value
    if len(value) > 4_096:
        return
    if ".." in value:
        climbed = climb(value)
        if climbed >= 3 or (climbed >= 1 and value.startswith(("/", "\\"))):
            found.signal("path.leaves", text, value)
    if is_secret_file(value):
        found.signal("path.secret", text, value)
    if value.startswith(("http://", "https://")):
        _url(text, found)


def _url(text: Text, found: Gathering) -> None:
    value = text.value
    if len(value) > 8_192:
        return
    target = read_target(value)
    if target is None:
        return
    if target.scheme:
        found.effects |= {"network"}
        found.touched = True
    if is_metadata(target):
        found.signal("host.metadata", text, value)
    elif is_local(target) and (target.odd_spelling or target.userinfo or is_wildcard_name(target)):
        found.signal("host.disguised", text, value)
    elif is_local(target) and target.scheme:
        found.signal("host.local", text, value)
    elif target.odd_spelling and target.scheme:
        found.signal("host.disguised", text, value)
