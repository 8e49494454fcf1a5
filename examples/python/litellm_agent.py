import os

import aegis
import litellm

aegis.auto(home="state", agent="support-bot")

model = {"model": "openai/any", "api_base": os.environ["PROVIDER_URL"], "api_key": "none"}
messages = [{"role": "user", "content": "who is Ann?"}]
message = litellm.completion(messages=messages, **model).choices[0].message
assert not message.tool_calls  # the blocked call was taken out
messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": "and now?"}]
print(litellm.completion(messages=messages, **model).choices[0].message.content)
