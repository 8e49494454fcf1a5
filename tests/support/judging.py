"""A deployment whose calls are judged, and what its log says of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from aegis.bootstrap import Deployment
from aegis.core.call import ToolCall
from aegis.core.ports import Search
from support.deployments import deployment
from support.scripted_model import ScriptedModel

HEAD = "version: 1\nlimits: {rate: unlimited}\n"


def config(model: ScriptedModel, more: str = "", entry: str = "", api: str = "openai") -> str:
    spoken = model.openai if api == "openai" else model.anthropic
    return f"{HEAD}judges: [{{name: look, model: {spoken}, criteria: serve the task{entry}}}]\n{more}"


def opened(home: Path, text: str) -> Deployment:
    return deployment(home / "home", text)


def call(arguments: dict[str, Any] | None = None, **members: Any) -> ToolCall:
    return ToolCall(tool=members.pop("tool", "write_note"), arguments=arguments or {"text": "hello"}, **members)


def receipts(running: Deployment, kind: str = "judge") -> list[dict[str, Any]]:
    with running.store.reader() as reader:
        return [orjson.loads(entry.body) for entry in reader.search(Search(kind=kind, limit=1_000))][::-1]
