"""Results of MCP tools as wire JSON: what of one a model is going to see, and the same result with that replaced."""

from __future__ import annotations

from typing import Any

from aegis.enforce.tools import Ran

Wire = dict[str, Any]


def view(result: Wire) -> Any:
    """What is judged of a result: its text where it is nothing else, otherwise all of its content."""
    content, structured = result.get("content") or [], result.get("structuredContent")
    text = _only_text(content)
    if text is not None and structured in (None, {"result": text}):
        return text
    return content if structured is None else {"content": content, "structuredContent": structured}


def replaced(result: Wire, ran: Ran) -> Wire:
    """The result with what may be seen in place of what was given; an error where that is a refusal or a notice."""
    if ran.failed:
        return refusal(str(ran.seen))
    kept = {name: value for name, value in result.items() if name not in ("content", "structuredContent")}
    if isinstance(ran.seen, list):
        return {**kept, "content": ran.seen}
    if isinstance(ran.seen, dict) and set(ran.seen) == {"content", "structuredContent"}:
        return {**kept, **ran.seen}
    structured = {} if result.get("structuredContent") is None else {"structuredContent": {"result": ran.text}}
    return {**kept, "content": [{"type": "text", "text": ran.text}], **structured}


def refusal(text: str) -> Wire:
    """The result of a call that was not run, or whose result may not be seen."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _only_text(content: list[Any]) -> str | None:
    block = content[0] if len(content) == 1 else None
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        text: str = block["text"]
        return text
    return None
