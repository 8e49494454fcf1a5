import os

import aegis
from anthropic import Anthropic

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    return f"one customer called {name}"


client = Anthropic(base_url=os.environ["PROVIDER_URL"], api_key="none")
messages = [{"role": "user", "content": "who is Ann?"}]
while True:
    answer = client.messages.create(model="any", max_tokens=100, messages=messages)
    messages.append({"role": "assistant", "content": answer.content})
    uses = [block for block in answer.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": find_customer(**use.input)} for use in uses]
    if not uses:
        break
    messages.append({"role": "user", "content": results})
print(answer.content[-1].text)
