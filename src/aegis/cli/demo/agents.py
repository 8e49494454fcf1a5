"""Two sample agents over the vendors' own clients: a loop of answer, tools, results; no word of Aegis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from aegis.cli.demo.tools import SCHEMAS, Tools

if TYPE_CHECKING:
    import anthropic
    import openai

MAX_TURNS: Final = 12

_CHAT_TOOLS: Final[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in SCHEMAS.items()
]
_CLAUDE_TOOLS: Final[Any] = [
    {"name": name, "input_schema": {"type": "object", "properties": properties}} for name, properties in SCHEMAS.items()
]


def openai_agent(client: openai.OpenAI, tools: Tools, task: str, *, stream: bool) -> str:
    """Works on `task` with OpenAI's client until the model calls no more tools; its last words."""
    messages: list[Any] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        if stream:
            with client.chat.completions.stream(model="scripted", messages=messages, tools=_CHAT_TOOLS) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            answer = client.chat.completions.create(model="scripted", messages=messages, tools=_CHAT_TOOLS)
            message = answer.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            result = tools.run(call.id, call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError("the agent did not come to an end")


def anthropic_agent(client: anthropic.Anthropic, tools: Tools, task: str) -> str:
    """Works on `task` with Anthropic's client until the model calls no more tools; its last words."""
    messages: list[Any] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        answer = client.messages.create(model="scripted", max_tokens=1_000, messages=messages, tools=_CLAUDE_TOOLS)
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in answer.content if block.type == "text")
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": tools.run(call.id, call.name, dict(call.input))}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
    raise RuntimeError("the agent did not come to an end")
