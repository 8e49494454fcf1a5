import os

import aegis
from strands import Agent, tool
from strands.models.openai import OpenAIModel

aegis.auto(home="state", agent="support-bot")


@tool
def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


model = OpenAIModel(client_args={"base_url": os.environ["PROVIDER_URL"], "api_key": "none"}, model_id="any")
print(Agent(model=model, tools=[find_customer])("who is Ann?"))
