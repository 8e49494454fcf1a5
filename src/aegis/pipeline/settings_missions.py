"""The section `missions`: which missions count here, and what calls under them cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from aegis.errors import TokenInvalid
from aegis.keys.jws import decode
from aegis.pipeline.fields import Name, Section, unlike

_KEY_BYTES = 32


def public_key(text: str) -> bytes:
    """The 32 bytes of an Ed25519 public key in base64url without padding; raises `ValueError` otherwise."""
    try:
        data = decode(text.rstrip("=").encode("ascii"))
    except (TokenInvalid, UnicodeEncodeError) as error:
        raise ValueError("a public key is 32 bytes in base64url") from error
    if len(data) != _KEY_BYTES:
        raise ValueError("a public key is 32 bytes in base64url")
    return data


def _public_key(text: str) -> str:
    public_key(text)
    return text


def _currency(text: str) -> str:
    if len(text) != 3 or not text.isascii() or not text.isupper():
        raise ValueError("a currency is three capital letters, such as `EUR`")
    return text


PublicKey = Annotated[str, AfterValidator(_public_key)]
Currency = Annotated[str, AfterValidator(_currency)]
Amount = Annotated[int, Field(ge=0, le=2**53 - 1)]


class QuoteSettings(Section):
    """What one call of a tool costs at worst, as the operator was told."""

    tool: Name
    """The tool, as a selector."""
    money: dict[Currency, Amount] = Field(default_factory=dict)
    """Money in minor units (cents), by currency."""
    tokens: Amount = 0
    """Tokens of a model."""


class MissionSettings(Section):
    """Missions of this deployment."""

    required: bool
    """Whether calls that belong to no mission are refused."""
    audience: Name
    """The name of this deployment, which every mission must carry as `aud`."""
    issuers: Annotated[dict[Name, PublicKey], AfterValidator(unlike)]
    """Public keys of issuers beside this deployment itself, by the name that their missions and lists carry as `iss`:
    Ed25519, base64url."""
    tool_keys: dict[Name, PublicKey]
    """Public keys of tools that sign their results, by selector; results of such a tool must be signed."""
    quotes: list[QuoteSettings]
    """What calls cost at worst; a tool without a quote costs nothing."""
    file_system: Literal["shared", "apart"]
    """`shared` follows links on this machine before a path counts as inside of a scope."""
