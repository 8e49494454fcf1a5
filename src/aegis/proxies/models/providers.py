"""The providers of models: which of them serves a model, and what crosses the line to and from them.

The agent's key stays here and the provider's key stays here: neither is ever on the other side.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from aegis.config.config import Config
from aegis.core.names import glob_match
from aegis.errors import ConfigError, EgressError, InvalidCall, KeyFileError
from aegis.keys.references import Secret, read_secret
from aegis.outbound.client import Egress, EgressPolicy, Request, Streamed
from aegis.proxies.models.formats import Vendor

MAX_ANSWER_BYTES: Final = 67_108_864  # one answer: bounds what a provider can make us hold
MAX_ERROR_BYTES: Final = 65_536
TOTAL_S: Final = 3_600.0  # one answer, from the request to its last byte
IDLE_S: Final = 600.0  # models think silently; the official clients wait as long
MAX_CONNECTIONS: Final = 2_000

# What of a client's headers a provider is told; everything else, credentials and framing first, stays here.
_TOLD: Final = ("anthropic-version", "anthropic-beta", "openai-beta", "openai-organization", "openai-project")
# What of a provider's headers a client is told.
_PASSED: Final = ("retry-after", "retry-after-ms", "x-should-retry", "request-id", "openai-processing-ms")
_PASSED_PREFIXES: Final = ("x-ratelimit-", "anthropic-ratelimit-")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelProvider:
    """One provider, ready to be asked."""

    name: str
    vendor: Vendor
    url: str
    models: tuple[str, ...]
    secret: Secret = field(repr=False)

    def serves(self, model: str) -> bool:
        """Whether it is to be asked for this model."""
        return any(glob_match(pattern, model) for pattern in self.models)

    def headers(self, told: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request to it: its key, and what of the client's headers it may know."""
        headers = {name: told[name] for name in _TOLD if name in told}
        headers["content-type"] = "application/json"
        headers["user-agent"] = "aegis"
        if self.vendor == "anthropic":
            headers["x-api-key"] = self.secret.reveal()
            headers.setdefault("anthropic-version", "2023-06-01")
        elif self.vendor == "gemini":
            headers["x-goog-api-key"] = self.secret.reveal()
        else:
            headers["authorization"] = f"Bearer {self.secret.reveal()}"
        return headers

    def told(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What of its answer's headers the client is told."""
        passed = {
            name: value
            for name, value in headers.items()
            if (name in _PASSED or name.startswith(_PASSED_PREFIXES)) and self.secret.reveal() not in value
        }
        return {name: value for name, value in passed.items() if value.isascii() and value.isprintable()}


class Providers:
    """The providers of one configuration, over one client for everything that goes out."""

    def __init__(self, providers: Sequence[ModelProvider], egress: Egress):
        self.all = tuple(providers)
        self._egress = egress

    @classmethod
    def of(cls, config: Config) -> Providers:
        """Those that the configuration names; raises `ConfigError` for a key that cannot be had."""
        problems = []
        found: list[ModelProvider] = []
        private: set[str] = set()
        for name, one in config.settings.proxies.providers.items():
            try:
                # A server of one's own asks for none: what nobody knows is sent, and is found nowhere.
                secret = Secret(token_hex(16)) if one.key is None else read_secret(one.key)
            except KeyFileError as error:
                where = ("proxies", "providers", name, "key")
                problems.append(config.problem(where, f"the key of the provider `{name}` cannot be had: {error}"))
                continue
            if one.private:
                parts = urlsplit(one.url)
                port = parts.port or (443 if parts.scheme == "https" else 80)
                private.add(f"{parts.hostname}:{port}")
            found.append(
                ModelProvider(name=name, vendor=one.dialect, url=one.url, models=tuple(one.models), secret=secret)
            )
        if problems:
            raise ConfigError(tuple(problems))
        policy = EgressPolicy(
            private=frozenset(private),
            total_seconds=TOTAL_S,
            idle_seconds=IDLE_S,
            max_bytes=MAX_ANSWER_BYTES,
            max_connections=MAX_CONNECTIONS,
        )
        return cls(found, Egress(policy))

    def for_model(self, vendor: Vendor, model: object) -> ModelProvider:
        """The first provider that serves `model`; raises `InvalidCall` (400, 404) where there is none."""
        if not isinstance(model, str) or not model:
            raise InvalidCall("`model` must name a model", code="model", status=400)
        for one in self.all:
            if one.vendor == vendor and one.serves(model):
                return one
        hint = "`proxies.providers` in the configuration says which models are served"
        raise InvalidCall("no provider serves this model", code="model_not_found", hint=hint, status=404)

    @asynccontextmanager
    async def ask(
        self, provider: ModelProvider, path: str, told: Mapping[str, str], body: bytes = b"", *, method: str = "POST"
    ) -> AsyncIterator[Streamed]:
        """The provider's answer once its head is here; raises `InvalidCall` (502, 504) where none comes."""
        request = Request(method=method, url=provider.url + path, headers=provider.headers(told), body=body)
        try:
            async with self._egress.stream(request) as answer:
                yield answer
        except EgressError as error:
            raise unreachable(provider, error) from error

    async def aclose(self) -> None:
        """Close every connection."""
        await self._egress.aclose()


def unreachable(provider: ModelProvider, error: EgressError) -> InvalidCall:
    """The refusal that stands for a provider which gave no usable answer."""
    late = "in time" in str(error)
    return InvalidCall(
        f"the provider `{provider.name}` did not answer {'in time' if late else 'as it should'}",
        code="upstream_timeout" if late else "upstream_failed",
        hint="the log of the gateway says more",
        status=504 if late else 502,
    )


async def whole(answer: Streamed, limit: int) -> bytes:
    """The body of an answer; raises `InvalidCall` (502) over `limit` bytes, and `EgressError` where it breaks off."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in answer.chunks():
        size += len(chunk)
        if size > limit:
            raise InvalidCall("the provider's answer is too large", code="upstream_failed", status=502)
        chunks.append(chunk)
    return b"".join(chunks)


def error_of(provider: ModelProvider, status: int, body: bytes) -> InvalidCall | dict[str, Any]:
    """What a client is told of a provider's error: its own words without the key, or ours where they are unusable."""
    if status in (401, 403):  # the words of a rejected credential are about a key that the client must not know
        return InvalidCall(
            f"the provider `{provider.name}` rejected the gateway's credential",
            code="upstream_credential",
            hint="an operator has to look at the key of this provider",
            status=502,
        )
    try:
        value = orjson.loads(provider.secret.redacted(body))
    except ValueError:
        value = None
    if not isinstance(value, dict) or status < 400:
        return InvalidCall(
            f"the provider `{provider.name}` answered with status {status}", code="upstream_failed", status=502
        )
    return value
