"""Bedrock's Converse: tool uses in the output message, tool results in messages."""

from __future__ import annotations

from typing import Final

from aegis.dialects.model import Wire
from aegis.dialects.parts import Names, PartsDialect


class _Answers:
    """The output is one message."""

    def messages(self, answer: Wire) -> list[Wire]:
        """The output's message."""
        output = answer.get("output")
        message = output.get("message") if isinstance(output, dict) else None
        return [message] if isinstance(message, dict) else []

    def with_message(self, answer: Wire, at: int, message: Wire, *, ended: bool) -> Wire:
        """The answer with another message; without calls the turn is over."""
        stopped = {"stopReason": "end_turn"} if ended and answer.get("stopReason") == "tool_use" else {}
        return {**answer, "output": {**answer["output"], "message": message}, **stopped}

    def refusal(self, call: Wire, message: str) -> Wire:
        """A tool result that holds an error."""
        identity = call["toolUse"].get("toolUseId")
        return {"toolResult": {"toolUseId": identity, "content": [{"text": message}], "status": "error"}}

    def answer_id(self, answer: Wire) -> str:
        """The id of the request, which the response carries."""
        metadata = answer.get("ResponseMetadata")
        return str(metadata.get("RequestId") or "") if isinstance(metadata, dict) else ""


BEDROCK: Final = PartsDialect(
    Names(
        messages="messages",
        parts="content",
        assistant="assistant",
        call="toolUse",
        call_id="toolUseId",
        arguments="input",
        result="toolResult",
        value="content",
    ),
    _Answers(),
)
