import asyncio
import os

import aegis
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


client = OpenAIChatCompletionClient(model="any", base_url=os.environ["PROVIDER_URL"], api_key="none")
print(asyncio.run(Agent(client, tools=[find_customer]).run("who is Ann?")).text)
