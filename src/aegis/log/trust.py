"""`keys.json`: which keys the log announced, and what a verifier starts from.

What makes the document worth anything is that a verifier got it another way than the log.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import orjson
from msgspec import Struct

from aegis.core.breaks import Break
from aegis.core.canonical import kid_of
from aegis.core.json import parse
from aegis.core.ports import Reader, Search
from aegis.errors import InvalidCall, LogInvalid

KEYS_VERSION: Final = 1
KEY_BYTES: Final = 32
_PAGE: Final = 1_000
MAX_KEYS_BYTES: Final = 64 * 1024 * 1024  # a deployment with a hundred thousand agents has 20 MiB of keys


class LogKey(Struct, frozen=True, kw_only=True):
    """A key of the log itself, which signs leaves with `first <= index <= until`."""

    kid: str
    public: bytes
    first: int = 0
    until: int | None = None


class Trust(Struct, frozen=True, kw_only=True):
    """The log to expect and its keys; there is at least one."""

    log: str
    keys: tuple[LogKey, ...]


def public_keys(reader: Reader) -> dict[str, Any]:
    """Build the `keys.json` document: every key that the log announced, in order, with the indexes it is valid for.

    A key signs leaves from `from` on and, where it was replaced or retired, up to `until`: these are the
    leaves that announce its beginning and its end.
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
    """Give the keys of `public_keys` that are in force as a JWK set (RFC 7517, RFC 8037)."""
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


def read_keys(data: bytes) -> Trust:
    """Read what `keys.json` says about the log and its own keys; raises `LogInvalid` (`keys_invalid`).

    Receipt and permit keys in the file are not believed: the log must endorse them itself.
    """
    if len(data) > MAX_KEYS_BYTES:
        raise _invalid("the file is too long")
    try:
        document = parse(data)
    except InvalidCall as error:
        raise _invalid("the file is not strict JSON") from error
    if type(document) is not dict or type(document.get("v")) is not int or document["v"] != KEYS_VERSION:
        raise _invalid("the version is unknown")
    log, listed = document.get("log"), document.get("keys")
    if type(log) is not str or not log or type(listed) is not list:
        raise _invalid("`log` and `keys` are needed")
    keys = tuple(_log_key(key) for key in listed if _purpose(key) == "log")
    if not keys:
        raise _invalid("no key of the log is in it")
    return Trust(log=log, keys=keys)


def public_of(text: Any) -> bytes | None:
    """Decode the raw key that canonical base64 spells, or answer `None`."""
    if type(text) is not str:
        return None
    try:
        public = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    canonical = binascii.b2a_base64(public, newline=False).decode() == text
    return public if len(public) == KEY_BYTES and canonical else None


def _purpose(key: Any) -> str:
    if type(key) is not dict or type(key.get("purpose")) is not str:
        raise _invalid("a key has no purpose")
    purpose: str = key["purpose"]
    return purpose


def _log_key(key: dict[str, Any]) -> LogKey:
    public = public_of(key.get("public"))
    if public is None:
        raise _invalid("a key is not 32 bytes in base64")
    if key.get("kid") != kid_of(public):
        raise _invalid("the identifier of a key belongs to another key")
    first, until = key.get("from", 0), key.get("until")
    if not _is_index(first) or not (until is None or _is_index(until)):
        raise _invalid("the span of a key is not between two indexes")
    return LogKey(kid=kid_of(public), public=public, first=first, until=until)


def _is_index(value: Any) -> bool:
    return type(value) is int and value >= 0


def _invalid(detail: str) -> LogInvalid:
    return LogInvalid(Break(kind="keys_invalid", detail=detail))


def _key_receipts(reader: Reader) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    before: int | None = None
    while page := reader.search(Search(kind="key", before=before, limit=_PAGE)):
        found.extend((entry.index, orjson.loads(entry.body)) for entry in page)
        before = page[-1].index
    found.reverse()
    return found
