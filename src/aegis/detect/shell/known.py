"""What a simple command does, in the form in which it is remembered: nobody can change it."""

from __future__ import annotations

from msgspec import Struct

from aegis.core.effects import ResourceEffect
from aegis.detect.facts import RanCommand
from aegis.detect.files import Written


class KnownFacts(Struct, frozen=True, kw_only=True):
    """The facts of one command; the members are those of `ShellFacts`."""

    signals: tuple[tuple[str, str], ...]
    scripts: tuple[str, ...]
    programs: tuple[tuple[str, str], ...]
    statements: tuple[str, ...]
    ran: tuple[RanCommand, ...]
    runs: tuple[str, ...]
    written: tuple[Written, ...]
    read: tuple[str, ...]
    effects: tuple[ResourceEffect, ...]
    foreign: tuple[tuple[str, str], ...]
    network: bool
    writes: bool
    irreversible: bool
    too_long: bool
