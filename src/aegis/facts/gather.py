"""Everything that one call's arguments tell by themselves."""

from __future__ import annotations

from aegis.facts.extract import extract
from aegis.facts.model import Facts, Subject


def gather(subject: Subject) -> Facts:
    """The facts of one call; bounded by `subject.limits`, and never raising on any JSON value."""
    return Facts(texts=extract(subject.arguments, subject.limits, unresolved=subject.unresolved))
