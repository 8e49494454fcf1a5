"""Books that several processes count in: one order for all, and a dead holder stops nobody."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from aegis.core.ports import Store
from aegis.gate.repeat import Elsewhere
from aegis.store import MemoryStore
from aegis.store.shared import CountBook, Counted, key_of


def in_child(work: Callable[[], object]) -> int:
    """What a forked process that does `work` ends with."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def times(book: CountBook) -> list[int]:
    with book:
        return [one.time for one in book.others()]


def test_what_another_process_wrote_is_taken_up_once_and_in_order() -> None:
    book = CountBook(capacity=8)

    def count() -> None:
        with book:
            book.write(Counted(key_of("bot"), 2, -3, 4))

    with book:
        book.write(Counted(key_of("bot"), 1))
    assert in_child(count) == 0
    with book:
        assert list(book.others()) == [Counted(key_of("bot"), 2, -3, 4)]
    assert times(book) == []


def test_who_is_far_behind_gets_what_the_ring_still_holds() -> None:
    book = CountBook(capacity=4)

    def count() -> None:
        with book:
            for time in range(10):
                book.write(Counted(b"k" * 16, time))

    assert in_child(count) == 0
    assert times(book) == [6, 7, 8, 9]


def test_a_process_that_dies_inside_of_a_book_stops_nobody() -> None:
    book = CountBook(capacity=4)

    def die() -> None:
        book.__enter__()
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    assert times(book) == []


@pytest.fixture
def store() -> Store:
    return MemoryStore()


def test_leaves_of_the_same_gateway_are_not_taken_for_those_of_others(store: Store) -> None:
    book = CountBook(capacity=64)
    one = Elsewhere(store, book)
    assert list(one.take(0)) == []  # it begins with an empty log

    def sibling() -> None:
        other = Elsewhere(store, book)
        other.wrote(3, 5)
        other.wrote(5, 9)

    one.wrote(0, 3)
    assert in_child(sibling) == 0
    one.written(3, 9)
    assert not one.moved
    one.written(9, 12)
    assert one.moved
