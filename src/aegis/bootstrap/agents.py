"""Which agents there are: who holds a key, who made a call, and who was registered, stopped or restored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from aegis.bootstrap.introduce import COLLECTION as RECEIPT_KEYS
from aegis.core.ports import Document, Reader
from aegis.core.times import system_clock
from aegis.gate.control import COLLECTION as SWITCHES
from aegis.gate.control import list_contained
from aegis.keys.api import list_keys


def known_agents(reader: Reader) -> dict[str, dict[str, Any]]:
    """List every known agent by name, with its `state`, and `reason` and `by` of the last switch.

    An agent is known from the moment in which a key is made for it, so that it can be stopped before its first call.
    """
    held = (key for key in list_keys(reader) if "agent" in key.roles and key.state == "active")
    holders = {name: _row(name) for name in (key.agent or key.principal for key in held)}
    return holders | seen_agents(reader)


def seen_agents(reader: Reader) -> dict[str, dict[str, Any]]:
    """List the agents that made a call, were registered, stopped or restored."""
    names = {orjson.loads(document.body).get("agent") for document in _every(reader, RECEIPT_KEYS)}
    agents = {name: _row(name) for name in names if name}
    for document in _every(reader, SWITCHES):
        body = orjson.loads(document.body)
        agents[document.key] = _row(document.key, document.state, body["reason"], body["by"])
    now = system_clock()
    for one in list_contained(reader):
        row = agents.get(one.agent)
        if one.of == "agent" and one.does == "suspend" and one.holds_at(now) and row and row["state"] == "active":
            agents[one.agent] = _row(one.agent, "suspended", one.cause, one.by)
    return agents


def _row(name: str, state: str = "active", reason: str = "", by: str = "") -> dict[str, Any]:
    return {"agent": name, "state": state, "reason": reason, "by": by}


def _every(reader: Reader, collection: str) -> Iterator[Document]:
    after = ""
    while rows := reader.documents(collection, after=after):
        yield from rows
        after = rows[-1].key
