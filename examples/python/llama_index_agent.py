import asyncio
import os

import aegis
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


async def main() -> None:
    llm = OpenAI(model="gpt-4o", api_base=os.environ["PROVIDER_URL"], api_key="none")
    print(await FunctionAgent(tools=[find_customer], llm=llm).run(user_msg="who is Ann?"))


asyncio.run(main())
