"""Drift by an embeddings endpoint: beside decisions, recorded with the session, only tighter, and never needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.bootstrap import Deployment
from aegis.cli.doctor import Found, Patient
from aegis.cli.doctor.posture import posture
from aegis.config.config import parse_config
from aegis.context.embeddings import MAX_ANSWER, MAX_MEASURED, MAX_TOOLS, egress_to, embed
from aegis.context.heads import COLLECTION, MemoryHead, read_head
from aegis.context.sessions import key_of_session
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Search
from aegis.errors import ConfigError, ModelFailed
from aegis.gate.repeat import load_payload
from aegis.policy.dataflow.drift import EmbeddingEndpoint
from support.deployments import deployment
from support.embeddings import EmbeddingServer, Script, answer_of, embedding_server
from support.receiver import until

TASK = "Please read my mails of today and summarise them"
Opened = Callable[..., Deployment]


@pytest.fixture
def endpoint() -> Iterator[EmbeddingServer]:
    with embedding_server() as told:
        yield told


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    places: list[Deployment] = []

    def open_at(port: int, mode: str = "enforce", more: str = "") -> Deployment:
        embeddings = f"{{url: 'http://127.0.0.1:{port}/v1', model: small, near: 0.9, far: 0.3, private: true{more}}}"
        drift = f"{{mode: {mode}, alert: 40, hold: 60, embeddings: {embeddings}}}"
        text = f"version: 1\nstore: 'memory:'\nlimits: {{rate: unlimited}}\nguards: {{drift: {drift}}}\n"
        places.append(deployment(tmp_path / f"home{len(places)}", text))
        return places[-1]

    yield open_at
    for place in places:
        place.close()


def call(place: Deployment, tool: str, session: str = "s", **arguments: Any) -> Decision:
    return place.gate.decide(ToolCall(tool=tool, arguments=arguments, session=session))


def head(place: Deployment, session: str = "s") -> MemoryHead:
    with place.store.reader() as reader:
        document = reader.document(COLLECTION, key_of_session(place.gate.principal.id, session))
    assert document is not None
    return read_head(document)


def measured(place: Deployment, *names: str, session: str = "s") -> dict[str, int]:
    """What is known of a session's tools, once it is known of all that are named."""
    until(lambda: set(names) <= head(place, session).measured_of().keys(), 10)
    return head(place, session).measured_of()


def rules(decision: Decision) -> list[str]:
    return [one.rule for one in decision.findings if one.guard == "drift"]


def recorded(place: Deployment, action: str) -> list[dict[str, Any]]:
    """The payloads of receipts of an action; those without one as their members."""
    with place.store.reader() as reader:
        entries = [one for one in reader.search(Search(session="s")) if orjson.loads(one.body).get("action") == action]
        return [load_payload(place.gate.parts, reader, one)[0] or orjson.loads(one.body) for one in entries]


def test_a_call_that_is_far_by_meaning_is_held_once_that_is_known(opened: Opened, endpoint: EmbeddingServer) -> None:
    endpoint.script = lambda texts: (200, answer_of([[1, 0] if "Please" in text else [0, 1] for text in texts]))
    place = opened(endpoint.port)
    place.gate.open_session("s", task="Please pay the bill of today")
    first = call(place, "pay_bill", amount=1)  # asked for in so many words, and not known to the model yet
    assert (first.allowed, rules(first)) == (True, ["drift-unmeasured"])
    assert measured(place, "pay bill") == {"pay bill": 100}
    held = call(place, "pay_bill", amount=2)
    assert (held.outcome, held.reason, rules(held)) == (Outcome.REQUIRE_APPROVAL, Reason.UNLICENSED, ["drift-hold"])


def test_what_the_host_offers_is_measured_before_the_first_call(opened: Opened, endpoint: EmbeddingServer) -> None:
    place = opened(endpoint.port)
    offered = ["read_mails", {"type": "function", "function": {"name": "make_payment"}}, {"name": "share_mail"}, 7, {}]
    place.gate.open_session("s", task=TASK, tools=offered)
    told = measured(place, "read mails", "make payment", "share mail")
    assert (told["read mails"], told["make payment"]) == (0, 100)
    assert "drift-unmeasured" not in rules(call(place, "make_payment", amount=1))


