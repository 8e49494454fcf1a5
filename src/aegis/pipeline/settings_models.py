"""Models behind APIs, wherever a section names one; and the section `drafting`."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from aegis.keys.reference import check_reference
from aegis.pipeline.fields import Name, Section, Timeout, written


def _base_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("a base URL is `https://HOST/PATH`, without a query")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a base URL holds no user name or password; give the key as `key`")
    return text.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(_base_url), written("`https://HOST/PATH`")]
SecretReference = Annotated[str, AfterValidator(check_reference), written("`${env:NAME}` or `file:PATH`")]


class EndpointSettings(Section):
    """A model behind any endpoint that speaks one of these APIs."""

    api: Literal["openai", "anthropic"]
    """Chat completions of OpenAI and everything compatible, or Anthropic's messages."""
    url: BaseUrl
    """Its base URL: `https://api.openai.com/v1`, `https://api.anthropic.com`."""
    name: Name
    """The model that is asked for."""
    key: SecretReference | None = None
    """The provider's key."""
    private: bool = False
    """Whether it may lie at a private address and be spoken to without TLS."""
    max_tokens: Annotated[int, Field(ge=64, le=65_536)] = 2_048
    """Tokens of one answer."""


class DraftingSettings(Section):
    """Drafts of policies from plain words. What a model drafts is shown, and put in force by a person or not at all."""

    model: EndpointSettings | None
    """The model that drafts; without one there are no drafts."""
    timeout: Timeout
    """How long its answer may take."""
