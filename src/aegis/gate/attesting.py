"""Session attestations and projections, made from what the log holds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from aegis.core.ports import Entry, Reader, Search
from aegis.core.principal import Principal
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.gate.control import check_runs
from aegis.gate.missions import Missions
from aegis.gate.parts import Parts
from aegis.gate.sessions import key_of_session
from aegis.missions import ledgers, sessions
from aegis.missions.attestation import View, sign_attestation, sign_projection


def attest_session(
    parts: Parts, missions: Missions, principal: Principal, session: str, *, whose: str | None = None
) -> str:
    """The signed summary of a session: its mission, verdicts, budget use, and the end of the log.

    It is `principal`'s own, or that of the principal `whose` for auditors. Raises `InvalidCall` where the
    log holds nothing of it.
    """
    owner = principal.id if whose is None else whose
    if owner != principal.id and "auditor" not in principal.roles:
        raise InvalidCall("the sessions of others are for auditors", code="forbidden", status=403)
    if "auditor" not in principal.roles:
        with parts.store.reader() as reader:
            check_runs(reader, principal)
    agent = ""
    counts: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    chain = hashlib.sha256()
    first = last = -1
    with parts.store.reader() as reader:
        for entry in _of_session(reader, owner, session):
            body = orjson.loads(entry.body)
            counts[f"{entry.kind}.{body['decision']}" if "decision" in body else entry.kind] += 1
            if "verdict" in body:
                verdicts[body["verdict"]] += 1
            agent = agent or entry.agent
            chain.update(entry.leaf_hash)
            first, last = entry.index, max(last, entry.index)
        if first < 0:
            raise InvalidCall("the log holds nothing of such a session", code="not_found", status=404)
        head = reader.head()
        summary: dict[str, Any] = {
            "session": session,
            "principal": owner,
            "agent": agent,
            "iat": parts.clock() // MICROS,
            "size": head.size,
            "head": head.leaf.hex(),
            "first": first,
            "last": last,
            "receipts": dict(sorted(counts.items())),
            "verdicts": dict(sorted(verdicts.items())),
            "leaves": "sha-256:" + chain.hexdigest(),
        }
        found = sessions.find(reader, key_of_session(owner, session))
        if found is not None:
            policy = parts.policy.current
            lineage = missions.lineage(reader, found[0].mission_id, head.epoch, policy)
            own = ledgers.ledgers_of(lineage.ceilings, agent=agent, principal=owner, session=session)
            summary["mission_id"], summary["lineage"] = found[0].mission_id, lineage.ids
            summary["recourse"] = list(found[0].recourse)
            summary["budget"] = [
                {"ceilings": dict(one.ceilings), "used": dict(one.used)} for one in ledgers.balances(reader, own)
            ]
    parts.introduce_keys()
    return sign_attestation(parts.keys.attestation_signer(), summary)


def project(parts: Parts, principal: Principal, receipt_id: str, view: View) -> str:
    """One receipt in one view; the audit view needs the right to audit."""
    if view == "audit" and "auditor" not in principal.roles:
        raise InvalidCall("the audit view is for auditors", code="forbidden", status=403)
    with parts.store.reader() as reader:
        if "auditor" not in principal.roles:
            check_runs(reader, principal)
        entry = reader.entry_by_id(receipt_id)
    if entry is None or (entry.principal != principal.id and "auditor" not in principal.roles):
        raise InvalidCall("there is no such receipt", code="not_found", status=404)
    parts.introduce_keys()
    return sign_projection(parts.keys.attestation_signer(), entry, view)


def _of_session(reader: Reader, principal: str, session: str) -> Iterator[Entry]:
    """Every entry of a session, newest first."""
    before: int | None = None
    while page := reader.search(Search(principal=principal, session=session, before=before, limit=1_000)):
        yield from page
        before = page[-1].index
