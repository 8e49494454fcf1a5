"""A result is judged while it arrives, and cut before a secret is complete."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest

from aegis.core.outcome import Outcome, Reason
from aegis.errors import InvalidCall, StreamCut
from aegis.policy.guards.stream import HOLD_BYTES
from support.missions import Desk, desk

SECRET = b"SSN 536-90-4399"
SENTENCE = b"quarterly figures are in the table below. "
CLEAN = SENTENCE * 50
PATIENCE_S = 120  # a ceiling for what has to happen at all


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("streams"))
    for name, condition in (("all", {}), ("window", {"window": 10_240})):
        made.open(made.issue(postconditions=[{"id": "clean", "check": "no_pii", **condition}]), f"s-{name}")
    yield made
    made.home.close()


def streamed(place: Desk, chunks: list[bytes], session: str = "s-all", **more: Any) -> tuple[bytes, Any]:
    """What was passed on, and the decision where the stream was cut."""
    decision = place.call("list_rows", session)
    out: list[bytes] = []
    try:
        out.extend(place.gate.evaluate_streaming(decision.decision_id, chunks, **more))
    except StreamCut as cut:
        return b"".join(out), cut.decision
    return b"".join(out), None


@pytest.mark.parametrize("size", [1, 3, 7, 64, 5_000])
def test_a_secret_is_cut_wherever_the_chunks_divide_it(place: Desk, size: int) -> None:
    around = SENTENCE * (12 if size < 64 else 50)  # of bytes one by one, twice what is held back
    data = around + SECRET + b". " + around
    passed, cut = streamed(place, [data[at : at + size] for at in range(0, len(data), size)])
    assert (cut.outcome, cut.reason) == (Outcome.BLOCK, Reason.POSTCONDITION_FAILED)
    assert SECRET not in passed
    assert data.startswith(passed)


def test_a_clean_stream_passes_byte_for_byte_with_one_attestation(place: Desk) -> None:
    decision = place.call("list_rows", "s-all")
    passed = b"".join(place.gate.evaluate_streaming(decision.decision_id, [CLEAN, b"", CLEAN]))
    assert passed == CLEAN + CLEAN
    with pytest.raises(InvalidCall):
        place.gate.stream(decision.decision_id)


def test_the_first_kilobytes_are_judged_and_the_rest_is_not(place: Desk) -> None:
    filler = b"figures and words " * 600
    assert streamed(place, [filler, SECRET, CLEAN], "s-window")[1] is None
    assert streamed(place, [CLEAN, SECRET + b". ", filler], "s-window")[1] is not None


def test_what_is_held_back_is_bounded(place: Desk) -> None:
    stream = place.gate.stream(place.call("list_rows", "s-all").decision_id)
    passed = b"".join(stream.feed(CLEAN) for _ in range(10))
    assert len(CLEAN) * 10 - len(passed) <= HOLD_BYTES
    stream.close(broken=True)


def test_a_stream_that_breaks_off_is_insufficient_evidence(place: Desk) -> None:
    def breaks() -> Iterator[bytes]:
        yield CLEAN
        raise ConnectionError

    decision = place.call("list_rows", "s-all")
    with pytest.raises(ConnectionError):
        list(place.gate.evaluate_streaming(decision.decision_id, breaks()))
    with place.home.store.reader() as reader:
        entry = reader.entry(reader.head().size - 1)
    assert entry is not None
    body = orjson.loads(entry.body)
    assert (body["kind"], body["verdict"], body["decision"]) == ("result", "insufficient_evidence", "block")


def test_a_reader_that_goes_away_leaves_an_attestation(place: Desk) -> None:
    decision = place.call("list_rows", "s-all")
    reading = place.gate.evaluate_streaming(decision.decision_id, [CLEAN, CLEAN])
    next(reading)
    reading.close()
    with pytest.raises(InvalidCall):
        place.gate.stream(decision.decision_id)


def test_a_secret_divided_over_server_sent_events_is_cut(place: Desk) -> None:
    events = [b"data: " + orjson.dumps({"delta": part.decode()}) + b"\n\n" for part in (CLEAN, SECRET[:9], SECRET[9:])]
    passed, cut = streamed(place, events, framing="sse")
    assert cut is not None
    assert SECRET[9:] not in passed


def test_a_secret_divided_over_lines_of_mcp_is_cut(place: Desk) -> None:
    lines = [
        orjson.dumps({"method": "m", "params": {"text": part.decode()}}) + b"\n" for part in (SECRET[:9], SECRET[9:])
    ]
    assert streamed(place, lines, framing="lines")[1] is not None


def test_a_clean_framed_stream_passes_byte_for_byte(place: Desk) -> None:
    events = [b"event: x\ndata: " + orjson.dumps({"delta": "figures"}) + b"\n\n"] * 20
    assert streamed(place, events, framing="sse") == (b"".join(events), None)


def test_a_frame_without_end_is_cut(place: Desk) -> None:
    assert streamed(place, [b"data: " + b"x" * 700_000] * 2, framing="sse")[1] is not None


def test_a_stream_over_its_limit_is_cut(place: Desk) -> None:
    place.open(place.issue(postconditions=[{"id": "small", "check": "max_bytes", "limit": 100}]), "s-small")
    passed, cut = streamed(place, [b"x" * 90, b"x" * 90], "s-small")
    assert cut is not None and len(passed) <= 100


def test_a_cut_stream_has_the_recourse_of_its_condition(place: Desk) -> None:
    condition = {"id": "clean", "check": "no_pii", "recourse": ["withhold", "block_chain"]}
    place.open(place.issue(postconditions=[condition]), "s-recourse")
    assert streamed(place, [SECRET + b" and more"], "s-recourse")[1] is not None
    assert place.call("list_rows", "s-recourse").reason is Reason.CHAIN_BLOCKED


async def test_streams_are_judged_on_an_event_loop(place: Desk) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield CLEAN
        yield SECRET + b" "

    decision = place.call("list_rows", "s-all")
    with pytest.raises(StreamCut):
        async for _ in place.gate.aevaluate_streaming(decision.decision_id, chunks()):
            pass


def test_what_is_held_back_comes_though_the_source_pauses(place: Desk) -> None:
    heard = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield CLEAN
        assert heard.wait(PATIENCE_S)
        yield b"and the rest"

    out = b""
    for piece in place.gate.evaluate_streaming(place.call("list_rows", "s-all").decision_id, chunks()):
        out += piece
        if out == CLEAN:
            heard.set()
    assert out == CLEAN + b"and the rest"


def test_what_a_source_raises_reaches_the_reader(place: Desk) -> None:
    def chunks() -> Iterator[bytes]:
        yield CLEAN
        raise ConnectionResetError("the tool went away")

    with pytest.raises(ConnectionResetError):
        list(place.gate.evaluate_streaming(place.call("list_rows", "s-all").decision_id, chunks()))


def test_a_source_whose_reader_left_is_asked_for_nothing_more(place: Desk) -> None:
    asked, ended = [], threading.Event()

    def chunks() -> Iterator[bytes]:
        try:
            for number in range(1_000_000):
                asked.append(number)
                yield CLEAN
        finally:
            ended.set()

    pieces = place.gate.evaluate_streaming(place.call("list_rows", "s-all").decision_id, chunks())
    next(pieces)
    pieces.close()
    assert ended.wait(PATIENCE_S)
    assert len(asked) < 10
