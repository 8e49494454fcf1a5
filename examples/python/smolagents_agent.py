import os

import aegis
from smolagents import OpenAIModel, ToolCallingAgent, tool

aegis.auto(home="state", agent="support-bot")


@tool
def find_customer(name: str) -> str:
    """Find a customer.

    Args:
        name: whom to find
    """
    return f"one customer called {name}"


model = OpenAIModel(model_id="any", api_base=os.environ["PROVIDER_URL"], api_key="none")
print(ToolCallingAgent(tools=[find_customer], model=model).run("who is Ann?"))
