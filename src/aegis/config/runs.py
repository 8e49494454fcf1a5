"""The section `runs`: which models and tools governed runs may use, and which guards look at them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from aegis.config.fields import Name, Section, Timeout

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
