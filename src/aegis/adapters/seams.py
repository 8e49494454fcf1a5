"""What hooking a framework comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Seams:
    """The places at which a framework is hooked, and the paths that are refused because they have none."""

    seams: tuple[str, ...]
    barred: tuple[str, ...] = ()
