"""Identifiers: never the same twice, over threads and forks, and in the order of their making."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from aegis.gate.events import new_id


def many(count: int) -> list[str]:
    return [new_id() for _ in range(count)]


def test_no_identifier_is_given_twice_whichever_thread_asks() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [one for batch in pool.map(many, [2_000] * 8) for one in batch]
    assert len(set(made)) == len(made) == 16_000
    assert {len(one) for one in made} == {32}


def test_identifiers_sort_by_the_millisecond_they_were_made_in() -> None:
    first = new_id()
    time.sleep(0.002)
    assert first < new_id()


def test_a_forked_child_gives_other_identifiers_than_its_parent() -> None:
    new_id()  # the pool is filled
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "".join(many(20)).encode())
        os._exit(0)
    mine = {one[12:] for one in many(20)}
    theirs = os.read(reading, 20 * 32).decode()
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert mine.isdisjoint(theirs[at + 12 : at + 32] for at in range(0, len(theirs), 32))
