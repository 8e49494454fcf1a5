"""The members of a receipt."""

from __future__ import annotations

from typing import Final

from aegis.core.receipt import KINDS, MEMBERS, RECEIPT_VERSION, REQUIRED
from reference.markdown import page, table

MEANING: Final[dict[str, str]] = {
    "v": "version of the receipt's format",
    "index": "position in the log, from 0",
    "log": "name of the log",
    "time": "RFC 3339, UTC, microseconds; never before the receipt ahead of it",
    "kind": "what is recorded",
    "receipt_id": "name of the receipt; of kind `decision` it is the decision's id",
    "prev": "leaf hash of the receipt before, in hex; empty for the first",
    "parent": "receipt that this one follows from: the call of a result, the earlier decision of a repeat",
    "agent": "agent that the credential speaks for",
    "principal": "credential",
    "session": "session, as claimed by the credential's holder",
    "call_id": "id of the call, as claimed or drawn",
    "tool": "name of the tool",
    "server": "namespace of the tool",
    "call_commitment": "salted commitment to the digests of the call as submitted and as it will run",
    "payload_commitment": "salted commitment to the payload beside the log",
    "effects": "what the call would do, by its facts and its declaration",
    "risk": "tier",
    "decision": "outcome",
    "verdict": "evidence axis",
    "reason": "why it is not simply allowed",
    "guards": "for each guard: `guard`, `outcome`, and `rules` that it found",
    "policy_digest": "policy that decided",
    "settings": "`mode` and `insufficient_evidence` that were in force",
    "approval_id": "approval that this is about",
    "approvers": "principals who stand behind it",
    "permit_id": "permit that was minted",
    "mission_id": "mission that covers the call",
    "lineage": "missions from the root to the one that covers the call",
    "mission": "the signed mission itself (compact JWS), where one is issued or delegated",
    "budget": "`cost` of a call that is released or held; `refund` of a result that proved what the call cost",
    "preview": "how looking at a held call went: its state, its kind, and milliseconds",
    "judge": "what a judge run is and came to, or which judges a decision rests on",
    "missing": "what could not be evaluated; `argument` stands for a place in the arguments",
    "grant_id": "grant that covers the same call again in its session",
    "expires": "end of a grant, RFC 3339",
    "owner": "since version 2: the person for whom the session runs, where its host named one",
    "roles": "since version 2: the roles of the credential that asked",
    "context": "since version 2: what the session was: `labels`, `untrusted`, `task`, `turns`, `calls`, `drift`",
    "deferral": "since version 2: of a call that waits for evidence: `reason` (the kinds of evidence), `resolution` "
    "(`pending evidence approver denied timeout cancelled replaced`) and `time` (since when it waits)",
    "execution": "since version 2: of a result, whether the call did its work: `ok`, `failed`, `unknown`",
    "provenance": (
        "`signature` of a result by its tool: `valid`, `invalid` or `unsigned`; of a call that brought reasoning, "
        "`reasoning`: a salted `commitment`, and how many `blocks` and `signed` blocks it had"
    ),
    "key": "public key that is introduced, rotated or retired",
    "action": "what was done",
    "sig": "signature: `kid`, `alg`, `value`, and for a group `index`, `size` and `path`",
}


def render() -> str:
    """The page; raises `KeyError` where a member of the code has no meaning here."""
    always = [name for name in MEANING if name in REQUIRED]
    other = [name for name in MEANING if name not in REQUIRED]
    missing = MEMBERS - MEANING.keys()
    if missing:
        raise KeyError(f"without a meaning: {sorted(missing)}")
    return page(
        "Receipts",
        f"A receipt is one leaf of the log: canonical JSON (RFC 8785), version {RECEIPT_VERSION}, with a closed set "
        "of members, no floats, no null and no free text. The leaf hash is SHA-256 over a zero byte and these bytes "
        "(RFC 6962).",
        "Kinds: " + ", ".join(f"`{kind}`" for kind in KINDS) + ". Kinds that this version does not write are reserved.",
        "## Members of every receipt",
        table(["member", "is"], ((f"`{name}`", MEANING[name]) for name in always)),
        "## Members where they apply",
        table(["member", "is"], ((f"`{name}`", MEANING[name]) for name in other)),
        "## Signature\n\nWhat is signed is the receipt without `sig` and `prev`, behind a domain of its own. With "
        "`alg` `Ed25519` the receipt is signed itself; with `Ed25519-batch` the signature covers the root of a tree "
        "of receipts that were recorded together, and `path` leads from this one to the root "
        "([why](../adr/0005-signatures-of-groups.md)).",
    )
