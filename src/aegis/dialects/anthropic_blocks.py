"""Tool-use blocks as Anthropic spells them, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aegis.dialects.arguments import read_arguments
from aegis.dialects.model import Proposed, Refused, Removal, Ruling, Wire, call_key, marked, new_ref, text_of

# Executed by the provider before the answer arrives: there is nothing left to decide.
_SERVER_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})


def is_call(block: object) -> bool:
    """Whether a content block asks the agent's side to execute something; unknown kinds of tool uses do."""
    if not isinstance(block, dict):
        return False
    kind = text_of(block.get("type"))
    return kind.endswith("tool_use") and kind not in _SERVER_USES


def proposed(block: Wire, key: str) -> Proposed:
    """The call that a block proposes; a toolset is the server of its members."""
    tool, toolset = text_of(block.get("name")), text_of(block.get("toolset_name"))
    arguments, problem = read_arguments(tool, block.get("input"))
    if not tool:
        arguments, problem = None, "the call names no tool; name the tool that is to be called"
    return Proposed(
        key=key,
        call_id=text_of(block.get("id")),
        tool=tool,
        server=f"toolset:{toolset}" if toolset else None,
        arguments=arguments,
        problem=problem,
    )


def rule(block: Wire, index: int, ruling: Ruling) -> Wire | Refused:
    """The block as it may go on, or the record of its refusal."""
    if ruling.allowed:
        return block if ruling.arguments is None else {**block, "input": ruling.arguments}
    # Input that could not be read is not an object, and only an object may be sent back.
    whole = block if isinstance(block.get("input"), dict) else {**block, "input": {}}
    return Refused(call=whole, call_id=text_of(block.get("id")), index=index, message=ruling.message)


def refusal_of(refused: Refused) -> Wire:
    """The result block that tells the model of a refusal."""
    result = {"type": "tool_result", "tool_use_id": refused.call_id, "content": refused.message, "is_error": True}
    toolset = refused.call.get("toolset_name")
    return result if toolset is None else {**result, "toolset_name": toolset}


def keys_of(kept: Iterable[Wire]) -> tuple[str, ...]:
    """The keys of the calls that stay in an answer."""
    return tuple(call_key(proposed(block, "")) for block in kept)


def ending(refused: list[Refused], message: Wire, structured: bool) -> tuple[list[Wire], dict[str, Any], Removal]:
    """The blocks and the members with which a message ends that has no call left, and the removal.

    Where text is parsed as data there is no text block: the message ends as a refusal and explains itself.
    """
    ref = new_ref()
    said = marked("\n".join(one.message for one in refused), ref)
    removal = Removal(refused=tuple(refused), kept=(), ref=ref)
    stopped = message.get("stop_reason") == "tool_use"
    if structured:
        details = {"type": "refusal", "category": None, "explanation": said}
        return [], {"stop_reason": "refusal", "stop_details": details}, removal
    return [{"type": "text", "text": said, "citations": None}], {"stop_reason": "end_turn"} if stopped else {}, removal
