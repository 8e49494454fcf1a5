"""Server-sent events are read whatever the chunks they come in."""

from __future__ import annotations

import pytest

from aegis.errors import ForeignAnswer
from aegis.wire import sse
from aegis.wire.model import WireEvent
from aegis.wire.sse import SseReader, sse_bytes


def read(*chunks: bytes) -> list[WireEvent]:
    reader = SseReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.end()


STREAM = b": hello\r\nevent: a\r\ndata: one\r\ndata: two\r\n\r\ndata:three\n\nid: 7\rdata: four\r\rdata: five"
EVENTS = [
    WireEvent(event="a", data="one\ntwo"),
    WireEvent(data="three"),
    WireEvent(data="four", id="7"),
    WireEvent(data="five"),
]


def test_every_line_ending_and_field_is_read() -> None:
    assert read(STREAM) == EVENTS


@pytest.mark.parametrize("size", range(1, 12))
def test_chunks_may_end_anywhere(size: int) -> None:
    assert read(*(STREAM[at : at + size] for at in range(0, len(STREAM), size))) == EVENTS


def test_events_survive_being_written_and_read() -> None:
    for event in EVENTS:
        assert read(sse_bytes(event)) == [event]


def test_an_event_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(ForeignAnswer):
        read(b"data: " + b"x" * 200)
    with pytest.raises(ForeignAnswer):
        read(*[b"data: xxxxxxxxxxxxxxxx\n"] * 20)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(ForeignAnswer):
        read(b"data: \xff\n\n")
