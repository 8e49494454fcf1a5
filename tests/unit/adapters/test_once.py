"""One execution for one decision, whoever comes again, in threads and tasks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aegis.enforce.tools import Once, WaitsForItself


def test_whoever_comes_again_gets_what_the_first_one_got() -> None:
    once, numbers = Once(), iter(range(9))
    assert [once.run("a", lambda: next(numbers)) for _ in range(3)] == [0, 0, 0]
    assert once.run("b", lambda: "other") == "other"


def test_without_a_key_every_call_is_its_own() -> None:
    once, numbers = Once(), iter(range(9))
    assert [once.run("", lambda: next(numbers)) for _ in range(2)] == [0, 1]


def test_threads_that_come_while_it_runs_wait_for_it() -> None:
    once, ran, go, begun = Once(), [], threading.Event(), threading.Event()

    def body() -> str:
        ran.append(1)
        begun.set()
        assert go.wait(60)
        return "done"

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(once.run, "a", body)
        assert begun.wait(60)
        later = [pool.submit(once.run, "a", body) for _ in range(3)]
        go.set()
        assert [one.result(60) for one in (first, *later)] == ["done"] * 4
    assert ran == [1]


def test_those_who_wait_are_told_of_the_failure_and_the_next_one_tries_again() -> None:
    once, go, begun = Once(), threading.Event(), threading.Event()

    def fails() -> None:
        begun.set()
        assert go.wait(60)
        raise KeyError("gone")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.run, "a", fails)
        assert begun.wait(60)
        later = pool.submit(once.run, "a", fails)
        go.set()
        for one in (first, later):
            assert isinstance(one.exception(60), KeyError)
    assert once.run("a", lambda: "again") == "again"


@pytest.mark.asyncio
async def test_a_task_that_gives_up_waiting_stops_nobody() -> None:
    once, ran, go = Once(), [], asyncio.Event()

    async def body() -> str:
        ran.append(1)
        await go.wait()
        return "done"

    first = asyncio.create_task(once.arun("a", body))
    await asyncio.sleep(0)
    impatient, patient = (asyncio.create_task(once.arun("a", body)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    go.set()
    assert [await first, await patient] == ["done", "done"]
    assert impatient.cancelled()
    assert ran == [1]
    assert await once.arun("a", body) == "done"


async def test_what_begins_again_inside_its_own_body_is_not_waited_for() -> None:
    once = Once()

    async def again() -> None:
        await once.arun("a", again)

    async def in_a_task() -> None:
        await asyncio.create_task(once.arun("a", again))

    for body in (again, in_a_task):
        with pytest.raises(WaitsForItself):
            await once.arun("a", body)
    with pytest.raises(WaitsForItself):
        once.run("a", lambda: once.run("b", lambda: once.run("a", list)))
    assert once.run("a", lambda: "done") == "done"
