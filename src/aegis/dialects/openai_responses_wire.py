"""What whole and streamed responses share."""

from __future__ import annotations

from collections.abc import Iterable

from aegis.dialects.model import Refused, Ruling, Wire, call_key, text_of
from aegis.dialects.openai_responses_items import changed, item_id, proposed

_FIXED = "the call was refused: its arguments would have to be changed, and this kind of call does not allow that"


def rule(item: Wire, index: int, ruling: Ruling) -> Wire | Refused:
    """The item as it may go on, or the record of its refusal."""
    if ruling.allowed:
        ruled = item if ruling.arguments is None else changed(item, ruling.arguments)
        if ruled is not None:
            return ruled
    message = _FIXED if ruling.allowed else ruling.message
    return Refused(call=item, call_id=item_id(item), index=index, message=message)


def keys_of(kept: Iterable[Wire]) -> tuple[str, ...]:
    """The keys of the calls that stay in an answer."""
    return tuple(call_key(proposed(item, "")) for item in kept)


def conversation_anchor(wire: Wire) -> tuple[str, ...]:
    """The name of the conversation that the provider keeps, in a request or a response."""
    conversation = wire.get("conversation")
    name = text_of(conversation.get("id")) if isinstance(conversation, dict) else text_of(conversation)
    return (f"conversation:{name}",) if name else ()


def final_message(said: str, ref: str, structured: bool) -> Wire:
    """The message item with which a response ends that has no call left."""
    part: Wire = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
    if structured:
        part = {"type": "refusal", "refusal": said}
    return {"id": f"msg_{ref}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
