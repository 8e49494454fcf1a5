import os

import aegis
from google import genai
from google.genai import types

aegis.auto(home="state", agent="support-bot")


def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"one customer called {name}"


client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=os.environ["PROVIDER_URL"]))
chat = client.chats.create(model="any", config=types.GenerateContentConfig(tools=[find_customer]))
print(chat.send_message("who is Ann?").text)
