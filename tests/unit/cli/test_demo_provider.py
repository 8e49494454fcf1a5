"""The scripted provider speaks the wire protocols as the real SDKs read them, without any hook."""

from __future__ import annotations

import json

import httpx2
import pytest

from aegis.cli.demo.provider import Call, ScriptedProvider, Turn
from contract.test_adapters import PATHS
from support.worlds import MAIL, READ, Path, world

every_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())


@every_path
def test_every_way_of_the_sdks_reads_the_turns_of_the_script(path: Path) -> None:
    with world(Turn(text="let me", calls=(MAIL, READ)), Turn(text="all done now")) as agent:
        assert path(agent, ["go"]) == "all done now"
        assert agent.ran[0][0] == "send_email"
        assert agent.ran[1] == ("read_file", {"path": "notes.txt"})
        assert agent.results_sent(1) == {"call_mail_0123456789": "sent", "call_read_0123456789": "text"}


def post(provider: ScriptedProvider, path: str, **body: object) -> httpx2.Response:
    return httpx2.post(f"{provider.url}{path}", json=body)


def test_requests_are_recorded_and_the_script_ends_with_a_word() -> None:
    with ScriptedProvider([]) as provider:
        answer = post(provider, "/chat/completions", model="m", messages=[]).json()
    assert answer["choices"][0]["message"]["content"] == "done"
    (asked,) = provider.asked
    assert (asked.format, asked.body["model"], asked.headers["content-type"]) == ("chat", "m", "application/json")


def test_arguments_go_out_as_they_are_spelled() -> None:
    broken = Turn(calls=(Call(tool="f", arguments='{"a": '),))
    with ScriptedProvider([broken, broken, broken]) as provider:
        chat = post(provider, "/chat/completions").json()["choices"][0]["message"]["tool_calls"][0]
        assert chat["function"]["arguments"] == '{"a": '
        assert post(provider, "/responses").json()["output"][0]["arguments"] == '{"a": '
        streamed = post(provider, "/messages", stream=True).text
    deltas = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: ")]
    assert "".join(d["delta"].get("partial_json", "") for d in deltas if d["type"] == "content_block_delta") == '{"a": '


def test_ids_are_unique_where_the_script_gives_none() -> None:
    turn = Turn(calls=(Call(tool="f", arguments={}), Call(tool="f", arguments={})))
    with ScriptedProvider([turn, turn]) as provider:
        answers = [post(provider, "/responses").json() for _ in range(2)]
    assert len({item["call_id"] for answer in answers for item in answer["output"]}) == 4


def test_an_unknown_path_is_not_found() -> None:
    with ScriptedProvider([]) as provider:
        assert post(provider, "/embeddings").status_code == 404
