"""Gemini's `generateContent`: function calls in candidates, function responses in contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aegis.wire.model import Path, SuppliedContent, Wire, list_of, text_of
from aegis.wire.parts import Names, PartsDialect
from aegis.wire.supplied import supplied_file, supplied_text, unread_part


class _Answers:
    """Every candidate is a message."""

    def messages(self, answer: Wire) -> list[Wire]:
        """The contents of the candidates."""
        found = [one.get("content") for one in list_of(answer.get("candidates")) if isinstance(one, dict)]
        return [content if isinstance(content, dict) else {} for content in found]

    def with_message(self, answer: Wire, at: int, message: Wire, *, ended: bool) -> Wire:
        """The answer with another content of the candidate."""
        candidates = list(answer["candidates"])
        candidates[at] = {**candidates[at], "content": message}
        return {**answer, "candidates": candidates}

    def refusal(self, call: Wire, message: str) -> Wire:
        """A function response that holds an error."""
        called = call["functionCall"]
        named = {name: called[name] for name in ("id", "name") if called.get(name)}
        return {"functionResponse": {**named, "response": {"error": message}}}

    def answer_id(self, answer: Wire) -> str:
        """The id of the response."""
        return text_of(answer.get("responseId"))

    def supplied(self, part: Wire, path: Path) -> Iterator[SuppliedContent]:
        """Texts, and data that lies in the request or elsewhere; also that of results."""
        if isinstance(part.get("text"), str):
            yield supplied_text(part["text"], (*path, "text"), path)
        inline = part.get("inlineData")
        if isinstance(inline, dict):
            media = text_of(inline.get("mimeType"))
            yield supplied_file(media, text_of(inline.get("data")), (*path, "inlineData", "data"), path, inline)
        if isinstance(part.get("fileData"), dict):
            yield unread_part(part["fileData"], path, "fileData")
        result = part.get("functionResponse")
        for index, inner in enumerate(list_of(result.get("parts")) if isinstance(result, dict) else []):
            if isinstance(inner, dict):
                yield from self.supplied(inner, (*path, "functionResponse", "parts", index))

    def places(self, event: Wire) -> list[int]:
        """The index of each candidate."""
        found = [one.get("index", 0) for one in list_of(event.get("candidates")) if isinstance(one, dict)]
        return [index if type(index) is int else 0 for index in found]

    def is_last(self, event: Wire, at: int) -> bool:
        """A candidate ends with the reason for it."""
        return bool(event["candidates"][at].get("finishReason"))


GEMINI: Final = PartsDialect(
    Names(
        messages="contents",
        parts="parts",
        assistant="model",
        call="functionCall",
        call_id="id",
        arguments="args",
        result="functionResponse",
        value="response",
    ),
    _Answers(),
)
