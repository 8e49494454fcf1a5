"""What is asked of a model, and what it answered. Conversations have the shape of chat completions' messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aegis.core.judging import Api
from aegis.models.streams import Assembly

Message = dict[str, Any]
MAX_COUNT: Final = (
    100_000_000  # tokens of one answer: what is made of them stands in receipts, whose numbers end at 2^53
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One model behind an API. `url` is the vendor's base URL, `key` a reference that is read when it is used.

    `max_tokens` bounds an answer where it is set; an API that demands a bound has a default of its own.
    """

    api: Api
    url: str
    name: str
    key: str = field(default="", repr=False)
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call of a tool by the model; `arguments` are its own text, which may be no JSON."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the model said, and how many tokens it read and wrote."""

    text: str
    calls: tuple[Asked, ...] = ()
    read: int = 0
    wrote: int = 0

    @property
    def message(self) -> Message:
        """The answer as it stands in the conversation that goes on."""
        message: Message = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [
                {"id": one.call_id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                for one in self.calls
            ]
        return message


class Wire(Protocol):
    """One vendor's format: where a request goes, what names its sender, what it holds, and what comes back."""

    @property
    def path(self) -> str: ...

    def headers(self, key: str) -> dict[str, str]:
        """The headers beside the content type; without a key none names the sender."""
        ...

    def body(self, endpoint: Endpoint, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The request's JSON; `tools` have the shape of chat completions."""
        ...

    def streamed(self, body: dict[str, Any]) -> tuple[dict[str, Any], Assembly]:
        """The same request with its answer asked for as a stream, and what puts that together."""
        ...

    def answer(self, document: Any) -> Answer:
        """What the answer's JSON says; raises `ForeignAnswer` where it is not of this format."""
        ...


def texts(message: Message) -> Iterator[str]:
    """Every text that a model would read in this message: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def count(value: Any) -> int:
    """A number of tokens as a provider reports it, `MAX_COUNT` at most; what is no such number counts as none."""
    return min(value, MAX_COUNT) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
