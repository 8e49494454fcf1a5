import os

import aegis
import boto3

aegis.auto(home="state", agent="support-bot")

keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
client = boto3.client("bedrock-runtime", endpoint_url=os.environ["PROVIDER_URL"], **keys)
messages = [{"role": "user", "content": [{"text": "who is Ann?"}]}]
answer = client.converse(modelId="any", messages=messages)["output"]["message"]
assert not [part for part in answer["content"] if "toolUse" in part]  # the blocked call was taken out
messages += [answer, {"role": "user", "content": [{"text": "and now?"}]}]
print(client.converse(modelId="any", messages=messages)["output"]["message"]["content"][0]["text"])
