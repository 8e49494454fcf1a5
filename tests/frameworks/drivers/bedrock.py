"""`boto3`: loops by hand over Converse and ConverseStream, of clients and of sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3

from frameworks.model import Ability, Framework, Way
from support.bedrock import bedrock
from support.worlds import World

OPTIONS: Any = {"region_name": "us-east-1", "aws_access_key_id": "k", "aws_secret_access_key": "s"}


def of_session(world: World) -> Any:
    return boto3.session.Session(**OPTIONS).client("bedrock-runtime", endpoint_url=world.provider.url)


def of_module(world: World) -> Any:
    return boto3.client("bedrock-runtime", endpoint_url=world.provider.url, **OPTIONS)


def whole(client: Any, messages: list[Any]) -> Any:
    return client.converse(modelId="m", messages=messages)["output"]["message"]


def streamed(client: Any, messages: list[Any]) -> Any:
    """The message that the events of a stream make."""
    blocks: dict[int, Any] = {}
    for event in client.converse_stream(modelId="m", messages=messages)["stream"]:
        if "contentBlockStart" in event:
            start = event["contentBlockStart"]
            blocks[start["contentBlockIndex"]] = {"toolUse": {**start["start"]["toolUse"], "input": ""}}
        if "contentBlockDelta" in event:
            index, delta = event["contentBlockDelta"]["contentBlockIndex"], event["contentBlockDelta"]["delta"]
            block = blocks.setdefault(index, {"text": ""})
            if "text" in delta:
                block["text"] += delta["text"]
            else:
                block["toolUse"]["input"] += delta["toolUse"]["input"]
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return {"role": "assistant", "content": list(blocks.values())}


def loop(make: Callable[[World], Any], ask: Callable[[Any, list[Any]], Any]) -> Callable[[World], str]:
    """An agent by hand."""

    def drive(world: World) -> str:
        client = make(world)
        messages: list[Any] = [{"role": "user", "content": [{"text": "go"}]}]
        text = ""
        for _ in range(6):
            message = ask(client, messages)
            messages.append(message)
            text = "".join(part.get("text", "") for part in message["content"])
            results = [_result(world, part["toolUse"]) for part in message["content"] if "toolUse" in part]
            if not results and "not run" not in text:
                break
            messages.append({"role": "user", "content": results or [{"text": "and now?"}]})
        return text

    return drive


def _result(world: World, use: Any) -> Any:
    arguments = {"subject": "hello", **use["input"]} if use["name"] == "send_email" else use["input"]
    content = [{"text": world.run(use["name"], arguments)}]
    return {"toolResult": {"toolUseId": use["toolUseId"], "content": content}}


BY_HAND: frozenset[Ability] = frozenset({"ids"})
FRAMEWORK = Framework(
    adapters=("bedrock",),
    unheard=frozenset({"*"}),
    again="the host's own code runs the tools",
    provide=bedrock,
    ways=[
        Way(name="converse", drive=loop(of_module, whole), can=BY_HAND),
        Way(name="converse of a session", drive=loop(of_session, whole), can=BY_HAND),
        Way(name="converse stream", drive=loop(of_module, streamed), can=frozenset({"ids", "broken"})),
    ],
)
