"""The reasoning of models in what they answer and in what is sent back to them, whatever the format.

Blocks are told by their shape: `thinking` and `redacted_thinking` of Anthropic, `reasoning` items of OpenAI, thoughts
of Gemini with their signatures, `reasoningContent` of Bedrock, and plain texts of servers that speak like OpenAI.
A signature is kept with its text where both come and go back as one; otherwise it is a block of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from aegis.core.reasoning import ReasoningBlock
from aegis.wire.model import Wire, list_of, text_of

MAX_COLLECTED: Final = 8_388_608  # characters of one answer: beyond it nothing more of its reasoning is read
_MODELS: Final = frozenset({"assistant", "model"})
_PLAIN: Final = ("reasoning_content", "reasoning", "thinking")  # texts beside the content of a message
_HINTS: Final = ("hinking", "easoning", "thought", "signature")  # one of them is in every event that brings any


def may_reason(data: str) -> bool:
    """Whether the text of an event can bring reasoning, told without reading it."""
    return any(hint in data for hint in _HINTS)


def blocks_of(answer: Wire) -> list[ReasoningBlock]:
    """The reasoning of a whole answer."""
    return [block for message in _answers(answer) for block in _in_message(message)]


def sent_back(request: Wire) -> list[ReasoningBlock]:
    """The reasoning of earlier answers that a request brings along."""
    found: list[ReasoningBlock] = []
    for name in ("messages", "contents", "input"):
        for message in list_of(request.get(name)):
            if isinstance(message, dict) and (message.get("type") == "reasoning" or message.get("role") in _MODELS):
                found += _in_message(message)
    return found


class ReasoningReader:
    """Collects the reasoning of one answer, from the whole or from the events of its stream."""

    def __init__(self) -> None:
        self.blocks: list[ReasoningBlock] = []
        self._open: dict[int, tuple[list[str], list[str]]] = {}
        self._left = MAX_COLLECTED

    def whole(self, answer: Wire) -> None:
        """Take a whole answer."""
        self.blocks += blocks_of(answer)

    def take(self, value: Any) -> bool:
        """Take an event of the stream; whether it brought any reasoning, or ended some."""
        if not isinstance(value, dict):
            return False
        index = value.get("index", value.get("contentBlockIndex"))
        if type(index) is int and index in self._open and not isinstance(value.get("delta"), dict):
            self._close(index)
            return True
        if type(index) is int and self._piece(index, value):
            return True
        item = value.get("item")
        whole = value.get("type") == "response.output_item.done" and isinstance(item, dict)
        messages: Iterable[Wire] = [item] if whole and isinstance(item, dict) else _answers(value)
        found = [block for message in messages for block in _in_message(message)]
        self._add(found)
        return bool(found)

    def finished(self) -> list[ReasoningBlock]:
        """All blocks, those included whose end was not told."""
        for index in sorted(self._open):
            self._close(index)
        return self.blocks

    def _piece(self, index: int, value: Wire) -> bool:
        """Take a piece of a block that comes in pieces: those of Anthropic and Bedrock."""
        begun = value.get("content_block")
        if isinstance(begun, dict):
            grown = [self._grow(index, block.text, block.signature) for block in _in_part(begun, empty=True)]
            return bool(grown)
        delta = value.get("delta")
        if not isinstance(delta, dict):
            return False
        hidden = delta.get("reasoningContent")
        if isinstance(hidden, dict):
            signature = text_of(hidden.get("signature")) or text_of(hidden.get("redactedContent"))
            return self._grow(index, text_of(hidden.get("text")), signature)
        if delta.get("type") in ("thinking_delta", "signature_delta"):
            return self._grow(index, text_of(delta.get("thinking")), text_of(delta.get("signature")))
        return False

    def _grow(self, index: int, text: str, signature: str) -> bool:
        texts, signatures = self._open.setdefault(index, ([], []))
        self._left -= len(text) + len(signature)
        if self._left > 0:
            texts.append(text)
            signatures.append(signature)
        return True

    def _close(self, index: int) -> None:
        texts, signatures = self._open.pop(index)
        if self._left <= 0:
            return
        self._add([ReasoningBlock(text="".join(texts), signature="".join(signatures))])

    def _add(self, found: list[ReasoningBlock]) -> None:
        """Keep blocks; texts that come in pieces without a signature make one block."""
        for block in found:
            last = self.blocks[-1] if self.blocks else None
            if last is not None and not last.signature and not block.signature:
                self._left -= len(block.text)
                if self._left > 0:
                    self.blocks[-1] = ReasoningBlock(text=last.text + block.text)
            else:
                self.blocks.append(block)


def _answers(answer: Wire) -> Iterator[Wire]:
    """The messages of an answer, or of an event that is one with some of its parts."""
    for choice in list_of(answer.get("choices")):
        for name in ("message", "delta"):
            if isinstance(choice, dict) and isinstance(choice.get(name), dict):
                yield choice[name]
    for candidate in list_of(answer.get("candidates")):
        if isinstance(candidate, dict) and isinstance(candidate.get("content"), dict):
            yield candidate["content"]
    output, message = answer.get("output"), answer.get("message")
    if isinstance(output, list):
        yield from (item for item in output if isinstance(item, dict))
    elif isinstance(output, dict) and isinstance(output.get("message"), dict):
        yield output["message"]
    if isinstance(message, dict):
        yield message
    if isinstance(answer.get("content"), list):
        yield answer


def _in_message(message: Wire) -> list[ReasoningBlock]:
    """The blocks of one message, or of one item that is a block itself."""
    if message.get("type") == "reasoning":
        return list(_in_part(message))
    found = [
        block
        for name in ("content", "parts", "reasoning_details")
        for part in list_of(message.get(name))
        if isinstance(part, dict)
        for block in _in_part(part)
    ]
    if not any(block.text for block in found):
        plain = next((text for name in _PLAIN if (text := text_of(message.get(name)))), "")
        found += [ReasoningBlock(text=plain)] if plain else []
    return found


def _in_part(part: Wire, *, empty: bool = False) -> Iterator[ReasoningBlock]:
    """The block that a part is; with `empty` also one that only begins."""
    kind = part.get("type")
    text = signature = ""
    if kind == "thinking":
        text, signature = text_of(part.get("thinking")), text_of(part.get("signature"))
    elif kind == "redacted_thinking":
        signature = text_of(part.get("data"))
    elif kind == "reasoning":
        pieces = [*list_of(part.get("summary")), *list_of(part.get("content"))]
        text = "\n".join(text_of(piece.get("text")) for piece in pieces if isinstance(piece, dict))
        signature = text_of(part.get("encrypted_content"))
    elif isinstance(kind, str) and kind.startswith("reasoning."):
        text = text_of(part.get("text")) or text_of(part.get("summary"))
    elif isinstance(part.get("reasoningContent"), dict):
        hidden = part["reasoningContent"]
        told = hidden.get("reasoningText")
        if isinstance(told, dict):
            text, signature = text_of(told.get("text")), text_of(told.get("signature"))
        signature = signature or text_of(hidden.get("redactedContent"))
    elif part.get("thought") is True or "thoughtSignature" in part:
        # Its text comes in pieces that clients join; the signature stays with one of them.
        if part.get("thought") is True and text_of(part.get("text")):
            yield ReasoningBlock(text=text_of(part.get("text")))
        signature = text_of(part.get("thoughtSignature"))
    else:
        return
    if text or signature or empty:
        yield ReasoningBlock(text=text, signature=signature)
