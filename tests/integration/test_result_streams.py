"""Streamed results at a real gateway: verdicts come while the stream runs, and a secret never leaves whole."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import orjson
import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason, Verdict
from aegis.errors import InvalidCall, StreamCut
from aegis.missions.results import sign_stream
from aegis.policy.guards.stream import HOLD_BYTES
from aegis.sdk.client import Client
from support.missions import ISSUER, b64, claims, signer
from support.served import Served, served

SECRET = b"SSN 536-90-4399"
CLEAN = b"quarterly figures are in the table below. " * 50
TOOL_KEY = signer(9, "provenance")
CONFIG = f"""version: 1
profile: standard
limits: {{rate: unlimited}}
durability: os
tools:
  read_file: {{risk: low, effects: [read]}}
  sign_file: {{risk: low, effects: [read]}}
missions:
  tool_keys: {{sign_file: "{b64(TOOL_KEY.public)}"}}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("g") / "home", CONFIG) as running:
        gate = running.deployment.gate
        condition = {"id": "clean", "check": "no_pii"}
        more = {"tools": {"allow": ["*_file"]}, "effects": ["read"], "postconditions": [condition]}
        issued = gate.issuing.issue(ISSUER, claims={**claims(), **more})
        assert issued.unit is not None
        gate.record(issued.unit)
        body = {"session": "s", "mission": issued.declaration.mission_id}
        assert running.ask("POST", "/v1/sessions", body).status == 201
        yield running


def decided(gateway: Served, tool: str = "read_file") -> str:
    arguments = {"path": "/ws/a"}
    return str(gateway.decide(tool, session="s", arguments=arguments).json["decision_id"])


def client(gateway: Served, **more: Any) -> Client:
    return Client(f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot"), **more)


def last_receipt(gateway: Served) -> dict[str, Any]:
    with gateway.deployment.store.reader() as reader:
        entry = reader.entry(reader.head().size - 1)
    assert entry is not None
    return dict(orjson.loads(entry.body))


class Talk:
    """A request to the streaming route that a test writes line by line."""

    def __init__(self, gateway: Served, decision_id: str, query: str = "", key: str = "bot"):
        self.sock = socket.create_connection(("127.0.0.1", gateway.port), timeout=20)
        head = gateway.head(f"/v1/results/{decision_id}/stream{query}", key=key, Transfer_Encoding="chunked")
        self.sock.sendall(head + b"\r\n")
        self.response = http.client.HTTPResponse(self.sock)
        self._begun = False

    def send(self, line: Any) -> None:
        data = (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"
        self.sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        self.sock.sendall(b"0\r\n\r\n")

    def verdict(self) -> dict[str, Any]:
        if not self._begun:
            self.response.begin()
            self._begun = True
        return dict(json.loads(self.response.readline()))


def test_verdicts_come_while_the_stream_runs_and_the_cut_before_its_end(gateway: Served) -> None:
    talk = Talk(gateway, decided(gateway))
    talk.send({"chunk": CLEAN.decode()})
    first = talk.verdict()
    assert (first["decision"], first["bytes"], first["final"]) == ("allow", len(CLEAN), False)
    assert len(CLEAN) - first["released"] <= HOLD_BYTES
    talk.send({"chunk": "her SSN 536"})
    assert talk.verdict()["decision"] == "allow"
    talk.send({"chunk": "-90-4399 is on file"})
    verdicts = [talk.verdict()]
    while not verdicts[-1]["final"]:
        verdicts.append(talk.verdict())
    cut = verdicts[-1]
    assert (cut["decision"], cut["verdict"], cut["reason"]) == ("block", "violation", "postcondition_failed")
    assert cut["released"] <= len(CLEAN) + len("her SSN 536")
    assert last_receipt(gateway)["receipt_id"] == cut["receipt"]["id"]


def test_a_clean_stream_ends_with_one_attestation(gateway: Served) -> None:
    decision_id = decided(gateway)
    talk = Talk(gateway, decision_id)
    talk.send({"base64": base64.b64encode(bytes(range(128))).decode()})
    talk.end()
    verdicts = [talk.verdict()]
    while not verdicts[-1]["final"]:
        verdicts.append(talk.verdict())
    assert verdicts[-1]["released"] == verdicts[-1]["bytes"] == 128
    receipt = last_receipt(gateway)
    assert (receipt["kind"], receipt["parent"], receipt["verdict"]) == ("result", decision_id, "compliant")
    again = gateway.ask("POST", f"/v1/results/{decision_id}/stream", b"")
    assert again.status == 409


def test_what_is_held_back_is_released_in_a_silence(gateway: Served) -> None:
    talk = Talk(gateway, decided(gateway))
    talk.send({"chunk": "thinking"})
    assert talk.verdict()["released"] == 0
    assert talk.verdict()["released"] == len("thinking")
    talk.end()
    assert talk.verdict()["final"]


def test_a_client_that_goes_away_leaves_insufficient_evidence(gateway: Served) -> None:
    decision_id = decided(gateway)
    talk = Talk(gateway, decision_id)
    talk.send({"chunk": "half of it"})
    talk.verdict()
    talk.response.close()
    talk.sock.close()
    for _ in range(200):
        receipt = last_receipt(gateway)
        if receipt.get("parent") == decision_id:
            break
        time.sleep(0.05)
    assert (receipt["kind"], receipt["verdict"], receipt["decision"]) == ("result", "insufficient_evidence", "block")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        {"chunk": 1},
        {"other": "x"},
        {"chunk": "a", "base64": "YQ=="},
        {"base64": "*"},
        [1],
        b'{"chunk":"\\ud800"}',
    ],
)
def test_a_malformed_line_ends_the_stream_as_broken(gateway: Served, line: Any) -> None:
    talk = Talk(gateway, decided(gateway))
    talk.send(line)
    final = talk.verdict()
    assert (final["final"], final["decision"], final["verdict"]) == (True, "block", "insufficient_evidence")
    assert final["error"]


