"""Entries, payloads and heads as an appender would write them, as `aegis.testing` makes them for everybody."""

from __future__ import annotations

from aegis.testing.entries import append, entry, grow, payload

__all__ = ["append", "entry", "grow", "payload"]
