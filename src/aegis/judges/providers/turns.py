"""A conversation with a model, in no vendor's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from aegis.core.judging import ModelSpec
from aegis.egress import Request


class BadAnswer(Exception):
    """The provider's answer is not of its own format."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call of a tool by the model; `arguments` is `None` where they were not an object."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One message: what the user or the model said, or what a tool gave."""

    role: Literal["user", "model", "tool"]
    text: str = ""
    calls: tuple[Asked, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What the model said, and what it used."""

    turn: Turn
    tokens_in: int
    tokens_out: int


class Wire(Protocol):
    """One vendor's format."""

    def request(
        self, model: ModelSpec, key: str, system: str, turns: Sequence[Turn], tools: Sequence[dict[str, Any]]
    ) -> Request: ...

    def answer(self, body: bytes) -> Answered:
        """What `body` says; raises `BadAnswer`."""
        ...


def count(value: Any) -> int:
    """A number of tokens as a provider reports it; what is no such number counts as none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
