"""The output items of the Responses API that the agent's side executes, and the items that answer them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from aegis.core.canonical import canonical
from aegis.wire.model import NO_NAME, Proposed, Refused, Ruling, Wire, call_key, printed, read_arguments, text_of

# Executed by the provider before the answer arrives: there is nothing left to decide.
_SERVER_CALLS: Final = frozenset(
    {"file_search_call", "web_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
_BLANK_PNG: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhf"
    "DwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class _Kind(Struct, frozen=True):
    """How one type of item names its tool and holds its arguments."""

    tool: str
    members: tuple[str, ...]
    answer: Callable[[Refused], list[Wire]]


def _output(kind: str, **more: Any) -> Callable[[Refused], list[Wire]]:
    def build(refused: Refused) -> list[Wire]:
        caller = refused.call.get("caller")
        item: Wire = {"type": kind, "call_id": refused.call_id, "output": refused.message, **more}
        return [{**item, "caller": caller} if caller is not None else item]

    return build


def _shell_output(refused: Refused) -> list[Wire]:
    return [{"type": "shell_call_output", "call_id": refused.call_id, "output": printed(refused.message)}]


def _local_shell_output(refused: Refused) -> list[Wire]:
    return [{"type": "local_shell_call_output", "id": refused.call_id, "output": refused.message}]


def _computer_output(refused: Refused) -> list[Wire]:
    # The format has no room for words here: a blank picture, and the refusal as the host's word.
    shot = {"type": "computer_screenshot", "image_url": _BLANK_PNG}
    return [
        {"type": "computer_call_output", "call_id": refused.call_id, "output": shot},
        {"role": "developer", "content": refused.message},
    ]


def _mcp_answer(refused: Refused) -> list[Wire]:
    return [
        {
            "type": "mcp_approval_response",
            "approval_request_id": text_of(refused.call.get("id")),
            "approve": False,
            "reason": refused.message,
        }
    ]


def _no_tools(refused: Refused) -> list[Wire]:
    return [
        {"type": "tool_search_output", "call_id": refused.call_id, "tools": [], "execution": "client"},
        {"role": "developer", "content": refused.message},
    ]


_KINDS: Final[dict[str, _Kind]] = {
    "function_call": _Kind("", ("arguments",), _output("function_call_output")),
    "custom_tool_call": _Kind("", ("input",), _output("custom_tool_call_output")),
    "local_shell_call": _Kind("local_shell", ("action",), _local_shell_output),
    "shell_call": _Kind("shell", ("action",), _shell_output),
    "apply_patch_call": _Kind("apply_patch", ("operation",), _output("apply_patch_call_output", status="failed")),
    "computer_call": _Kind("computer", ("action", "actions"), _computer_output),
    "tool_search_call": _Kind("tool_search", ("arguments",), _no_tools),
    "mcp_approval_request": _Kind("", ("arguments",), _mcp_answer),
}


def is_call(item: object) -> bool:
    """Whether an output item asks the agent's side to execute something; unknown kinds of calls do."""
    if not isinstance(item, dict):
        return False
    kind = text_of(item.get("type"))
    if kind == "tool_search_call":
        return item.get("execution") != "server"
    if kind == "shell_call":
        environment = item.get("environment")
        return not (isinstance(environment, dict) and environment.get("type") == "container_reference")
    return kind in _KINDS or (kind.endswith("_call") and kind not in _SERVER_CALLS)


def item_id(item: Wire) -> str:
    """The id by which an item's result refers to it."""
    return text_of(item.get("call_id")) or text_of(item.get("id"))


def proposed(item: Wire, key: str) -> Proposed:
    """The call that an item proposes."""
    kind = text_of(item.get("type"))
    server: str | None = None
    if kind in ("function_call", "custom_tool_call", "mcp_approval_request"):
        tool = text_of(item.get("name"))
        namespace = text_of(item.get("namespace"))
        server = namespace if namespace and namespace != tool else None
        if kind == "mcp_approval_request":
            server = f"mcp:{text_of(item.get('server_label'))}"
    else:
        tool = _KINDS[kind].tool if kind in _KINDS else kind
    arguments, problem = _arguments(item, kind, tool)
    if not tool:
        arguments, problem = None, NO_NAME
    return Proposed(key=key, call_id=item_id(item), tool=tool, server=server, arguments=arguments, problem=problem)


def changed(item: Wire, arguments: dict[str, Any]) -> Wire | None:
    """The item with other arguments, or `None` where the format does not let them be changed."""
    kind = text_of(item.get("type"))
    if kind == "function_call":
        return {**item, "arguments": canonical(arguments).decode()}
    if kind == "custom_tool_call":
        given = arguments.get("input")
        return {**item, "input": given} if isinstance(given, str) else None
    if kind in ("local_shell_call", "shell_call"):
        return {**item, "action": arguments}
    if kind == "apply_patch_call":
        return {**item, "operation": arguments}
    if kind in ("tool_search_call", "computer_call"):
        return {**item, **({"arguments": arguments} if kind == "tool_search_call" else arguments)}
    return None


def answers(refused: Refused) -> list[Wire]:
    """The items that put a refused call back: the call itself and what answers it; none for an unknown kind."""
    kind = _KINDS.get(text_of(refused.call.get("type")))
    return [] if kind is None or not refused.call_id else [refused.call, *kind.answer(refused)]


def _arguments(item: Wire, kind: str, tool: str) -> tuple[dict[str, Any] | None, str]:
    known = _KINDS.get(kind)
    if known is None:
        rest = {name: value for name, value in item.items() if name not in ("id", "call_id", "type", "status")}
        return rest, ""
    if kind == "custom_tool_call":
        given = item.get("input")
        return ({"input": given}, "") if isinstance(given, str) else (None, f"the input of `{tool}` is not text")
    if kind == "computer_call":
        return {name: item[name] for name in known.members if item.get(name) is not None}, ""
    return read_arguments(tool, item.get(known.members[0]))


# What whole and streamed responses share.

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