def test_the_record_names_the_model_and_needs_no_endpoint_again(opened: Opened, endpoint: EmbeddingServer) -> None:
    place = opened(endpoint.port, more=", key: '${env:DRIFT_KEY}'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFT_KEY", "sk-drift")
        place.gate.open_session("s", task=TASK, tools=["make_payment"])
        measured(place, "make payment")
    assert endpoint.keys == ["Bearer sk-drift"]
    assert recorded(place, "measured") == [{"model": "small", "turns": 1, "distances": {"make payment": 100}}]
    asked = len(endpoint.asked)
    same = [rules(call(place, "make_payment", amount=1)) for _ in range(3)]
    assert same[0] == same[1] == same[2] != []
    assert len(endpoint.asked) == asked
    assert head(place).measured_by == "small"


def test_words_and_names_leave_and_nothing_else(opened: Opened, endpoint: EmbeddingServer) -> None:
    place = opened(endpoint.port)
    place.gate.open_session("s", task=TASK)
    call(place, "share_mails", to="ada@example.com", body="the secret of the house")
    measured(place, "share mails")
    place.gate.add_turn("s", "Thank you", documents=["a pasted document"])
    call(place, "read_mails", day="today")
    measured(place, "read mails", "share mails")
    assert set(endpoint.sent) == {TASK, "share mails", "Thank you", "read mails"}
    assert endpoint.sent.count("share mails") == 1  # kept by the process


def test_late_news_of_a_call_that_ran_alarm_and_count(opened: Opened, endpoint: EmbeddingServer) -> None:
    goes = threading.Event()

    def slow(texts: Sequence[str]) -> tuple[int, bytes]:
        goes.wait(30)
        return 200, answer_of([[1, 0] if "Please" in text else [0, 1] for text in texts])

    endpoint.script = slow
    place = opened(endpoint.port, mode="observe")
    place.gate.open_session("s", task="Please pay the bill of today")
    assert call(place, "pay_bill", amount=1).allowed  # nobody waited
    assert head(place).drift == 0
    goes.set()
    measured(place, "pay bill")
    assert head(place).drift == 60
    assert [one["session"] for one in recorded(place, "drift")] == ["s"]


def wrong(status: int, body: bytes) -> Script:
    return lambda _: (status, body)


def two(first: bytes, second: bytes = b"[1]") -> bytes:
    """An answer whose two vectors are spelled like this."""
    return b'{"data": [{"index": 0, "embedding": %b}, {"index": 1, "embedding": %b}]}' % (first, second)


NONSENSE: dict[str, Script] = {
    "an error": wrong(500, b""),
    "a way elsewhere": wrong(302, b""),
    "no JSON": wrong(200, b"no json"),
    "deep": wrong(200, b"[" * 100_000),
    "no number": wrong(200, two(b"[NaN]")),
    "no finite number": wrong(200, two(b"[1e999]")),
    "a length beyond numbers": wrong(200, two(b"[1.7e308, 1.7e308]", b"[1.7e308, 1.7e308]")),
    "base64": wrong(200, two(b'"AAAA"', b'"AAAA"')),
    "a place twice": wrong(200, two(b"[1]").replace(b"1,", b"0,")),
    "too few": wrong(200, answer_of([[1, 0]])),
    "too many": wrong(200, answer_of([[1, 0], [1, 0], [1, 0]])),
    "two sizes": wrong(200, answer_of([[1, 0], [1]])),
    "empty": wrong(200, answer_of([[], []])),
    "nowhere": wrong(200, answer_of([[0, 0], [0, 0]])),
    "vectors too long": wrong(200, answer_of([[1.0] * 9_000, [1.0] * 9_000])),
    "an answer too long": wrong(200, b" " * (MAX_ANSWER + 1)),
}


def test_nonsense_is_no_vector(endpoint: EmbeddingServer) -> None:
    where = EmbeddingEndpoint(
        url=f"http://127.0.0.1:{endpoint.port}/v1", model="m", near=0.9, far=0.1, seconds=20, private=True
    )

    async def ask_all() -> list[str]:
        taken: list[str] = []
        async with egress_to(where) as egress:
            for name, script in NONSENSE.items():
                endpoint.script = script
                try:
                    await embed(where, ["a", "b"], egress)
                except ModelFailed:
                    continue
                taken.append(name)
        return taken

    assert asyncio.run(ask_all()) == []


