"""The key under which engines find a call again."""

from __future__ import annotations

import hashlib
from functools import lru_cache

_sha256 = hashlib.sha256


def call_key(principal: str, session: str, call_id: str) -> int:
    """The 64-bit key under which a call is indexed: half for the session, half for the call.

    Different calls may share a key; the columns tell them apart.
    """
    return int.from_bytes(_scope(principal, session) + _sha256(call_id.encode()).digest()[:4], "big", signed=True)


@lru_cache(maxsize=4_096)
def _scope(principal: str, session: str) -> bytes:
    return _sha256(f"{principal}\0{session}".encode()).digest()[:4]
