"""The usage that a streamed completion ends with, as OpenAI's own client reads it (`stream_options.include_usage`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from aegis.cli.demo.provider import Turn
from support.proxied import ALLOW, BLOCK, proxied
from support.worlds import MAIL, READ

ASKED: list[Any] = [{"role": "user", "content": "go"}]
USAGE = (9, 7, 16)
SCRIPT = (Turn(text="plain words"), Turn(text="and a call", calls=(MAIL,)), Turn(calls=(MAIL, READ)))


def counted(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


@pytest.mark.parametrize("tool", [ALLOW, BLOCK], ids=["allowed", "blocked"])
def test_it_comes_once_and_last_whatever_became_of_the_calls(tool: str, tmp_path: Path) -> None:
    with proxied(tmp_path / "home", *SCRIPT, *SCRIPT, tool=tool) as (world, gateway):
        client = openai.OpenAI(base_url=world.url, api_key=gateway.credentials.text("bot"), max_retries=0)
        for _ in SCRIPT:
            chunks = list(
                client.chat.completions.create(
                    model="m", messages=ASKED, stream=True, stream_options={"include_usage": True}
                )
            )
            assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            assert (chunks[-1].choices, counted(chunks[-1].usage)) == ([], USAGE)
        for turn in SCRIPT:  # the client's own accumulator
            with client.chat.completions.stream(
                model="m", messages=ASKED, stream_options={"include_usage": True}
            ) as stream:
                final = stream.get_final_completion()
            assert counted(final.usage) == USAGE
            made = [call.function.name for call in final.choices[0].message.tool_calls or ()]
            assert made == [call.tool for call in turn.calls if tool == ALLOW or call is not MAIL]
        assert all(one.body["stream_options"] == {"include_usage": True} for one in world.asked)
