"""Asking a model for its next message: one request, one answer, whole or heard while it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from msgspec import Struct

from aegis.core.canonical import canonical
from aegis.core.json import parse
from aegis.core.judging import Api
from aegis.errors import EgressError, ForeignAnswer, InvalidCall, KeyFileError, ModelFailed
from aegis.keys.references import read_secret
from aegis.outbound.client import Egress, Request, Streamed
from aegis.wire.model import WireEvent, list_of, text_of
from aegis.wire.sse import SseReader

# A streamed answer put together: each vendor's events in, and at the end the document that a whole answer would be.


class Assembly(Protocol):
    """The events of one answer. `take` and `document` raise `ForeignAnswer` for what is not of the format."""

    def take(self, event: Any) -> str:
        """The next event; gives back what of the answer's text it adds."""
        ...

    def document(self) -> Any:
        """The whole answer, once it came to its end."""
        ...


class ChatAssembly:
    """The chunks of a chat completion of one choice."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Any = None
        self._ended = False

    def take(self, event: Any) -> str:
        if not isinstance(event, dict) or event.get("error"):
            raise ForeignAnswer("not a chunk of a chat completion")
        self._usage = event.get("usage") or self._usage
        said = ""
        for choice in list_of(event.get("choices")):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                raise ForeignAnswer("not a chunk of a chat completion")
            said += text_of(delta.get("content"))
            for part in list_of(delta.get("tool_calls")):
                self._grow(part)
            self._ended = self._ended or bool(choice.get("finish_reason"))
        self._text.append(said)
        return said

    def document(self) -> Any:
        if not self._ended:
            raise ForeignAnswer("the stream broke off")
        calls = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}
            for _, call in sorted(self._calls.items())
        ]
        message = {"content": "".join(self._text), "tool_calls": calls}
        return {"choices": [{"message": message}], "usage": self._usage}

    def _grow(self, part: Any) -> None:
        index = part.get("index") if isinstance(part, dict) else None
        function = part.get("function") if isinstance(part, dict) else None
        if type(index) is not int or not isinstance(function, dict):
            raise ForeignAnswer("a call of the stream has no place or no function")
        call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": []})
        call["id"] = call["id"] or text_of(part.get("id"))
        call["name"] = call["name"] or text_of(function.get("name"))
        call["arguments"].append(text_of(function.get("arguments")))


class MessageAssembly:
    """The events of a message of Anthropic's API."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._usage: dict[str, Any] = {}
        self._ended = False

    def take(self, event: Any) -> str:
        kind = event.get("type") if isinstance(event, dict) else "error"
        if kind == "error":
            raise ForeignAnswer("not an event of a message")
        try:
            if kind == "message_start":
                self._usage |= event["message"].get("usage") or {}
            elif kind == "message_delta":
                self._usage |= event.get("usage") or {}
            elif kind == "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
                return text_of(event["content_block"].get("text"))
            elif kind == "content_block_delta":
                return self._grow(event["index"], event["delta"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ForeignAnswer("not an event of a message") from error
        self._ended = self._ended or kind == "message_stop"
        return ""

    def document(self) -> Any:
        if not self._ended:
            raise ForeignAnswer("the stream broke off")
        blocks = [self._whole(index, block) for index, block in sorted(self._blocks.items())]
        return {"type": "message", "role": "assistant", "content": blocks, "usage": self._usage}

    def _grow(self, index: int, delta: dict[str, Any]) -> str:
        if delta["type"] == "text_delta":
            self._blocks[index]["text"] += delta["text"]
            return str(delta["text"])
        if delta["type"] == "input_json_delta":
            self._inputs.setdefault(index, []).append(delta["partial_json"])
        return ""

    def _whole(self, index: int, block: dict[str, Any]) -> dict[str, Any]:
        text = "".join(self._inputs.get(index, ()))
        if not text:
            return block
        try:
            return {**block, "input": parse(text.encode())}
        except InvalidCall as error:
            raise ForeignAnswer("the input of a call is not JSON") from error


# What is asked of a model, and what it answered. Conversations have the shape of chat completions' messages.

Message = dict[str, Any]
MAX_COUNT: Final = (
    100_000_000  # tokens of one answer: what is made of them stands in receipts, whose numbers end at 2^53
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelEndpoint:
    """One model behind an API. `url` is the vendor's base URL, `key` a reference that is read when it is used.

    `max_tokens` bounds an answer where it is set; an API that demands a bound has a default of its own.
    """

    api: Api
    url: str
    name: str
    key: str = field(default="", repr=False)
    max_tokens: int | None = None
    temperature: float | None = None


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One call of a tool by the model; `arguments` are its own text, which may be no JSON."""

    call_id: str
    name: str
    arguments: str


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """What the model said, and how many tokens it read and wrote."""

    text: str
    calls: tuple[ModelRequest, ...] = ()
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

    def body(
        self, endpoint: ModelEndpoint, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """The request's JSON; `tools` have the shape of chat completions."""
        ...

    def streamed(self, body: dict[str, Any]) -> tuple[dict[str, Any], Assembly]:
        """The same request with its answer asked for as a stream, and what puts that together."""
        ...

    def answer(self, document: Any) -> ModelAnswer:
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


# Messages, as Anthropic speaks them.
#
# Source: the reference of `POST /v1/messages` (docs.anthropic.com/en/api/messages).

VERSION: Final = "2023-06-01"
MAX_TOKENS: Final = 4_096  # this API asks every request to say how long the answer may be


class Anthropic:
    """The format of messages."""

    path: Final = "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        named = {"x-api-key": key} if key else {}
        return {**named, "anthropic-version": VERSION}

    def body(
        self, endpoint: ModelEndpoint, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        system = "\n\n".join(text for message in messages if message["role"] == "system" for text in texts(message))
        body: dict[str, Any] = {
            "model": endpoint.name,
            "max_tokens": MAX_TOKENS if endpoint.max_tokens is None else endpoint.max_tokens,
            "messages": _turns(messages),
        }
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        if system:
            body["system"] = system
        if tools:
            body["tools"] = [
                {
                    "name": tool["function"]["name"],
                    "description": tool["function"].get("description", ""),
                    "input_schema": tool["function"].get("parameters") or {"type": "object"},
                }
                for tool in tools
            ]
        return body

    def streamed(self, body: dict[str, Any]) -> tuple[dict[str, Any], Assembly]:
        return {**body, "stream": True}, MessageAssembly()

    def answer(self, document: Any) -> ModelAnswer:
        try:
            if document["type"] != "message" or document["role"] != "assistant":
                raise ForeignAnswer("not an answer of messages")
            usage, text = document.get("usage") or {}, ""
            calls: list[ModelRequest] = []
            for block in document["content"]:
                if block["type"] == "text":
                    text += block["text"]
                elif block["type"] == "tool_use":
                    arguments = canonical(block["input"]).decode()
                    calls.append(ModelRequest(call_id=str(block["id"]), name=str(block["name"]), arguments=arguments))
            return ModelAnswer(
                text=text,
                calls=tuple(calls),
                read=count(usage.get("input_tokens")),
                wrote=count(usage.get("output_tokens")),
            )
        except (InvalidCall, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ForeignAnswer("not an answer of messages") from error


def _turns(messages: Sequence[Message]) -> list[Message]:
    """Turns that alternate: results of tools go into the user's turn that follows."""
    turns: list[Message] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        content = "".join(texts(message))
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts(message) if text]
    for call in message.get("tool_calls", ()):
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": _arguments(call["function"]["arguments"]),
            }
        )
    return blocks


def _arguments(text: str) -> Any:
    """What the model gave as arguments; what does not parse was refused, and goes back as nothing."""
    try:
        return parse(text.encode())
    except (InvalidCall, UnicodeEncodeError):
        return {}


# Chat completions, as OpenAI and everything compatible with it speak them.
#
# Source: the reference of `POST /v1/chat/completions` (platform.openai.com/docs/api-reference/chat).


class OpenAI:
    """The format of chat completions."""

    path: Final = "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(
        self, endpoint: ModelEndpoint, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": endpoint.name, "messages": list(messages)}
        if endpoint.max_tokens is not None:
            body["max_tokens"] = endpoint.max_tokens
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        if tools:
            body["tools"] = list(tools)
        return body

    def streamed(self, body: dict[str, Any]) -> tuple[dict[str, Any], Assembly]:
        return {**body, "stream": True, "stream_options": {"include_usage": True}}, ChatAssembly()

    def answer(self, document: Any) -> ModelAnswer:
        try:
            (choice,) = document["choices"]  # one was asked for
            message, usage = choice["message"], document.get("usage") or {}
            text = message.get("content") or ""
            if not isinstance(text, str):
                raise ForeignAnswer("the content of the answer is not a text")
            return ModelAnswer(
                text=text,
                calls=tuple(_call(one) for one in message.get("tool_calls") or ()),
                read=count(usage.get("prompt_tokens")),
                wrote=count(usage.get("completion_tokens")),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ForeignAnswer("not an answer of chat completions") from error


def _call(one: Any) -> ModelRequest:
    function = one["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        raise ForeignAnswer("the arguments of a call are not a text")
    return ModelRequest(call_id=str(one["id"]), name=str(function["name"]), arguments=arguments)


# Reading a model's text as the one JSON object that it was asked for.

_FENCE: Final = "```"


def read_json(text: str, *, max_chars: int) -> Any:
    """The value of a strict JSON text, bare or inside of one fence, with nothing around it.

    Raises `ForeignAnswer`, whose text holds nothing of the answer.
    """
    if len(text) > max_chars:
        raise ForeignAnswer("the answer is too long")
    try:
        return parse(_unfenced(text.strip()).encode("utf-8"))
    except (InvalidCall, UnicodeEncodeError) as error:
        raise ForeignAnswer("the answer is not one strict JSON object") from error


def _unfenced(text: str) -> str:
    if not text.startswith(_FENCE):
        return text
    head, newline, rest = text.partition("\n")
    body, fence, after = rest.rpartition("\n" + _FENCE)
    if not newline or not fence or after.strip() or head[len(_FENCE) :].strip().lower() not in ("", "json"):
        raise ForeignAnswer("the answer is not inside of exactly one fence")
    if any(line.strip().startswith(_FENCE) for line in body.splitlines()):
        raise ForeignAnswer("the answer is not inside of exactly one fence")
    return body


_WIRES: Final[dict[str, Wire]] = {"openai": OpenAI(), "anthropic": Anthropic()}


async def ask(
    egress: Egress,
    endpoint: ModelEndpoint,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]],
    *,
    seconds: float,
    max_bytes: int,
    hear: Callable[[str], None] | None = None,
) -> ModelAnswer:
    """The next message of the model, within `seconds` and `max_bytes` of answer.

    With `hear`, the answer is asked for as a stream, and `hear` gets the pieces of its text as they come. A provider
    may still answer whole. Raises `ModelFailed`, whose text holds nothing of request, key or answer.
    """
    wire = _WIRES[endpoint.api]
    try:
        key = read_secret(endpoint.key).reveal() if endpoint.key else ""
    except KeyFileError as error:
        raise ModelFailed("its key cannot be read") from error
    try:
        asked = wire.body(endpoint, messages, tools)
        asked, assembly = (asked, None) if hear is None else wire.streamed(asked)
        body = canonical(asked)
    except InvalidCall as error:
        raise ModelFailed("the conversation is no JSON text") from error
    headers = {**wire.headers(key), "content-type": "application/json"}
    request = Request(method="POST", url=endpoint.url + wire.path, headers=headers, body=body)
    try:
        async with egress.stream(request, total_seconds=seconds, max_bytes=max_bytes) as answered:
            if answered.status != 200:
                raise ModelFailed(f"it answered with status {answered.status}")
            if assembly is not None and hear is not None and _is_stream(answered):
                await _assembled(answered, assembly, hear)
                return wire.answer(assembly.document())
            answer = wire.answer(parse(b"".join([chunk async for chunk in answered.chunks()])))
            if hear is not None:
                hear(answer.text)
            return answer
    except EgressError as error:
        raise ModelFailed(f"it was not reached: {error}") from error
    except (InvalidCall, ForeignAnswer) as error:
        raise ModelFailed("it did not answer in its format") from error


def _is_stream(answered: Streamed) -> bool:
    return answered.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


async def _assembled(answered: Streamed, assembly: Assembly, hear: Callable[[str], None]) -> None:
    reader = SseReader()

    def take(events: Iterable[WireEvent]) -> None:
        for event in events:
            if event.data and not event.data.startswith("[DONE]"):
                hear(assembly.take(parse(event.data.encode())))

    async for chunk in answered.chunks():
        take(reader.feed(chunk))
    take(reader.end())