def test_a_line_without_end_is_refused(gateway: Served) -> None:
    talk = Talk(gateway, decided(gateway))
    for _ in range(40):
        talk.sock.sendall(b"%x\r\n%s\r\n" % (65_536, b"x" * 65_536))
    assert "over" in talk.verdict()["error"]


def test_streams_belong_to_the_principal_of_their_call(gateway: Served) -> None:
    decision_id = decided(gateway)
    assert gateway.ask("POST", f"/v1/results/{decision_id}/stream", b"", key="other").status == 404
    assert gateway.ask("POST", "/v1/results/nothing/stream", b"").status == 404
    assert gateway.ask("POST", f"/v1/results/{decision_id}/stream", b"", key="auditor").status == 403
    assert gateway.ask("POST", f"/v1/results/{decision_id}/stream?framing=xml", b"").status == 422
    refused = gateway.decide("read_file", session="s", arguments={"path": "/srv/b"}).json["decision_id"]
    assert gateway.ask("POST", f"/v1/results/{refused}/stream", b"").status == 409


def test_a_stream_may_be_larger_than_any_other_body(gateway: Served) -> None:
    data = CLEAN * 4_000
    passed = b"".join(client(gateway).evaluate_streaming(decided(gateway), [data]))
    assert passed == data


@pytest.mark.parametrize("size", [1, 7, 64])
def test_the_client_passes_on_nothing_of_a_secret_that_is_complete(gateway: Served, size: int) -> None:
    data = CLEAN[:210] + SECRET + b". " + CLEAN
    out: list[bytes] = []
    with pytest.raises(StreamCut) as cut:
        for piece in client(gateway).evaluate_streaming(
            decided(gateway), (data[at : at + size] for at in range(0, len(data), size))
        ):
            out.append(piece)
    assert cut.value.decision.reason is Reason.POSTCONDITION_FAILED
    assert SECRET not in b"".join(out)
    assert data.startswith(b"".join(out))


@pytest.mark.parametrize(
    ("framing", "frame"),
    [
        ("sse", lambda text: b"data: " + orjson.dumps({"delta": text.decode()}) + b"\r\n\r\n"),
        ("sse", lambda text: b"event: d\ndata: " + orjson.dumps({"delta": text.decode()}) + b"\n\n"),
        ("lines", lambda text: orjson.dumps({"params": {"text": text.decode()}}) + b"\n"),
    ],
)
def test_framed_streams_pass_byte_for_byte_and_are_cut_across_frames(gateway: Served, framing: Any, frame: Any) -> None:
    clean = b"".join(frame(part) for part in (b"figures", b"and words", CLEAN))
    pieces = [clean[at : at + 10] for at in range(0, len(clean), 10)]
    passed = b"".join(client(gateway).evaluate_streaming(decided(gateway), pieces, framing=framing))
    assert passed == clean
    with pytest.raises(StreamCut):
        list(
            client(gateway).evaluate_streaming(
                decided(gateway), [frame(SECRET[:8]), frame(SECRET[8:]), clean], framing=framing
            )
        )


