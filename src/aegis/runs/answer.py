"""What a model answered."""

from __future__ import annotations

from dataclasses import dataclass

from aegis.runs.guard import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A model's message in the shape of chat completions, and what it cost in tokens."""

    message: Message
    read: int
    wrote: int
