import asyncio
import os

import aegis
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


able = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False}
info = ModelInfo(family=ModelFamily.UNKNOWN, **able)
client = OpenAIChatCompletionClient(model="any", base_url=os.environ["PROVIDER_URL"], api_key="none", model_info=info)
clerk = AssistantAgent("clerk", client, tools=[find_customer], max_tool_iterations=5)
print(asyncio.run(clerk.run(task="who is Ann?")).messages[-1].content)
