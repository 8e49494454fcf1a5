"""One process of an agent of the OpenAI Agents SDK: starts a run, or goes on with a stored one."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import Agent, Runner, RunState, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.tool import FunctionTool
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import aegis
from aegis.adapters.pausing import AgentsApprovals

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}},
    "required": ["amount"],
    "additionalProperties": False,
}


class Scripted(Model):
    """Calls `pay` once, and is done when it sees the result."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        given = kwargs.get("input", args[1] if len(args) > 1 else None)
        items = given if isinstance(given, list) else []
        if any(isinstance(item, dict) and item.get("type") == "function_call_output" for item in items):
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)
        call = ResponseFunctionToolCall(
            call_id="call-1", name="pay", arguments='{"amount": 7}', type="function_call", id="f"
        )
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("nothing is streamed here")


async def main(url: str, key: str, folder: Path, step: str) -> dict[str, Any]:
    """What became of this part of the run."""
    approvals = AgentsApprovals(decider=aegis.Client(url, api_key=key), session="t-1")

    def pay(amount: int) -> str:
        with (folder / "ran.jsonl").open("a") as file:
            file.write(json.dumps({"amount": amount}) + "\n")
        return "paid"

    async def invoke(context: Any, text: str) -> str:
        try:
            result: str = await asyncio.to_thread(approvals.run, "pay", json.loads(text), context.tool_call_id, pay)
        except aegis.ToolCallBlocked as blocked:
            return f"refused: {blocked.decision.reason.value}"
        return result

    tool = FunctionTool(
        name="pay",
        description="pays",
        params_json_schema=SCHEMA,
        on_invoke_tool=invoke,
        needs_approval=approvals.needs_approval("pay"),
    )
    agent = Agent(name="a", model=Scripted(), tools=[tool])
    if step == "start":
        result = await Runner.run(agent, "pay 7")
    else:
        state = await RunState.from_string(agent, (folder / "state.json").read_text())
        waiting = await approvals.settle(state)
        if waiting and step != "force":
            return {"waiting": waiting}
        for item in state.get_interruptions() if step == "force" else ():
            state.approve(item)
        result = await Runner.run(agent, state)
    if result.interruptions:
        (folder / "state.json").write_text(result.to_state().to_string())
    outputs = [getattr(item, "output", None) for item in result.new_items if item.type == "tool_call_output_item"]
    return {"paused": len(result.interruptions), "outputs": outputs}


if __name__ == "__main__":
    set_tracing_disabled(True)
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))))
