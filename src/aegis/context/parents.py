"""Calls that claim a parent: whether the log knows it, for the guards that ask for evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aegis.gate.participants import DecisionAttempt, Part, Participant
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.judges.access import is_judge


class Parents(Participant):
    """Tells guards of a call whose parent is no recorded call of the same principal."""

    def __init__(self, parts: Parts):
        self._parts = parts

    def view(self, asked: DecisionAttempt) -> Part | None:
        return _Orphan() if self._is_orphan(asked.subject) else None

    def _is_orphan(self, subject: Subject) -> bool:
        """Whether the parent names no other call of the session by its id, and no decision of the same principal.

        A judge's calls name its run.
        """
        parent, principal = subject.call.parent, subject.principal
        if parent is None or is_judge(principal):
            return False
        if parent == subject.call_id:
            return True
        with self._parts.store.reader() as reader:
            if reader.latest_call(principal.id, subject.session, parent) is not None:
                return False
            entry = reader.entry_by_id(parent)
        return entry is None or entry.kind != "decision" or entry.principal != principal.id


class _Orphan(Part):
    __slots__ = ()

    def shows(self) -> Mapping[str, Any]:
        return {"orphan": True}
