"""What a deployment says about a session or a receipt to somebody who does not see its log.

A session attestation sums a session up and names the end of the log that it was taken from. A
projection shows one receipt in one of two views, public (closed words alone) and audit (the whole
record); both carry the leaf hash of the same record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import orjson

from aegis.audit.merkle import leaf_hash
from aegis.audit.trust import public_of, read_keys
from aegis.core.canonical import canonical_record
from aegis.core.digest import kid_of
from aegis.core.ports import Entry, Signer
from aegis.core.strict_json import parse
from aegis.errors import MissionInvalid
from aegis.missions import jws

View = Literal["public", "audit"]
# Members that hold closed words, ids and times: nothing that says what a rule or a scope looks like.
PUBLIC: Final = frozenset({
    "v", "index", "log", "time", "kind", "receipt_id", "parent", "agent", "call_id", "tool", "server", "risk",
    "decision", "verdict", "reason", "mission_id", "lineage", "approval_id", "permit_id", "action",
})  # fmt: skip


def sign_attestation(signer: Signer, summary: dict[str, Any]) -> str:
    """The token that carries a session's summary."""
    return jws.sign(signer, jws.ATTESTATION, orjson.dumps(summary, option=orjson.OPT_SORT_KEYS))


def check_attestation(token: str, key_for: jws.KeyFor) -> dict[str, Any]:
    """The summary that a trusted key signed; raises `MissionInvalid` otherwise."""
    claims: dict[str, Any] = jws.verify(token, jws.ATTESTATION, key_for)
    return claims


def sign_projection(signer: Signer, entry: Entry, view: View) -> str:
    """The token that shows one receipt in one view."""
    record = orjson.loads(entry.body)
    shown = record if view == "audit" else {name: value for name, value in record.items() if name in PUBLIC}
    claims = {"view": view, "leaf_hash": entry.leaf_hash.hex(), "receipt": shown}
    return jws.sign(signer, jws.PROJECTION, orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))


def check_projection(token: str, key_for: jws.KeyFor) -> dict[str, Any]:
    """The claims of a projection; of the audit view the record must hash to the leaf that it names.

    Raises `MissionInvalid` otherwise.
    """
    claims: dict[str, Any] = jws.verify(token, jws.PROJECTION, key_for)
    if claims.get("view") == "audit" and leaf_hash(canonical_record(claims["receipt"])).hex() != claims["leaf_hash"]:
        raise MissionInvalid("the record is not the one of this leaf", member="leaf_hash")
    if claims.get("view") == "public" and not claims["receipt"].keys() <= PUBLIC:
        raise MissionInvalid("the public view shows what it must not", member="view")
    return claims


def trusted_keys(keys: bytes) -> jws.KeyFor:
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
