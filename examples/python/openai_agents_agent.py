import os

import aegis
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

aegis.auto(home="state", agent="support-bot")
set_tracing_disabled(True)


@function_tool
def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


client = AsyncOpenAI(base_url=os.environ["PROVIDER_URL"], api_key="none")
model = OpenAIChatCompletionsModel(model="any", openai_client=client)
print(Runner.run_sync(Agent(name="clerk", model=model, tools=[find_customer]), "who is Ann?").final_output)
