import json
import os

import aegis
from openai import OpenAI

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    return f"one customer called {name}"


client = OpenAI(base_url=os.environ["PROVIDER_URL"], api_key="none")
messages = [{"role": "user", "content": "who is Ann?"}]
while True:
    message = client.chat.completions.create(model="any", messages=messages).choices[0].message
    messages.append(message.to_dict())
    for call in message.tool_calls or ():  # a refused call is none of them: the model hears of it with the next request
        result = find_customer(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if not message.tool_calls:
        break
print(message.content)
