"""The OpenAI Responses API: calls in answers, results and refusals in requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aegis.dialects.brought import Brought, brought_to_responses
from aegis.dialects.model import (
    NO_RULING,
    Once,
    Proposed,
    Recall,
    Refused,
    Removal,
    Ruling,
    Settled,
    ToolOutput,
    Wire,
    call_key,
    list_of,
    marked,
    new_ref,
    said_in,
    text_of,
)
from aegis.dialects.openai_responses_items import answers, changed, is_call, item_id, proposed
from aegis.dialects.openai_responses_stream import ResponsesStream
from aegis.dialects.openai_responses_wire import conversation_anchor, final_message, keys_of, rule

_OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
     "apply_patch_call_output"}
)  # fmt: skip


class OpenAIResponses:
    """The dialect of `POST /responses`."""

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The response's id, and the conversation that the provider keeps, if it does."""
        return text_of(answer.get("id")), *conversation_anchor(answer)

    def calls(self, answer: Wire) -> list[Proposed]:
        """Every output item that the agent's side executes."""
        return [proposed(item, str(index)) for index, item in enumerate(list_of(answer.get("output"))) if is_call(item)]

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> Settled:
        """The response without its refused calls; where no call is left it ends with a message."""
        output: list[Any] = []
        kept: list[Wire] = []
        refused: list[Refused] = []
        place = 0
        for index, item in enumerate(list_of(answer.get("output"))):
            if not is_call(item):
                output.append(item)
                continue
            ruled = rule(item, index, rulings.get(str(index), NO_RULING))
            if isinstance(ruled, Refused):
                place = place if refused else len(output)
                refused.append(ruled)
            else:
                kept.append(ruled)
                output.append(ruled)
        if not refused:
            return Settled(answer={**answer, "output": output} if kept else answer)
        if kept:
            return Settled(
                answer={**answer, "output": output},
                removals=(Removal(refused=tuple(refused), kept=keys_of(kept)),),
            )
        ref = new_ref()
        said = marked("\n".join(one.message for one in refused), ref)
        output.insert(place, final_message(said, ref, structured))
        return Settled(
            answer={**answer, "output": output}, removals=(Removal(refused=tuple(refused), kept=(), ref=ref),)
        )

    def stream(self, *, structured: bool) -> ResponsesStream:
        """A filter for the events of one response."""
        return ResponsesStream(self, structured=structured)

    def structured(self, request: Wire) -> bool:
        """Whether a text format other than plain text was asked for."""
        text = request.get("text")
        wanted = text.get("format") if isinstance(text, dict) else None
        return isinstance(wanted, dict) and wanted.get("type") != "text"

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The outputs of calls among the input items."""
        return [
            ToolOutput(
                call_id=item_id(item),
                value=item.get("output"),
                path=("input", index, "output"),
                shell=item.get("type") == "shell_call_output",
            )
            for index, item in enumerate(list_of(request.get("input")))
            if isinstance(item, dict) and item.get("type") in _OUTPUTS and item.get("output") is not None
        ]

    def issued(self, request: Wire) -> list[Proposed]:
        """The calls among the input items."""
        return [proposed(item, str(index)) for index, item in enumerate(list_of(request.get("input"))) if is_call(item)]

    def answered(self, request: Wire) -> list[str]:
        """The ids of the calls that a request gives outputs of, or approves at the provider."""
        items = [item for item in list_of(request.get("input")) if isinstance(item, dict)]
        hosted = {item_id(item) for item in items if text_of(item.get("type")).endswith("_call") and not is_call(item)}
        outputs = [
            item_id(item)
            for item in items
            if text_of(item.get("type")).endswith("_output")
            and item.get("execution") != "server"
            and item_id(item) not in hosted
        ]
        return outputs + [
            text_of(item.get("approval_request_id"))
            for item in items
            if item.get("type") == "mcp_approval_response" and item.get("approve") is not False
        ]

    def brought(self, request: Wire) -> list[Brought]:
        """The documents and the user's texts that a request brings."""
        return brought_to_responses(request)

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """An item with other arguments; of a kind whose arguments are fixed, what names it alone."""
        given = changed(call, arguments)
        return {name: call[name] for name in ("type", "id", "call_id") if name in call} if given is None else given

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose input holds the refused calls and their refusals again.

        Where the provider keeps the earlier answer, it has the calls already and needs only the answers.
        """
        recall = Once(recall)
        items: list[Any] = []
        pending: list[Wire] = []
        changed = False
        for item in list_of(request.get("input")):
            if pending and not is_call(item):
                items += pending
                pending = []
            removal = _removal_of(item, recall)
            if removal is None:
                items.append(item)
                continue
            changed = True
            pairs = [answers(refused) for refused in removal.refused]
            if removal.kept:
                items += [*(call for pair in pairs for call in pair[:1]), item]
                pending = [answer for pair in pairs for answer in pair[1:]]
            else:
                items += [*(part for pair in pairs for part in pair), {"role": "assistant", "content": _said(item)}]
        owed = [recall.by_anchor(anchor) for anchor in _continued(request)]
        owing = [part for removal in owed if removal for refused in removal.refused for part in answers(refused)[1:]]
        if not changed and not owing:
            return request
        if isinstance(request.get("input"), str):
            items = [{"role": "user", "content": request["input"]}]
        return {**request, "input": owing + items + pending}


def _continued(request: Wire) -> tuple[str, ...]:
    return text_of(request.get("previous_response_id")), *conversation_anchor(request)


def _removal_of(item: object, recall: Recall) -> Removal | None:
    if not isinstance(item, dict):
        return None
    if is_call(item):
        return recall.by_call(call_key(proposed(item, "")))
    return said_in(recall, _texts(item)) if item.get("role") == "assistant" else None


def _texts(item: Wire) -> list[object]:
    content = item.get("content")
    if not isinstance(content, list):
        return [content]
    parts = [part for part in content if isinstance(part, dict)]
    return [part.get(name) for part in parts for name in ("text", "refusal")]


def _said(item: Wire) -> str:
    return "".join(text for text in _texts(item) if isinstance(text, str))
