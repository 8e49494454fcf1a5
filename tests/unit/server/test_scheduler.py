"""Whose turn it is: counted in turns of an event loop, without a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.errors import InvalidCall
from aegis.server.admission import AT_ONCE, PER_TURN, WAITING, Scheduler


async def served(asking: Sequence[str]) -> list[tuple[int, str]]:
    """Who was served in which turn of the loop, where all of them asked before the first was served."""
    scheduler, order, turn = Scheduler(), list[tuple[int, str]](), 0

    async def ask(who: str) -> None:
        await scheduler.turn(who)
        order.append((turn, who))

    tasks = [asyncio.ensure_future(ask(who)) for who in asking]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
    return order


@given(st.lists(st.sampled_from("abcde"), max_size=60))
def test_principals_are_served_in_turns_and_few_in_each_turn_of_the_loop(asking: list[str]) -> None:
    order = asyncio.run(served(asking))
    assert sorted(who for _, who in order) == sorted(asking)
    for turn in {turn for turn, _ in order}:
        assert sum(one == turn for one, _ in order) <= PER_TURN
    # Behind those that were served at once nobody is served twice while another one waits.
    waiting = [who for _, who in order[PER_TURN:]]
    for first, who in enumerate(waiting):
        later = [at for at in range(first + 1, len(waiting)) if waiting[at] == who]
        if later:
            assert set(waiting[later[0] + 1 :]) - {who} <= set(waiting[first + 1 : later[0]])


def test_a_flood_of_one_delays_another_by_one_turn() -> None:
    order = asyncio.run(served(["flood"] * 500 + ["other"]))
    assert [who for _, who in order].index("other") <= PER_TURN + 1


def test_who_goes_away_while_it_waits_takes_no_turn() -> None:
    async def run() -> list[str]:
        scheduler, order = Scheduler(), list[str]()

        async def ask(who: str) -> None:
            await scheduler.turn(who)
            order.append(who)

        flood = [asyncio.ensure_future(ask("flood")) for _ in range(PER_TURN * 3)]
        await asyncio.sleep(0)
        for task in flood[PER_TURN:]:
            task.cancel()
        await asyncio.gather(*flood, ask("other"), return_exceptions=True)
        await ask("again")
        return order

    order = asyncio.run(run())
    assert order == ["flood"] * PER_TURN + ["other", "again"]


def test_so_many_large_bodies_of_one_principal_are_read_at_once() -> None:
    async def run() -> tuple[int, int]:
        scheduler, inside, most, others = Scheduler(), 0, 0, 0
        release = asyncio.Event()

        async def read(who: str) -> None:
            nonlocal inside, most, others
            async with scheduler.large(who):
                inside += who == "flood"
                others += who == "other"
                most = max(most, inside)
                await release.wait()
                inside -= who == "flood"

        tasks = [asyncio.ensure_future(read("flood")) for _ in range(20)]
        tasks.append(asyncio.ensure_future(read("other")))
        await asyncio.sleep(0)
        entered = others
        release.set()
        await asyncio.gather(*tasks)
        return most, entered

    assert asyncio.run(run()) == (AT_ONCE, 1)


def test_so_many_requests_of_one_principal_wait_and_those_of_another_as_well() -> None:
    scheduler = Scheduler()
    with ExitStack() as held:
        for _ in range(WAITING):
            held.enter_context(scheduler.waiting("flood"))
        with pytest.raises(InvalidCall, match="wait already") as refusal, scheduler.waiting("flood"):
            pytest.fail("one too many waits")
        assert refusal.value.status == 429
        with scheduler.waiting("other"):
            pass
    with scheduler.waiting("flood"):
        pass
