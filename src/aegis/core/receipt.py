"""The receipt: one leaf of the log, a closed set of members without floats and without free text.

A draft is what the deciding side knows; the appender adds the position (`index`, `log`, `prev`,
`time`) and the signature. Members are documented in `docs/reference/receipt.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

RECEIPT_VERSION: Final = 2  # of new receipts; those of version 1 stay valid

Kind = Literal[
    "decision", "result", "approval", "redemption", "judge", "session", "mission", "revocation", "key",
    "config", "grant", "run", "access", "erasure", "alarm",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = (
    "decision", "result", "approval", "redemption", "judge", "session", "mission", "revocation", "key",
    "config", "grant", "run", "access", "erasure", "alarm",
)  # fmt: skip

# Members that a receipt may have, by its version. Those that are absent carry no information: a
# receipt never holds null.
_FIRST_MEMBERS: Final[frozenset[str]] = frozenset({
    "v", "index", "log", "time", "kind", "receipt_id", "prev", "parent", "agent", "principal", "session",
    "call_id", "tool", "server", "call_commitment", "payload_commitment", "effects", "risk", "decision",
    "verdict", "reason", "guards", "policy_digest", "settings", "approval_id", "approvers", "permit_id",
    "mission_id", "budget", "provenance", "key", "action", "sig", "mission", "lineage", "missing",
    "preview", "judge",
    "grant_id", "expires",
})  # fmt: skip
MEMBERS: Final = _FIRST_MEMBERS | {"owner", "roles", "context", "deferral", "execution"}
MEMBERS_OF: Final[Mapping[int, frozenset[str]]] = {1: _FIRST_MEMBERS, 2: MEMBERS}
REQUIRED: Final[frozenset[str]] = frozenset(
    {"v", "index", "log", "time", "kind", "receipt_id", "prev", "principal", "sig"}
)


ID_DIGITS: Final = 32  # hex digits of an identifier that is made here


GATEWAY_SIGNER: Final = "gateway"
LOG_SIGNER: Final = "log"
PREVIOUS_LOG_SIGNER: Final = "log:previous"
_AGENT_SIGNER: Final = "agent:"


def agent_signer(agent: str) -> str:
    """The signer name of an agent's own receipt key."""
    return _AGENT_SIGNER + agent


def agent_of_signer(signer: str) -> str:
    """The agent whose key a signer name means; raises `ValueError` for the gateway's and the log's."""
    if not signer.startswith(_AGENT_SIGNER):
        raise ValueError("the signer is not an agent")
    return signer[len(_AGENT_SIGNER) :]


def call_id_of(receipt_id: str) -> str:
    """The identifier of a call whose host gave it none, from that of its first decision, and back.

    A store finds such a call by the decision, and needs no index over calls for it.
    """
    return receipt_id[::-1]


class Draft(Struct, frozen=True, kw_only=True):
    """A receipt without its position and signature.

    `members` holds everything but `v index log time prev sig` (and must hold `kind`, `receipt_id`
    and `principal`); only strings, integers, booleans, lists and objects of them. `signer` says whose
    key signs: `GATEWAY_SIGNER`, `LOG_SIGNER`, or `agent_signer(name)`. `payload` is stored beside the
    log, encrypted; `salt` is erased with it.
    """

    members: dict[str, Any]
    signer: str = GATEWAY_SIGNER
    payload: bytes | None = None
    salt: bytes = b""


class Recorded(Struct, frozen=True, kw_only=True):
    """Where a draft ended up."""

    receipt_id: str
    index: int
    leaf_hash: bytes
    time: str


def receipt_ref(recorded: Recorded) -> dict[str, Any]:
    """Return where the log keeps what was just recorded."""
    return {"id": recorded.receipt_id, "index": recorded.index, "leaf_hash": recorded.leaf_hash.hex()}
