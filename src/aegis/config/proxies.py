"""Models behind APIs, wherever a section names one; and the section `drafting`."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from aegis.config.fields import Name, Section, Timeout, written
from aegis.keys.references import check_reference


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


# The section `proxies`: whom the model proxies ask, and how they treat what clients send.

DocumentsMode = Literal["readable", "judge", "observe", "pass"]
TextsMode = Literal["judge", "observe", "pass"]


class ProviderSettings(Section):
    """One provider of models. Its key is only a name, for messages and the log."""

    dialect: Literal["openai", "anthropic"]
    """Which API it speaks: chat completions and responses, or messages."""
    url: BaseUrl
    """Its base URL, as that vendor's own client takes it: `https://api.openai.com/v1`, `https://api.anthropic.com`."""
    key: SecretReference
    """The provider's key; agents never see it."""
    models: Annotated[list[Name], Field(min_length=1)] = Field(default=["*"])
    """The models that it is asked for, by name or with `*`."""
    private: bool = False
    """Whether it may lie at a private address and be spoken to without TLS."""


class McpProxySettings(Section):
    """One MCP server over streamable HTTP. Its name is the path `/mcp/NAME`, and its tools are `mcp:NAME/...`."""

    url: BaseUrl
    """The server's endpoint."""
    key: SecretReference | None = None
    """What it is shown as `Authorization: Bearer`; clients never see it."""
    private: bool = False
    """Whether it may lie at a private address and be spoken to without TLS."""
    only_pinned: bool = False
    """Whether tools are shown only after somebody accepted them (`aegis tools pin`)."""


class ProxySettings(Section):
    """Proxies between agents and what they talk to."""

    providers: dict[Name, ProviderSettings]
    """Providers of models; the first whose `models` cover the model of a request is asked."""
    mcp: dict[Name, McpProxySettings]
    """MCP servers that clients reach through the gateway."""
    on_approval: Literal["wait", "answer"]
    """Whether an answer with a held call waits, or says so at once and is resumed by a later request."""
    wait: Timeout
    """How long an answer waits for a held call at most; after it, the call is refused."""
    history: Literal["refuse", "judge"]
    """What happens to a request that holds tool calls which were never decided here: it is refused, or they are
    judged as if the model had just made them. Results of calls that nobody made are refused in any case."""
    documents: DocumentsMode
    """What happens to documents in requests. `judge` judges them like results and replaces what may not be seen; what
    cannot be read (PDF files, pictures, sound, files that are only named) passes, recorded as uninspected, and with
    `readable` is refused. `observe` records what is found and changes nothing."""
    texts: TextsMode
    """What happens to the user's own text, where a rule could find something in it."""
