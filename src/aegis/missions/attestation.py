"""What a deployment says about a session or a receipt to somebody who does not see its log.

A session attestation sums a session up and names the end of the log that it was taken from. A
projection shows one receipt in one of two views, public (closed words alone) and audit (the whole
record); both carry the leaf hash of the same record.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import orjson

from aegis.context.sessions import key_of_session
from aegis.core.canonical import canonical_record, kid_of
from aegis.core.json import parse
from aegis.core.ports import Entry, Reader, Search, Signer
from aegis.core.principal import Principal
from aegis.core.times import MICROS
from aegis.errors import InvalidCall, MissionInvalid
from aegis.gate.control import check_runs
from aegis.gate.parts import Parts
from aegis.log.merkle import leaf_hash
from aegis.log.trust import public_of, read_keys
from aegis.missions import ledgers, registry, status
from aegis.missions.standing import Missions

View = Literal["public", "audit"]
# Members that hold closed words, ids and times: nothing that says what a rule or a scope looks like.
PUBLIC: Final = frozenset({
    "v", "index", "log", "time", "kind", "receipt_id", "parent", "agent", "call_id", "tool", "server", "risk",
    "decision", "verdict", "reason", "mission_id", "lineage", "approval_id", "permit_id", "action",
})  # fmt: skip


def sign_attestation(signer: Signer, summary: dict[str, Any]) -> str:
    """The token that carries a session's summary."""
    return status.sign(signer, status.ATTESTATION, orjson.dumps(summary, option=orjson.OPT_SORT_KEYS))


def check_attestation(token: str, key_for: status.KeyFor) -> dict[str, Any]:
    """The summary that a trusted key signed; raises `MissionInvalid` otherwise."""
    claims: dict[str, Any] = status.verify(token, status.ATTESTATION, key_for)
    return claims


def sign_projection(signer: Signer, entry: Entry, view: View) -> str:
    """The token that shows one receipt in one view."""
    record = orjson.loads(entry.body)
    shown = record if view == "audit" else {name: value for name, value in record.items() if name in PUBLIC}
    claims = {"view": view, "leaf_hash": entry.leaf_hash.hex(), "receipt": shown}
    return status.sign(signer, status.PROJECTION, orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))


def check_projection(token: str, key_for: status.KeyFor) -> dict[str, Any]:
    """The claims of a projection; of the audit view the record must hash to the leaf that it names.

    Raises `MissionInvalid` otherwise.
    """
    claims: dict[str, Any] = status.verify(token, status.PROJECTION, key_for)
    if claims.get("view") == "audit" and leaf_hash(canonical_record(claims["receipt"])).hex() != claims["leaf_hash"]:
        raise MissionInvalid("the record is not the one of this leaf", member="leaf_hash")
    if claims.get("view") == "public" and not claims["receipt"].keys() <= PUBLIC:
        raise MissionInvalid("the public view shows what it must not", member="view")
    return claims


def trusted_keys(keys: bytes) -> status.KeyFor:
    """The attestation keys of a `keys.json` that came another way than the token; raises `LogInvalid`."""
    read_keys(keys)
    found: dict[str, bytes] = {}
    for key in parse(keys)["keys"]:
        public = public_of(key.get("public")) if key["purpose"] == "attestation" else None
        if public is not None:
            found[kid_of(public)] = public
    return found.get


def check_views(claims: Sequence[dict[str, Any]]) -> None:
    """Guarantee that checked projections all show one record; raises `MissionInvalid` otherwise."""
    if any("view" not in one for one in claims):
        raise MissionInvalid("only projections of one receipt are checked together", member="view")
    whole = next((one for one in claims if one["view"] == "audit"), None)
    for one in claims:
        if whole is not None:
            check_same_record(one, whole)
        elif (one["leaf_hash"], one["receipt"]) != (claims[0]["leaf_hash"], claims[0]["receipt"]):
            raise MissionInvalid("the views are of different records", member="leaf_hash")


def check_same_record(public: dict[str, Any], audit: dict[str, Any]) -> None:
    """Guarantee that two checked projections show the same record; raises `MissionInvalid` otherwise."""
    if public["leaf_hash"] != audit["leaf_hash"]:
        raise MissionInvalid("the two views are of different records", member="leaf_hash")
    if any(audit["receipt"].get(name) != value for name, value in public["receipt"].items()):
        raise MissionInvalid("the public view differs from its record", member="receipt")


# Session attestations and projections, made from what the log holds.


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
        found = registry.find_session(reader, key_of_session(owner, session))
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
