"""What hooking a framework comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Seams:
    """The places at which a framework is hooked.

    `barred` are paths that have no such place and are refused; `uncovered` those that have none and
    stay open, because what arrives over them cannot be told from other data.
    """

    seams: tuple[str, ...]
    barred: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
