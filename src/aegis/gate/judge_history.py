"""What a judge is told about the session: its trusted task, and the calls that came before this one."""

from __future__ import annotations

from typing import Any, Final

import orjson

from aegis.core.outcome import Outcome
from aegis.core.ports import Reader, Search
from aegis.facts.gather import executed_places
from aegis.facts.model import Limits
from aegis.facts.model import Subject as Called
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import load_payload
from aegis.judges.payload import within

MAX_SHOWN: Final = 2_048  # bytes of one earlier call's arguments


def recent_calls(parts: Parts, reader: Reader, subject: Subject, count: int) -> list[dict[str, Any]]:
    """The last calls of the session, oldest first, each with what became of it."""
    if not subject.session or not count:
        return []
    search = Search(kind="decision", principal=subject.principal.id, session=subject.session, limit=count)
    found: list[dict[str, Any]] = []
    for entry in reader.search(search):
        payload, _ = load_payload(parts, reader, entry)
        body = orjson.loads(entry.body)
        row: dict[str, Any] = {
            "tool": body["tool"],
            "server": body.get("server"),
            "call_id": body["call_id"],
            "decision": body["decision"],
            "reason": body["reason"],
        }
        if payload is not None:
            if "arguments" in payload:  # those of a call beyond its agent's rate are not kept
                arguments = payload.get("patched") or payload["arguments"]
                made = Called(tool=body["tool"], server=body.get("server"), arguments=arguments, limits=Limits())
                row["arguments"] = within(arguments, MAX_SHOWN, executed_places(made))[0]
            row["turn"] = payload.get("claimed", {}).get("turn")
        found.append(row)
    return found[::-1]


def violations(recent: list[dict[str, Any]], turn: int | None) -> list[dict[str, Any]]:
    """The tools that policy blocked earlier in the same turn."""
    blocked = [row for row in recent if row["decision"] == Outcome.BLOCK.word and row.get("turn") == turn]
    return [{"tool": row["tool"], "server": row["server"], "reason": row["reason"]} for row in blocked]
