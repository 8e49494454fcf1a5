import asyncio
import json
import os

import aegis
import httpx
from mcp.client.client import Client
from mcp.server import MCPServer

aegis.auto(home="state", agent="support-bot")
server = MCPServer("office")
url = f"{os.environ['PROVIDER_URL']}/chat/completions"


@server.tool()
def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


def ask(messages: list) -> dict:
    return httpx.post(url, json={"model": "any", "messages": messages}).json()["choices"][0]["message"]


async def main() -> None:
    messages = [{"role": "user", "content": "who is Ann?"}]
    async with Client(server) as tools:
        answer = ask(messages)
        (call,) = answer["tool_calls"]
        result = await tools.call_tool(call["function"]["name"], json.loads(call["function"]["arguments"]))
    messages += [answer, {"role": "tool", "tool_call_id": call["id"], "content": result.content[0].text}]
    print(ask(messages)["content"])


asyncio.run(main())
