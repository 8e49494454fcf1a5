import asyncio
import os

import aegis
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner

aegis.auto(home="state", agent="support-bot")
os.environ |= {"GOOGLE_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": os.environ["PROVIDER_URL"]}


def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


clerk = LlmAgent(name="clerk", model="gemini-2.5-flash", tools=[find_customer])
for event in asyncio.run(InMemoryRunner(agent=clerk, app_name="shop").run_debug("who is Ann?")):
    print(event.content)
