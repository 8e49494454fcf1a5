"""Public keys as the log announced them: `keys.json` for verifiers, a JWK set for everybody else."""

from __future__ import annotations

import base64
from typing import Any, Final

import orjson

from aegis.core.ports import Reader, Search

KEYS_VERSION: Final = 1
_PAGE: Final = 1_000


def public_keys(reader: Reader) -> dict[str, Any]:
    """The `keys.json` document: every key that the log announced, in order, with the indexes it is valid for.

    A key signs leaves from `from` on and, where it was replaced or retired, up to `until`: these are the
    leaves that announce its beginning and its end. What makes the document worth anything is how a
    verifier got it, not what it says.
    """
    log = ""
    keys: dict[str, dict[str, Any]] = {}
    in_force: dict[tuple[str, str], list[str]] = {}
    for index, receipt in _key_receipts(reader):
        log = receipt["log"]
        described, action = receipt["key"], receipt["action"]
        kid = described["kid"]
        of_owner = in_force.setdefault((described["purpose"], described.get("agent", "")), [])
        ended = [kid] if action == "retire" else of_owner[:] if action == "rotate" else []
        for replaced in ended:
            keys[replaced]["until"] = index
            of_owner.remove(replaced)
        if action != "retire":
            keys[kid] = {**described, "from": index}
            of_owner.append(kid)
    return {"v": KEYS_VERSION, "log": log, "keys": list(keys.values())}


def jwks(document: dict[str, Any]) -> dict[str, Any]:
    """The keys of `public_keys` that are in force, as a JWK set (RFC 7517, RFC 8037)."""
    return {
        "keys": [
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "alg": "EdDSA",
                "use": "sig",
                "kid": key["kid"],
                "x": base64.urlsafe_b64encode(base64.b64decode(key["public"])).rstrip(b"=").decode(),
                "purpose": key["purpose"],
                **({"agent": key["agent"]} if "agent" in key else {}),
            }
            for key in document["keys"]
            if "until" not in key
        ]
    }


def _key_receipts(reader: Reader) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    before: int | None = None
    while page := reader.search(Search(kind="key", before=before, limit=_PAGE)):
        found.extend((entry.index, orjson.loads(entry.body)) for entry in page)
        before = page[-1].index
    found.reverse()
    return found
