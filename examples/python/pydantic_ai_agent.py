import os

import aegis
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


provider = OpenAIProvider(base_url=os.environ["PROVIDER_URL"], api_key="none")
print(Agent(OpenAIChatModel("any", provider=provider), tools=[find_customer]).run_sync("who is Ann?").output)