def test_a_secret_beside_the_data_of_an_event_is_cut_too(gateway: Served) -> None:
    for event in (b": " + SECRET + b"\ndata: x\n\n", b'data: {"' + SECRET + b'": 1}\n\n'):
        with pytest.raises(StreamCut):
            list(client(gateway).evaluate_streaming(decided(gateway), [event], framing="sse"))


def test_threads_hear_verdicts_while_they_wait_for_the_next_chunk(gateway: Served) -> None:
    heard = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"thinking"
        assert heard.wait(120)
        yield b" and done"

    out = b""
    for piece in client(gateway).evaluate_streaming(decided(gateway), chunks()):
        out += piece
        heard.set()
    assert out == b"thinking and done"


async def test_event_loops_hear_verdicts_while_they_wait_for_the_next_chunk(gateway: Served) -> None:
    silent = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"thinking"
        await silent.wait()
        yield b" and done"

    out = b""
    async for piece in client(gateway).aevaluate_streaming(decided(gateway), chunks()):
        out += piece
        silent.set()
    assert out == b"thinking and done"


async def test_event_loops_are_cut_as_threads_are(gateway: Served) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield CLEAN
        yield SECRET + b". "
        yield CLEAN

    with pytest.raises(StreamCut) as cut:
        async for piece in client(gateway).aevaluate_streaming(decided(gateway), chunks()):
            assert SECRET not in piece
    assert cut.value.decision.outcome is Outcome.BLOCK


def test_what_the_source_raises_is_raised_and_leaves_a_broken_stream(gateway: Served) -> None:
    def chunks() -> Iterator[bytes]:
        yield CLEAN
        raise ConnectionResetError("mine")

    with pytest.raises(ConnectionResetError, match="mine"):
        list(client(gateway).evaluate_streaming(decided(gateway), chunks()))


async def test_what_an_async_source_raises_is_raised(gateway: Served) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield CLEAN
        raise ConnectionResetError("mine")

    with pytest.raises(ConnectionResetError, match="mine"):
        async for _ in client(gateway).aevaluate_streaming(decided(gateway), chunks()):
            pass


def test_no_gateway_passes_nothing() -> None:
    gone = Client("http://127.0.0.1:9", "k")
    with pytest.raises(StreamCut) as cut:
        list(gone.evaluate_streaming("d", [CLEAN]))
    assert cut.value.decision.verdict is Verdict.INSUFFICIENT_EVIDENCE


def test_a_stream_that_nobody_asked_for_is_refused(gateway: Served) -> None:
    with pytest.raises(InvalidCall):
        list(client(gateway).evaluate_streaming("nothing", [CLEAN]))


def test_a_tool_that_must_sign_signs_every_byte_of_its_stream(gateway: Served) -> None:
    for told, allowed in ((CLEAN, True), (CLEAN.upper(), False), (None, False)):
        decision_id = decided(gateway, "sign_file")
        token = None if told is None else sign_stream(TOOL_KEY, decision_id=decision_id, content=told)
        reading = client(gateway).evaluate_streaming(
            decision_id, [CLEAN], provenance=partial(str, token) if token else None
        )
        if allowed:
            assert b"".join(reading) == CLEAN
            continue
        with pytest.raises(StreamCut):
            list(reading)


def test_a_slow_stream_is_not_cut_for_taking_its_time(gateway: Served) -> None:
    call = ToolCall(tool="read_file", arguments={"path": "/ws/a"}, session="s")
    decision = client(gateway).decide(call)

    def chunks() -> Iterator[bytes]:
        for _ in range(3):
            yield b"word "
            time.sleep(0.2)

    assert b"".join(client(gateway).evaluate_streaming(decision.decision_id, chunks())) == b"word " * 3
