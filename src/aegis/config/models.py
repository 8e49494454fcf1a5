"""Models behind APIs, wherever a section names one: the sections `proxies`, `drafting` and `runs`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from aegis.config.fields import Name, Section, Timeout, written
from aegis.keys.references import check_reference

MAX_TURNS = 100  # answers of a model in one run
MAX_CALLS = 1_000  # tool calls in one run

Price = Annotated[int, Field(ge=0, le=2**53 - 1)]


class PriceSettings(Section):
    """What a model costs, in whole currency units for a million tokens."""

    input: Price
    """A million tokens that it reads."""
    output: Price
    """A million tokens that it writes."""


class ModelSettings(Section):
    """One model that runs may use. Its key is the name by which routes list it."""

    provider: Name
    """A provider of `proxies.providers`, or of an installed package."""
    model: Name
    """The model, as the provider calls it."""
    region: Name = "unknown"
    """Where it computes; the guard `residency` decides by it."""
    labels: dict[Name, Annotated[list[Name], Field(min_length=1)]] = Field(default_factory=dict)
    """Which runs it may see: for each label that stands here, the values that a run must have one of."""
    price: PriceSettings = PriceSettings(input=0, output=0)


class ToolServerSettings(Section):
    """One MCP server whose tools runs may use. Its key is the server's name in calls."""

    command: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments; it is started once, and speaks over its standard input and output."""
    environment: list[Name] = Field(default_factory=list)
    """Environment variables that it is handed; no others but `PATH`."""


class RouteSettings(Section):
    """How the runs of one route go. The lists are asked in order; sanitising answers compose in that order."""

    models: Annotated[list[Name], Field(min_length=1)]
    """Models in the order of preference; the first that is allowed and healthy answers."""
    servers: list[Name] = Field(default_factory=list)
    """Tool servers whose tools the model sees: of `runs.servers`, or of an installed package."""
    router: Name = "listed"
    """What puts the models that may answer in order."""
    graph: Name = "standard"
    """What joins the stages."""
    ingress: list[Name] = Field(default_factory=lambda: ["classify", "documents", "mask"])
    """Guards of the request."""
    result: list[Name] = Field(default_factory=lambda: ["classify", "mask"])
    """Guards of tool results, after the gate judged them."""
    egress: list[Name] = Field(default_factory=lambda: ["output", "unmask"])
    """Guards of the answer."""
    finalize: list[Name] = Field(default_factory=list)
    """Guards of every run that ends, refused ones too, right before its end is recorded."""
    turns: Annotated[int, Field(ge=1, le=MAX_TURNS)] = 10
    """Answers of a model at most."""
    calls: Annotated[int, Field(ge=0, le=MAX_CALLS)] = 50
    """Tool calls at most."""
    timeout: Timeout = 120
    """Seconds that one answer of a model, or one tool, may take."""


class RunSettings(Section):
    """Governed runs: `POST /v1/runs`."""

    models: dict[Name, ModelSettings]
    servers: dict[Name, ToolServerSettings]
    routes: dict[Name, RouteSettings]
    """Routes by name; a request that names none takes `default`."""
    options: dict[Name, dict[str, Any]]
    """Options of guards, routers, and installed providers and tool servers, by their names."""

    @property
    def is_used(self) -> bool:
        """Whether anything stands in the section that has to be compiled."""
        return bool(self.models or self.servers or self.routes or self.options)


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

    dialect: Literal["openai", "anthropic", "gemini", "ollama", "bedrock"]
    """Which API it speaks: OpenAI's chat completions and responses, Anthropic's messages, Gemini's `generateContent`,
    Ollama's `/api/chat`, or Bedrock's Converse (with an API key of Bedrock)."""
    url: BaseUrl
    """Its base URL, as that vendor's own client takes it: `https://api.openai.com/v1`, `https://api.anthropic.com`."""
    key: SecretReference | None = None
    """The provider's key; agents never see it. Only servers of one's own (`private`) may have none."""
    models: Annotated[list[Name], Field(min_length=1)] = Field(default=["*"])
    """The models that it is asked for, by name or with `*`."""
    private: bool = False
    """Whether it may lie at a private address and be spoken to without TLS."""

    @model_validator(mode="after")
    def _has_key(self) -> Self:
        if self.key is None and not self.private:
            raise ValueError("a provider needs a `key`, unless it is a server of your own (`private: true`)")
        return self


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
