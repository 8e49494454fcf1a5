"""Digests that name a call, and salted commitments that stand for them in the log.

A leaf never carries a digest of arguments: an unsalted digest of an amount or of a yes is found by
trying. It carries a commitment under a per-call 256-bit salt, which is erased with the payload.
"""

from __future__ import annotations

import hashlib
from typing import Final

import orjson

SALT_BYTES: Final = 32
KID_DIGITS: Final = 32
_CALL_DOMAIN: Final = b"aegis/call-commitment/v1\0"
_PAYLOAD_DOMAIN: Final = b"aegis/payload-commitment/v1\0"


def sha256(data: bytes) -> str:
    """`sha-256:` and the lower-case hex digest of `data`."""
    return "sha-256:" + hashlib.sha256(data).hexdigest()


def kid_of(public: bytes) -> str:
    """The identifier of a public key: the first 128 bits of its SHA-256, in hex; it vouches for the key."""
    return hashlib.sha256(public).hexdigest()[:KID_DIGITS]


def call_digest(*, server: str | None, tool: str, arguments: bytes) -> str:
    """The digest of a call: SHA-256 over the canonical JSON of `{arguments, server, tool}`.

    `arguments` are canonical bytes; over the submitted ones this is the request digest, over those
    that will run it is the call digest.
    """
    named = b',"server":' + orjson.dumps(server) + b',"tool":' + orjson.dumps(tool)
    return sha256(b'{"arguments":' + arguments + named + b"}")


def call_commitment(salt: bytes, request_digest: str, digest: str) -> str:
    """Commits a leaf to both digests of a call under `salt`."""
    return sha256(_CALL_DOMAIN + salt + request_digest.encode() + b"\0" + digest.encode())


def payload_commitment(salt: bytes, payload: bytes) -> str:
    """Commits a leaf to the payload that is stored beside the log, under `salt`."""
    return sha256(_PAYLOAD_DOMAIN + salt + payload)
