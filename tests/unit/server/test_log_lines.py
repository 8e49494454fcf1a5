"""Log lines never hold up whoever logs; what was lost is counted, and said."""

from __future__ import annotations

import logging
import threading

import pytest

from aegis.server.telemetry import LineHandler


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, "", 0, text, None, None)


class Reader:
    """The other end, which reads when the test says so."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.reads.wait()
        self.lines.append(line)


def test_lines_are_written_in_order_and_flushing_waits_for_them() -> None:
    reader = Reader()
    reader.reads.set()
    handler = LineHandler(reader.write)
    for number in range(50):
        handler.emit(record(str(number)))
    while len(reader.lines) < 50:
        handler.flush()
    assert reader.lines == [f"{number}\n" for number in range(50)]
    assert handler.dropped == 0


def test_without_a_reader_nobody_waits_and_what_is_lost_is_counted_and_said() -> None:
    reader = Reader()
    handler = LineHandler(reader.write, most=3)
    for number in range(100):
        handler.emit(record(str(number)))
    # One line may be in the hand of the thread, three in the queue.
    assert handler.dropped in (96, 97)
    reader.reads.set()
    while len(reader.lines) < 101 - handler.dropped:
        handler.flush()
    assert "log lines were dropped\n" in reader.lines


def test_the_end_does_not_wait_for_a_reader_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aegis.server.telemetry.FLUSH_S", 0.01)
    reader = Reader()
    handler = LineHandler(reader.write)
    handler.emit(record("unread"))
    handler.flush()
    assert reader.lines == []
    reader.reads.set()


def test_a_reader_that_went_away_ends_nothing() -> None:
    calls: list[str] = []

    def write(line: str) -> None:
        calls.append(line)
        raise BrokenPipeError

    handler = LineHandler(write)
    for text in ("one", "two"):
        handler.emit(record(text))
    while handler.dropped < 2:
        handler.flush()
    assert calls == ["one\n", "two\n"]
