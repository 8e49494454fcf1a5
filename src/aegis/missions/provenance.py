"""A tool's own signature over a result, and over what the call really cost."""

from __future__ import annotations

from typing import Annotated

import msgspec
import orjson

from aegis.core.canonical import canonical, sha256, stream_result
from aegis.core.mission import Count, Currency, Sha256, Text
from aegis.core.ports import Signer
from aegis.errors import MissionInvalid
from aegis.missions import status


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call really cost: money in minor units by currency."""

    money: Annotated[dict[Currency, Count], msgspec.Meta(max_length=16)] = {}
    tokens: Count = 0

    def cost(self) -> dict[str, int]:
        """The amounts by the names of ledgers."""
        return {"tokens": self.tokens, **{f"money.{name}": amount for name, amount in self.money.items()}}


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of a signed result; `result` is the digest of its canonical JSON."""

    decision_id: Text
    result: Sha256
    usage: Usage | None = None


def sign_stream(signer: Signer, *, decision_id: str, content: bytes, usage: Usage | None = None) -> str:
    """The token by which a tool signs a result that it streamed, once all of `content` was sent."""
    result = stream_result(size=len(content), digest=sha256(content))
    return sign_result(signer, decision_id=decision_id, result_digest=sha256(canonical(result)), usage=usage)


def sign_result(signer: Signer, *, decision_id: str, result_digest: str, usage: Usage | None = None) -> str:
    """The token by which a tool signs one result."""
    claims = Provenance(decision_id=decision_id, result=result_digest, usage=usage)
    return status.sign(signer, status.PROVENANCE, orjson.dumps(msgspec.to_builtins(claims)))


def check_provenance(token: str, public: bytes, *, decision_id: str, result_digest: str) -> Provenance:
    """What the tool signed about exactly this result; raises `MissionInvalid` otherwise."""
    try:
        claims = msgspec.convert(status.verify(token, status.PROVENANCE, lambda kid: public), Provenance)
    except msgspec.ValidationError as error:
        raise MissionInvalid("the provenance is malformed", member="provenance") from error
    if claims.decision_id != decision_id or claims.result != result_digest:
        raise MissionInvalid("the provenance is about another result", member="provenance")
    return claims
