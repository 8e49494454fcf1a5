"""Who is asked for a model's next message: the providers of `proxies.providers`, and those of installed packages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aegis.config.proxies import ProviderSettings
from aegis.errors import ModelFailed
from aegis.outbound.client import Egress
from aegis.wire.client import Message, ModelAnswer, ModelEndpoint, ask

_log = logging.getLogger("aegis.runs")

GROUP: Final = "aegis.run_providers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a model is asked: messages and tools in the shape of chat completions, placeholders in place.

    `seconds` and `max_bytes` bound the answer. `hear`, where somebody listens, gets the pieces of its text as they
    come. What leaves this machine leaves it by `egress`, which keeps to the addresses that are allowed.
    """

    model: str
    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]]
    seconds: float
    max_bytes: int
    egress: Egress
    hear: Callable[[str], None] | None = None


class Provider(Protocol):
    """Gives the next message. Whatever it raises, and anything but an `ModelAnswer`, means that it did not answer."""

    async def ask(self, question: Question) -> ModelAnswer: ...


class WiredProvider:
    """A provider of the configuration, asked over its vendor's API."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._settings = settings

    async def ask(self, question: Question) -> ModelAnswer:
        """The answer; raises `ModelFailed`, whose text holds nothing of request, key or answer."""
        settings = self._settings
        return await ask(
            question.egress,
            ModelEndpoint(api=settings.dialect, url=settings.url, name=question.model, key=settings.key),
            question.messages,
            question.tools,
            seconds=question.seconds,
            max_bytes=question.max_bytes,
            hear=question.hear,
        )


async def answer_of(name: str, provider: Provider, question: Question) -> ModelAnswer | None:
    """The answer of the model `name`, or `None` where it gave none in time, whatever the reason."""
    try:
        async with asyncio.timeout(question.seconds):
            answer: Any = await provider.ask(question)
    except (ModelFailed, TimeoutError):
        return None
    except Exception as error:
        # Its text may hold what the run is about, so it is logged by its name alone.
        _log.error("a provider of models failed", extra={"model": name, "error": type(error).__name__})
        return None
    return answer if isinstance(answer, ModelAnswer) else None
