"""Gemini's `generateContent`: function calls in candidates, function responses in contents."""

from __future__ import annotations

from typing import Final

from aegis.wire.model import Wire, list_of, text_of
from aegis.wire.parts import Names, PartsDialect


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
