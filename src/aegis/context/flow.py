"""Where the values of a session's calls came from, for auditors.

An edge leads from the place in a result to the argument in which the same value stands. It is worked out from the
session's memory, which holds keyed hashes, and from the recorded arguments: no value is told. `holds` says that the
call was held or blocked because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from aegis.context.memory import SessionMemory
from aegis.context.sessions import key_of_session
from aegis.core.ports import Entry, Reader, Search
from aegis.errors import InvalidCall
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.keys.accounts import list_accounts
from aegis.keys.api import list_keys
from aegis.policy.dataflow.declare import strings_of
from aegis.policy.dataflow.reading import SessionView, ValueOrigin
from aegis.policy.dataflow.values import families, find_values, host_of, normalise
from aegis.server.services import Services

MAX_CALLS: Final = 500  # newest of a session that one answer tells: each is decrypted
MAX_EDGES: Final = 2_000
MAX_OF_CALL: Final = 64  # edges of one call
_TEXT: Final = (4, 128)  # characters of a text that is found as a whole: shorter ones stand everywhere


def find_flow(services: Services, session: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flow of data of a session, by the parameters of `SESSION_FLOW`; raises `InvalidCall` (404, 409)."""
    principal = query.get("principal") or principal_of(services, session, query.get("agent", ""))
    with services.store.reader() as reader:
        if not reader.search(Search(principal=principal, session=session, limit=1)):
            raise InvalidCall("the log holds nothing of such a session", code="not_found", status=404)
        return flow_of(services.gate.parts, reader, session, principal)


def principal_of(services: Services, session: str, agent: str) -> str:
    """Whose session of that name it is; raises `InvalidCall` (409) naming them where there are several."""
    with services.store.reader() as reader:
        newest = reader.search(Search(session=session, agent=agent, limit=1))
        known = {key.principal for key in list_keys(reader)} | {account.name for account in list_accounts(reader)}
        found = {entry.principal for entry in newest} | {services.gate.parts.local}
        found = {
            name
            for name in known | found
            if name and reader.search(Search(principal=name, session=session, agent=agent, limit=1))
        }
        owners = {name for name in found if _is_owner(reader, name, session)} or found
    if len(owners) > 1:
        named = ", ".join(f"`{name}`" for name in sorted(owners))
        raise InvalidCall(
            f"several principals have a session of that name: {named}",
            code="ambiguous",
            hint="say which by `principal`",
            status=409,
        )
    return next(iter(owners), "")


def _is_owner(reader: Reader, principal: str, session: str) -> bool:
    """Whether a principal opened a session or made a call in it: approvers have receipts in it as well."""
    return any(
        reader.search(Search(principal=principal, session=session, kind=kind, limit=1))
        for kind in ("session", "decision")
    )


def flow_of(parts: Parts, reader: Reader, session: str, principal: str) -> dict[str, Any]:
    """The sources of a session, its calls, and which value of a call stands where; oldest first."""
    view = SessionMemory(parts).load(reader, key_of_session(principal, session)) or SessionView(id=session)
    places = [reader.entry_by_id(one.receipt) for one in view.documents]
    read_at = [entry.index if entry is not None else -1 for entry in places]
    search = Search(kind="decision", session=session, principal=principal, limit=MAX_CALLS + 1)
    entries = reader.search(search)
    calls: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for entry in reversed(entries[:MAX_CALLS]):
        calls.append({"receipt": entry.receipt_id, "tool": _tool(entry), "decision": entry.decision})
        found = _edges(parts, reader, entry, view, read_at)
        edges.extend(found[: max(0, MAX_EDGES - len(edges))])
    return {
        "sources": [
            {"receipt": one.receipt, "tool": one.tool, "trust": one.trust, "sensitivity": one.sensitivity}
            for one in view.documents
        ],
        "calls": calls,
        "edges": edges,
        "complete": len(entries) <= MAX_CALLS and len(edges) < MAX_EDGES and not view.saturated,
    }


def _tool(entry: Entry) -> str:
    server = orjson.loads(entry.body).get("server")
    return entry.tool if server is None else f"{server}/{entry.tool}"


def _edges(parts: Parts, reader: Reader, entry: Entry, view: SessionView, read_at: list[int]) -> list[dict[str, Any]]:
    """The edges into one call: those that its findings name, then those of the other values that it carries."""
    payload = load_payload(parts, reader, entry)[0]
    if payload is None:
        return []
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for finding in payload.get("findings", ()):
        for receipt, path in finding.get("origins", ()):
            holds = finding["outcome"] != "allow"
            found[receipt, path, finding["path"]] = _edge(
                entry, receipt, path, finding["path"], finding["evidence"], holds=holds
            )
    for place, kind, origin in _carried(payload.get("patched", payload.get("arguments")) or {}, view):
        receipt = view.documents[origin.document].receipt
        if 0 <= read_at[origin.document] < entry.index and (receipt, origin.path, place) not in found:
            found[receipt, origin.path, place] = _edge(entry, receipt, origin.path, place, kind, holds=False)
        if len(found) >= MAX_OF_CALL:
            break
    return list(found.values())


def _edge(entry: Entry, receipt: str, path: str, place: str, kind: str, *, holds: bool) -> dict[str, Any]:
    return {
        "from": {"receipt": receipt, "path": path},
        "to": {"receipt": entry.receipt_id, "path": place},
        "is": kind,
        "holds": holds,
    }


def _carried(arguments: Mapping[str, Any], view: SessionView) -> Iterator[tuple[str, str, ValueOrigin]]:
    """Where each value of a call's arguments stands in what was read, unless the user said it."""
    words = view.words
    for place, _, text in strings_of(arguments):
        seen = False
        for value in find_values(text):
            seen = True
            if words is not None and words.says(value.kind, value.normal):
                continue
            origins = view.origins(families(value.kind), value.normal)
            if not origins and value.kind == "url":
                origins = view.origins("u", host_of(value.normal))
            for origin in origins:
                yield place, value.kind, origin
        if not seen and _TEXT[0] <= len(text) <= _TEXT[1]:
            normal = normalise("text", text)
            if words is None or not words.says("text", normal):
                for origin in view.origins("t", normal):
                    yield place, "text", origin
