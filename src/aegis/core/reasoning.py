"""Why a call is made, as its host tells it: the model's reasoning in blocks, and a stated purpose. Nobody believes it.

Only a digest of it goes on record, salted. It can make a decision stricter and never laxer, so that whoever brings
none, or a made-up one, gains nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.canonical import canonical, sha256
from aegis.errors import InvalidCall

MAX_BLOCKS: Final = 256  # of one call
MAX_CHARS: Final = 65_536  # of all texts of one call: they are read for every call that brings them
MAX_SIGNATURE_CHARS: Final = 128  # a longer one is told by its digest
MAX_PURPOSE_CHARS: Final = 4_096
MAX_CHANGED: Final = 1_000_000
_DOMAIN: Final = b"aegis/reasoning-commitment/v1\0"
_DIGEST_CHARS: Final = 72

Weight = Literal["note", "hold"]


class ReasoningBlock(Struct, frozen=True, kw_only=True):
    """One block: its text, empty where the provider hides it, and the provider's signature over it, where there is one.

    What a provider encrypts is its own signature.
    """

    text: str = ""
    signature: str = ""

    @property
    def digest(self) -> str:
        """By what the block is known again."""
        return sha256(canonical([self.text, self.signature]))


class Reasoning(Struct, frozen=True, kw_only=True):
    """What a host says of why a call is made.

    `digest` is of all that the model reasoned, where `blocks` are only a part of it. `changed` counts signed blocks
    of the conversation that came back other than the model gave them.
    """

    blocks: tuple[ReasoningBlock, ...] = ()
    purpose: str = ""
    digest: str = ""
    changed: int = 0

    @property
    def bound(self) -> str:
        """The digest that the receipt is bound to."""
        return self.digest or digest_of(self.blocks)

    @property
    def signed(self) -> int:
        """How many blocks carry a signature."""
        return sum(1 for block in self.blocks if block.signature)

    @property
    def text(self) -> str:
        """Everything that can be read, in its order; the purpose comes last."""
        return "\n".join(filter(None, (*(block.text for block in self.blocks), self.purpose)))

    def facts(self, salt: bytes) -> dict[str, Any]:
        """What the receipt of its call says of it."""
        bound = hashlib.sha256(_DOMAIN + salt + self.bound.encode()).hexdigest()
        return {"commitment": f"sha-256:{bound}", "blocks": len(self.blocks), "signed": self.signed}

    def claims(self) -> dict[str, Any]:
        """What the encrypted payload keeps of it: digests, and the purpose; no reasoning."""
        kept: dict[str, Any] = {"digest": self.bound}
        if self.purpose:
            kept["purpose"] = self.purpose
        if self.changed:
            kept["changed"] = self.changed
        return kept

    def to_wire(self) -> dict[str, Any]:
        """The member `reasoning` of a call."""
        wire: dict[str, Any] = {}
        if self.blocks:
            wire["blocks"] = [_block_to_wire(block) for block in self.blocks]
        for name, value in (("purpose", self.purpose), ("digest", self.digest), ("changed", self.changed)):
            if value:
                wire[name] = value
        return wire


def digest_of(blocks: Iterable[ReasoningBlock]) -> str:
    """The digest of blocks in their order."""
    return sha256(canonical([[block.text, block.signature] for block in blocks]))


def reasoning_of(blocks: Iterable[ReasoningBlock], *, changed: int = 0) -> Reasoning | None:
    """What a conversation brings, within bounds: the end of it is kept, and the digest is of all; `None` of nothing."""
    found = [block for block in blocks if block.text or block.signature]
    if not found and not changed:
        return None
    whole = [_plain(block) for block in found]
    kept: list[ReasoningBlock] = []
    left = MAX_CHARS
    for block in reversed(whole[-MAX_BLOCKS:]):
        text = block.text[-left:] if left else ""
        left -= len(text)
        kept.insert(0, ReasoningBlock(text=text, signature=block.signature))
    digest = digest_of(whole) if kept != whole else ""
    return Reasoning(blocks=tuple(kept), digest=digest, changed=min(changed, MAX_CHANGED))


def _plain(block: ReasoningBlock) -> ReasoningBlock:
    """A block whose text can be digested, with a signature of bounded size."""
    text = block.text if block.text.isascii() else block.text.encode(errors="replace").decode()
    signature = block.signature
    if len(signature) > MAX_SIGNATURE_CHARS:
        signature = sha256(signature.encode(errors="replace"))
    return ReasoningBlock(text=text, signature=signature)


def _block_to_wire(block: ReasoningBlock) -> dict[str, str]:
    wire = {"text": block.text} if block.text else {}
    return {**wire, "signature": block.signature} if block.signature else wire


_MEMBERS: Final = frozenset({"blocks", "purpose", "digest", "changed"})
_BLOCK_MEMBERS: Final = frozenset({"text", "signature"})


def read_reasoning(value: Any) -> Reasoning:
    """The member `reasoning` of a call, strictly; raises `InvalidCall`."""
    if not isinstance(value, dict) or not _MEMBERS.issuperset(value):
        raise InvalidCall("`reasoning` holds `blocks`, `purpose`, `digest` and `changed`, each where it is known")
    blocks = value.get("blocks", [])
    if not isinstance(blocks, list) or not all(
        isinstance(one, dict)
        and _BLOCK_MEMBERS.issuperset(one)
        and all(isinstance(member, str) for member in one.values())
        for one in blocks
    ):
        raise InvalidCall("`reasoning.blocks` is a list of objects with `text`, `signature` or both")
    if "digest" in value and not value["digest"]:
        raise InvalidCall("`reasoning.digest` must not be empty", hint="leave it out")
    changed = value.get("changed", 0)
    if type(changed) is float and changed.is_integer():  # `3.0` is the number `3` (JSON Schema, 6.1.1)
        changed = int(changed)
    reasoning = Reasoning(
        blocks=tuple(
            ReasoningBlock(text=one.get("text", ""), signature=_signature(one.get("signature", ""))) for one in blocks
        ),
        purpose=value.get("purpose", ""),
        digest=value.get("digest", ""),
        changed=changed,
    )
    check_reasoning(reasoning)
    return reasoning


def _signature(given: str) -> str:
    return given if len(given) <= MAX_SIGNATURE_CHARS else sha256(given.encode(errors="replace"))


def check_reasoning(reasoning: Reasoning) -> None:
    """Guarantee that what a call brings is within its bounds, and can be digested; raises `InvalidCall`."""
    if not isinstance(reasoning, Reasoning) or len(reasoning.blocks) > MAX_BLOCKS:
        raise InvalidCall(f"`reasoning` has at most {MAX_BLOCKS} blocks")
    if sum(len(block.text) for block in reasoning.blocks) > MAX_CHARS:
        raise InvalidCall(
            f"the texts of `reasoning` have at most {MAX_CHARS} characters",
            hint="send the end of it, and the `digest` of all",
        )
    if any(len(block.signature) > MAX_SIGNATURE_CHARS for block in reasoning.blocks):
        raise InvalidCall(f"a signature longer than {MAX_SIGNATURE_CHARS} characters is given by its digest")
    if not isinstance(reasoning.purpose, str) or len(reasoning.purpose) > MAX_PURPOSE_CHARS:
        raise InvalidCall(f"`reasoning.purpose` must be text of at most {MAX_PURPOSE_CHARS} characters")
    if reasoning.digest != "" and not _is_digest(reasoning.digest):
        raise InvalidCall("`reasoning.digest` must be `sha-256:` and 64 digits in lower case")
    if type(reasoning.changed) is not int or not 0 <= reasoning.changed <= MAX_CHANGED:
        raise InvalidCall("`reasoning.changed` must be a whole number, zero or more")
    canonical(reasoning.to_wire())  # no lone surrogates


def _is_digest(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) == _DIGEST_CHARS
        and value.startswith("sha-256:")
        and not value[8:].strip("0123456789abcdef")
    )


class ReasoningRules(Struct, frozen=True, kw_only=True):
    """What a policy makes of reasoning: of words against effects, of changed blocks, of words out of documents.

    `reads` says whether calls that only read are held where a plan has no step for them, and `missing` what follows
    where a call brings no reasoning.
    """

    mode: Literal["enforce", "observe", "off"] = "off"
    contradicts: Weight = "note"
    changed: Weight = "note"
    instructed: Weight = "note"
    missing: Literal["silent", "note", "hold"] = "silent"
    reads: Literal["allow", "hold"] = "allow"
