"""The scripted decider that other packages test their adapters with, under the name that our tests use."""

from __future__ import annotations

from aegis.testing.adapters import (
    Rule,
    ScriptedDecider,
    allowed,
    blocked,
    changed,
    digest_of,
    held,
    sanitized,
    seen,
    withheld,
)

__all__ = [
    "Rule", "ScriptedDecider", "allowed", "blocked", "changed", "digest_of", "held", "sanitized", "seen", "withheld",
]  # fmt: skip
