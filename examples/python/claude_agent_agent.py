import asyncio
import os

import aegis
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

aegis.auto(home="state", agent="support-bot")
os.environ |= {"ANTHROPIC_BASE_URL": os.environ["PROVIDER_URL"].removesuffix("/v1"), "ANTHROPIC_API_KEY": "none"}


@tool("find_customer", "Find a customer by name.", {"name": str})
async def find_customer(given: dict) -> dict:
    return {"content": [{"type": "text", "text": f"one customer called {given['name']}"}]}


async def main() -> None:
    servers = {"office": create_sdk_mcp_server("office", tools=[find_customer])}
    options = ClaudeAgentOptions(mcp_servers=servers, allowed_tools=["mcp__office__find_customer"], setting_sources=[])
    async for message in query(prompt="who is Ann?", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main())
