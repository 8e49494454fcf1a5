"""Asking a provider: one request, one answer, and a circuit breaker for each endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from aegis.core.judging import JudgeRules, ModelSpec
from aegis.egress import Egress, EgressPolicy
from aegis.errors import ModelFailed
from aegis.models.client import ask
from aegis.models.values import Answer, Endpoint, Message

MAX_ANSWER: Final = 1_048_576  # bytes of one provider's answer


class BreakerOpen(Exception):
    """The provider failed so often that it is not asked for a while."""


class Breaker:
    """Closed, until so many failures in a row; then open for a time; then one trial at a time."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    def check(self, rules: JudgeRules) -> None:
        """Raises `BreakerOpen` where the provider is not to be asked now."""
        if self._failures < rules.breaker_failures:
            return
        now = time.monotonic()
        if now < self._until:
            raise BreakerOpen
        self._until = now + rules.breaker_seconds  # this one is the trial

    def count(self, rules: JudgeRules, *, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        if failed and self._failures >= rules.breaker_failures:
            self._until = time.monotonic() + rules.breaker_seconds


class Providers:
    """All providers of one event loop."""

    def __init__(self) -> None:
        self._clients: dict[frozenset[str], Egress] = {}
        self._breakers: dict[str, Breaker] = {}

    async def ask(
        self,
        rules: JudgeRules,
        model: ModelSpec,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        seconds: float,
    ) -> Answer:
        """The model's next message; raises `ModelFailed` or `BreakerOpen`."""
        breaker = self._breakers.setdefault(model.url, Breaker())
        breaker.check(rules)
        try:
            answer = await ask(
                self._client(model), _endpoint(model), messages, tools, seconds=seconds, max_bytes=MAX_ANSWER
            )
        except (ModelFailed, asyncio.CancelledError):  # one that is given up was too slow
            breaker.count(rules, failed=True)
            raise
        breaker.count(rules, failed=False)
        return answer

    def _client(self, model: ModelSpec) -> Egress:
        private = frozenset({_host(model.url)}) if model.private else frozenset[str]()
        if private not in self._clients:
            self._clients[private] = Egress(EgressPolicy(private=private))
        return self._clients[private]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


def _endpoint(model: ModelSpec) -> Endpoint:
    return Endpoint(
        api=model.api, url=model.url, name=model.name, key=model.key, max_tokens=model.max_tokens, temperature=0
    )


def _host(url: str) -> str:
    """The host and port that the operator wrote into the address of a provider."""
    return url.partition("://")[2].partition("/")[0].lower()