def test_an_endpoint_that_fails_leaves_what_is_counted_and_is_not_asked_at_once_again(
    opened: Opened, endpoint: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.script = wrong(500, b"")
    place = opened(endpoint.port)
    place.gate.open_session("s", task=TASK)
    assert call(place, "read_mails", day="today").allowed
    until(lambda: "only counted" in caplog.text, 10)
    far = call(place, "make_payment", amount=1)
    assert far.outcome is Outcome.REQUIRE_APPROVAL
    assert rules(far) == ["drift-hold", "drift-unmeasured"]
    assert recorded(place, "measured") == []


def test_without_an_endpoint_at_all_drift_is_counted_and_says_so(opened: Opened) -> None:
    place = opened(9)  # nobody listens there
    place.gate.open_session("s", task=TASK)
    assert rules(call(place, "make_payment", amount=1)) == ["drift-hold", "drift-unmeasured"]
    assert call(place, "read_mails", day="today").allowed


def test_a_model_that_finds_everything_near_takes_nothing_from_what_is_counted(
    opened: Opened, endpoint: EmbeddingServer
) -> None:
    endpoint.script = lambda texts: (200, answer_of([[1, 0]] * len(texts)))
    place = opened(endpoint.port)
    place.gate.open_session("s", task=TASK, tools=["make_payment"])
    assert measured(place, "make payment") == {"make payment": 0}
    assert rules(call(place, "make_payment", amount=1)) == ["drift-hold"]


def test_a_session_of_many_tools_is_measured_in_requests_of_a_size_and_no_further(
    opened: Opened, endpoint: EmbeddingServer
) -> None:
    place = opened(endpoint.port)
    place.gate.open_session("s", task=TASK, tools=[f"tool{number}_mail" for number in range(300)])
    until(lambda: len(head(place).measured) == MAX_MEASURED)
    call(place, "another_mail")
    assert max(len(one["input"]) for one in endpoint.asked) == MAX_TOOLS + 1
    assert len(head(place).measured) == MAX_MEASURED


def test_what_was_measured_ends_with_what_the_user_says_next(opened: Opened, endpoint: EmbeddingServer) -> None:
    place = opened(endpoint.port)
    place.gate.open_session("s", task=TASK, tools=["make_payment"])
    assert measured(place, "make payment")["make payment"] == 100
    place.gate.add_turn("s", "Now pay, make the payment")
    assert measured(place, "make payment")["make payment"] == 0


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    drift = (
        "{mode: observe, alert: 60, hold: 80, embeddings: {url: 'https://e.example', model: m, near: 0.1, far: 0.2}}"
    )
    with pytest.raises(ConfigError, match="less than `near`"):
        parse_config(f"version: 1\nguards: {{drift: {drift}}}", file="aegis.yaml")


def test_the_doctor_tells_how_the_model_tells_deeds_apart(endpoint: EmbeddingServer, tmp_path: Path) -> None:
    def examined(near: float, port: int) -> list[Found]:
        home = tmp_path / f"home-{near}-{port}"
        embeddings = f"{{url: 'http://127.0.0.1:{port}/v1', model: small, near: {near}, far: 0.3, private: true}}"
        text = f"version: 1\nguards: {{drift: {{mode: observe, alert: 60, hold: 80, embeddings: {embeddings}}}}}\n"
        deployment(home, text).close()
        patient = Patient(home=home, config=home / "aegis.yaml", url=None, api_key="")
        return [one for one in posture(patient) if one.check == "drift"]

    assert [(one.state, "1.00 near" in one.found) for one in examined(0.9, endpoint.port)] == [("ok", True)]
    endpoint.script = lambda texts: (200, answer_of([[1, 0]] * len(texts)))
    assert [(one.state, bool(one.hint)) for one in examined(0.9, endpoint.port)] == [("warn", True)]
    endpoint.script = wrong(401, b"")
    assert [(one.state, "status 401" in one.found) for one in examined(0.8, endpoint.port)] == [("warn", True)]
