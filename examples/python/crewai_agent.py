import os

import aegis
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

aegis.auto(home="state", agent="support-bot")


@tool("find_customer")
def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


llm = LLM(model="gpt-4o", provider="openai", base_url=os.environ["PROVIDER_URL"], api_key="none")
agent = Agent(role="clerk", goal="help", backstory="knows all", llm=llm, tools=[find_customer])
print(Crew(agents=[agent], tasks=[Task(description="who is Ann?", expected_output="a name", agent=agent)]).kickoff())
