"""Reading a model's text as the one JSON object that it was asked for."""

from __future__ import annotations

from typing import Any, Final

from aegis.core.strict_json import parse
from aegis.errors import ForeignAnswer, InvalidCall

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
