"""What models cost whose answers pass a proxy: counted as they say, asked about, and blocked after a no."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from aegis.cli.demo.provider import Turn
from aegis.wire.usage import TokenMeter
from support.proxied import ALLOW, proxied

ASKED: list[Any] = [{"role": "user", "content": "go"}]
SCRIPT = (Turn(text="plain words"),) * 8
BUDGET = """
budgets: [{of: agent, tokens: 40, more: 2}, {of: agent, money: {EUR: 100}}]
prices: [{model: "m*", currency: EUR, read: 100000, wrote: 200000}]
"""


def test_real_tokens_are_counted_a_person_is_asked_and_gives_more_or_does_not(tmp_path: Path) -> None:
    with proxied(tmp_path / "home", *SCRIPT, tool=ALLOW + BUDGET) as (world, gateway):
        client = openai.OpenAI(base_url=world.url, api_key=gateway.credentials.text("bot"), max_retries=0)

        def ask(**more: Any) -> None:
            answer = client.chat.completions.create(model="m", messages=ASKED, **more)
            if more:
                list(answer)

        def has_used(tokens: int, cents: int) -> bool:
            """Whether so much is counted; an answer is counted once it was given."""
            for _ in range(200):
                seen = gateway.ask("GET", "/v1/agents/bot/behaviour", key="auditor").json
                if [one["used"] for one in seen["budgets"]] == [{"tokens": tokens}, {"money.EUR": cents}]:
                    return True
                time.sleep(0.02)
            return False

        ask()
        assert has_used(16, 2)
        ask(stream=True, stream_options={"include_usage": True})
        ask()
        assert has_used(48, 6)
        for _ in range(2):  # the same question, asked once
            with pytest.raises(openai.RateLimitError, match="budget"):
                ask()
        (held,) = gateway.ask("GET", "/v1/approvals", key="ann").json["items"]
        assert (held["tool"], held["agent"]) == ("model", "bot")
        answered = gateway.ask("POST", f"/v1/approvals/{held['id']}", {"decision": "approve"}, key="ann")
        assert answered.status == 200
        ask()
        assert has_used(64, 9)
        ask()
        assert has_used(80, 11)
        with pytest.raises(openai.RateLimitError, match="budget"):
            ask()
        (held,) = gateway.ask("GET", "/v1/approvals?state=pending", key="ann").json["items"]
        gateway.ask("POST", f"/v1/approvals/{held['id']}", {"decision": "deny", "reason": "enough"}, key="ann")
        with pytest.raises(openai.RateLimitError, match="budget"):
            ask()
        assert gateway.decide(arguments={"path": "/srv/x"}).json["reason"] == "budget_exhausted"


@pytest.mark.parametrize(
    ("answer", "read", "wrote"),
    [
        (b'{"usage":{"prompt_tokens":9,"completion_tokens":7,"total_tokens":16}}', 9, 7),
        (b'{"usage": {"input_tokens": 9, "output_tokens": 7}}', 9, 7),
        (
            b'data: {"type":"message_start","message":{"usage":{"input_tokens":3,"cache_read_input_tokens":6,'
            b'"output_tokens":1}}}\n\ndata: {"type":"message_delta","usage":{"output_tokens":7}}\n\n',
            9, 7,
        ),
        (b'{"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":5,"thoughtsTokenCount":2}}', 9, 7),
        (b'\x00\x00{"usage":{"inputTokens":9,"outputTokens":7,"totalTokens":16}}', 9, 7),
        (b'{"model":"m","done":true,"prompt_eval_count":9,"eval_count":7}\n', 9, 7),
        (b'{"content":"it says \\"output_tokens\\": 900 and no more"}', 100, 14),
        (b"", 0, 0),
    ],
    ids=["chat", "responses", "messages", "gemini", "converse", "ollama", "unsaid", "nothing"],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 4_096])
def test_every_dialect_says_what_it_cost_however_it_is_cut(answer: bytes, read: int, wrote: int, size: int) -> None:
    meter = TokenMeter(400)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(answer), size):
            yield answer[at : at + size]

    async def run() -> bytes:
        return b"".join([chunk async for chunk in meter.fed(chunks())])

    assert asyncio.run(run()) == answer
    assert (meter.read, meter.wrote) == (read, wrote)
