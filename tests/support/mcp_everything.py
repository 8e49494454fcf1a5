"""A server that has everything the protocol's conformance suite asks for, with the official package.

Run as a program it serves streamable HTTP on the port given, with sessions, and streams that can be resumed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPDeprecationWarning

Context = ServerRequestContext[Any]
Content = list[dict[str, Any]]
PAUSE: Final = 0.05
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
ENUMS: Final = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second"), 1)],
    },
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2)]},
    },
}
DEFAULTS: Final = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
PLAIN: Final[dict[str, Content]] = {
    "test_simple_text": [{"type": "text", "text": "This is a simple text response for testing."}],
    "test_image_content": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        {
            "type": "resource",
            "resource": {
                "uri": "test://embedded-resource",
                "mimeType": "text/plain",
                "text": "This is an embedded resource content.",
            },
        }
    ],
    "test_multiple_content_types": [
        {"type": "text", "text": "Multiple content types test:"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {
            "type": "resource",
            "resource": {
                "uri": "test://mixed-content-resource",
                "mimeType": "application/json",
                "text": json.dumps({"test": "data", "value": 123}),
            },
        },
    ],
}


def said(text: str) -> Content:
    return [{"type": "text", "text": text}]


async def logging(ctx: Context, _: dict[str, Any]) -> Content:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message(level="info", data=text, related_request_id=ctx.request_id)
        await anyio.sleep(PAUSE)
    return said("logged")


async def progress(ctx: Context, _: dict[str, Any]) -> Content:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await anyio.sleep(PAUSE)
    return said("done")


async def sampling(ctx: Context, arguments: dict[str, Any]) -> Content:
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=arguments["prompt"]))
    answer = await ctx.session.create_message([asked], max_tokens=100, related_request_id=ctx.request_id)
    return said(f"LLM response: {getattr(answer.content, 'text', answer.content)}")


async def elicited(ctx: Context, message: str, properties: dict[str, Any], required: list[str]) -> Content:
    schema = {"type": "object", "properties": properties, "required": required}
    answer = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return said(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")


async def elicitation(ctx: Context, arguments: dict[str, Any]) -> Content:
    fields = {name: {"type": "string", "description": name} for name in ("username", "email")}
    return await elicited(ctx, arguments["message"], fields, list(fields))


async def defaults(ctx: Context, _: dict[str, Any]) -> Content:
    return await elicited(ctx, "who?", DEFAULTS, [])


async def enums(ctx: Context, _: dict[str, Any]) -> Content:
    return await elicited(ctx, "which?", ENUMS, [])


async def reconnection(ctx: Context, _: dict[str, Any]) -> Content:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await anyio.sleep(PAUSE)
    return said("told after the break")


async def fails(ctx: Context, _: dict[str, Any]) -> Content:
    raise RuntimeError("This tool intentionally returns an error for testing")


WORKING: Final[dict[str, Callable[[Context, dict[str, Any]], Awaitable[Content]]]] = {
    "test_tool_with_logging": logging,
    "test_tool_with_progress": progress,
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": defaults,
    "test_elicitation_sep1330_enums": enums,
    "test_reconnection": reconnection,
    "test_error_handling": fails,
}
TAKES: Final = {"test_sampling": "prompt", "test_elicitation": "message"}
SCHEMA_2020: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


def described(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if name in TAKES:
        schema = {"type": "object", "properties": {TAKES[name]: {"type": "string"}}, "required": [TAKES[name]]}
    return {"name": name, "description": f"Tests {name.removeprefix('test_')}", "inputSchema": schema}


async def list_tools(ctx: Context, params: Any) -> types.ListToolsResult:
    tools = [described(name) for name in (*PLAIN, *WORKING)]
    tools.append({"name": "json_schema_2020_12_tool", "description": "A schema of 2020-12", "inputSchema": SCHEMA_2020})
    return types.ListToolsResult.model_validate({"tools": tools})


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    content, failed = PLAIN.get(params.name), False
    if content is None:
        try:
            content = await WORKING[params.name](ctx, params.arguments or {})
        except RuntimeError as error:
            content, failed = said(str(error)), True
    return types.CallToolResult.model_validate({"content": content, "isError": failed})


async def list_resources(ctx: Context, params: Any) -> types.ListResourcesResult:
    kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    found = [{"uri": f"test://{n}", "name": n, "description": n, "mimeType": k} for n, k in kinds.items()]
    return types.ListResourcesResult.model_validate({"resources": found})


async def list_templates(ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
    one = {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "by id"}
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": [one]})


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if uri == "test://static-binary":
        content = {"uri": uri, "mimeType": "image/png", "blob": PNG}
    elif uri.startswith("test://template/"):
        number = uri.split("/")[3]
        text = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        content = {"uri": uri, "mimeType": "application/json", "text": text}
    else:
        content = {"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}
    return types.ReadResourceResult.model_validate({"contents": [content]})


async def subscribed(ctx: Context, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def list_prompts(ctx: Context, params: Any) -> types.ListPromptsResult:
    named: dict[str, tuple[str, ...]] = {
        "test_simple_prompt": (),
        "test_prompt_with_arguments": ("arg1", "arg2"),
        "test_prompt_with_embedded_resource": ("resourceUri",),
        "test_prompt_with_image": (),
    }
    prompts = [
        {"name": name, "description": name, "arguments": [{"name": one, "required": True} for one in arguments]}
        for name, arguments in named.items()
    ]
    return types.ListPromptsResult.model_validate({"prompts": prompts})


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    given = params.arguments or {}
    if params.name == "test_prompt_with_arguments":
        content = said(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")
    elif params.name == "test_prompt_with_image":
        content = [*PLAIN["test_image_content"], *said("Please analyze the image above.")]
    elif params.name == "test_prompt_with_embedded_resource":
        text = "Embedded resource content for testing."
        resource = {"uri": given["resourceUri"], "mimeType": "text/plain", "text": text}
        content = [{"type": "resource", "resource": resource}, *said("Please process the embedded resource above.")]
    else:
        content = said("This is a simple prompt for testing.")
    return types.GetPromptResult.model_validate({"messages": [{"role": "user", "content": one} for one in content]})


async def complete(ctx: Context, params: Any) -> types.CompleteResult:
    return types.CompleteResult.model_validate({"completion": {"values": ["paris", "park"], "hasMore": False}})


async def set_level(ctx: Context, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


class Remembered(EventStore):
    """Every event of every stream, so that a stream that broke off is told on from where it was."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        known = int(last_event_id)
        stream = self._events[known - 1][0]
        for number, (of, message) in enumerate(self._events[known:], known + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def build() -> Server[Any]:
    """The server."""
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    return Server(
        "everything",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribed,
        on_unsubscribe_resource=subscribed,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=set_level,
    )


if __name__ == "__main__":
    app = build().streamable_http_app(event_store=Remembered(), retry_interval=100)
    from support.mcp_port import serve

    serve(app)
