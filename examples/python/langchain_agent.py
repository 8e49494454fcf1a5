import os

import aegis
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


model = ChatOpenAI(model="any", base_url=os.environ["PROVIDER_URL"], api_key="none")
print(create_agent(model, [find_customer]).invoke({"messages": [("user", "who is Ann?")]})["messages"][-1].text)
