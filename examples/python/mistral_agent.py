import os

import aegis
from mistralai.client import Mistral

aegis.auto(home="state", agent="support-bot")

client = Mistral(api_key="none", server_url=os.environ["PROVIDER_URL"].removesuffix("/v1"))
messages = [{"role": "user", "content": "who is Ann?"}]
message = client.chat.complete(model="any", messages=messages).choices[0].message
assert not message.tool_calls  # the blocked call was taken out
messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": "and now?"}]
print(client.chat.complete(model="any", messages=messages).choices[0].message.content)
