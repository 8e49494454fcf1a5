"""Agents that call tools by words: turns as they say them, and results as they are told them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from aegis.cli.demo.provider import Call, ScriptedProvider, Turn
from frameworks.model import EVERYTHING, Ability, Agent

# Words have no ids, and what is no JSON in them is mended by the framework before anybody else sees it.
SPOKEN: frozenset[Ability] = EVERYTHING - {"ids", "broken"}
_OBSERVATION = "Observation:"


class Told(Agent):
    """A world whose model may be told results in the text of the conversation."""

    def result_of(self, call: Call) -> Any:
        try:
            return super().result_of(call)
        except KeyError:
            return _observation(self.asked[-1].body["messages"], call)


class ToldProvider(ScriptedProvider):
    """A provider whose agents may speak."""

    world = Told


def _observation(messages: Sequence[dict[str, Any]], call: Call) -> str:
    """What was observed of a call; raises `KeyError` where nothing was."""
    texts = [_text(message["content"]) for message in messages]
    conversation = "\0".join(texts)
    _, called, after = conversation.partition(f"Action: {call.tool}\n")
    _, observed, told = after.partition(_OBSERVATION)
    if not called or not observed:
        raise KeyError(call.id)
    return told.partition("\0")[0].strip()


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def spoken(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns as thoughts and actions, one a turn."""
    return list(_spoken(turns))


def _spoken(turns: Sequence[Turn]) -> Iterator[Turn]:
    for turn in turns:
        for call in turn.calls:
            given = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            yield Turn(text=f"Thought: I need a tool.\nAction: {call.tool}\nAction Input: {given}\n")
        if not turn.calls:
            yield Turn(text=f"Thought: I know.\n{_END}: {turn.text}")


_END = "Final Answer"
