"""Who answers for a model and which parts a run is made of: those of Aegis, and those of installed packages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol

from msgspec import Struct

from aegis.config.models import ProviderSettings
from aegis.errors import ModelFailed
from aegis.outbound.client import Egress
from aegis.wire.client import Message, ModelAnswer, ModelEndpoint, ask

# Parts of runs by name: those that come with Aegis, and those that installed packages register by entry point.
#
# A package is loaded where one of its parts is named, and only then; a name of a built-in part is never another's.

Make = Callable[[Mapping[str, Any]], Any]
"""Makes a part from its options; raises `ValueError` on bad ones, and starts nothing before the part is used."""

NO_OPTIONS: Final[Mapping[str, Any]] = {}


class RunParts(Mapping[str, Make]):
    """The parts of one kind."""

    def __init__(self, group: str, built_in: Mapping[str, Make]) -> None:
        self._found: dict[str, Make | EntryPoint] = {point.name: point for point in entry_points(group=group)}
        self._found.update(built_in)

    def __getitem__(self, name: str) -> Make:
        found = self._found[name]
        if not isinstance(found, EntryPoint):
            return found
        try:
            made: Make = found.load()
        except Exception as error:
            raise ValueError(f"`{found.value}` cannot be loaded: {type(error).__name__}") from error
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found  # without loading it

    def make(self, name: str, options: Mapping[str, Any], *methods: str) -> Any:
        """The part `name` with its options; raises `ValueError` that says what is wrong, whatever its maker raised."""
        try:
            part = self[name](options)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"it cannot be made: {type(error).__name__}") from error
        missing = [method for method in methods if not callable(getattr(part, method, None))]
        if missing:
            raise ValueError(f"it has no method `{missing[0]}`")
        return part


_log = logging.getLogger("aegis.runs")

GROUP: Final = "aegis.run_providers"


class Question(Struct, frozen=True, kw_only=True):
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
        if settings.key is None or settings.dialect not in ("openai", "anthropic"):
            raise ModelFailed("runs ask providers by OpenAI's or Anthropic's API, with a key")
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
