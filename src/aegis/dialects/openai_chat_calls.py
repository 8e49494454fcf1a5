"""Tool calls as chat completions spell them, whole or in deltas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aegis.core.canonical import canonical
from aegis.dialects.arguments import read_arguments
from aegis.dialects.model import Proposed, Refused, Removal, Wire, call_key, marked, new_ref, text_of

LEGACY: Final = "function_call"


def proposed(call: Wire, key: str, answer_id: str) -> Proposed:
    """The call that a wire call of an answer proposes."""
    if call.get("type") == "custom":
        custom = _member(call, "custom")
        tool, given = text_of(custom.get("name")), custom.get("input")
        arguments, problem = ({"input": given}, "") if isinstance(given, str) else (None, "the input is not text")
    else:
        function = call[LEGACY] if LEGACY in call else _member(call, "function")
        tool = text_of(function.get("name")) if isinstance(function, dict) else ""
        arguments, problem = read_arguments(tool, function.get("arguments") if isinstance(function, dict) else None)
    call_id = text_of(call.get("id"))
    if not tool:
        arguments, problem = None, "the call names no tool; name the tool that is to be called"
    if LEGACY in call and answer_id:
        call_id = f"{answer_id}:{key}"
    return Proposed(key=key, call_id=call_id, tool=tool, arguments=arguments, problem=problem)


def changed_call(call: Wire, arguments: dict[str, Any]) -> Wire:
    """The wire call with other arguments."""
    if call.get("type") == "custom":
        return {**call, "custom": {**_member(call, "custom"), "input": arguments.get("input")}}
    name = LEGACY if LEGACY in call else "function"
    return {**call, name: {**_member(call, name), "arguments": canonical(arguments).decode()}}


def ending(refused: list[Refused], text: str, structured: bool) -> tuple[Wire, Removal]:
    """The message members and the removal of a choice that has no call left."""
    ref = new_ref()
    said = marked("\n".join(one.message for one in refused), ref)
    removal = Removal(refused=tuple(refused), kept=(), ref=ref, text=text)
    if structured:
        return {"content": text or None, "refusal": said}, removal
    return {"content": f"{text}\n\n{said}" if text else said}, removal


def keys_of(kept: Iterable[Wire]) -> tuple[str, ...]:
    """The keys of the calls that stay in an answer."""
    return tuple(call_key(proposed(call, "", "")) for call in kept)


def _member(wire: Wire, name: str) -> Wire:
    value = wire.get(name)
    return value if isinstance(value, dict) else {}
