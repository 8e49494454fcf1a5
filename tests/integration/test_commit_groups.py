"""Calls that come to an event loop one after the other share a commit; whoever is alone does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome
from aegis.gate import commits
from aegis.log.writer import Ledger, Unit
from support.deployments import deployment

READ = ToolCall(tool="read_file", arguments={"path": "notes.txt"})


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the groups that were committed, each on the loop: no commit counts as slow, however busy the
    machine is."""
    monkeypatch.setattr(commits, "SLOW_S", 3_600.0)
    sizes: list[int] = []
    commit = Ledger.commit

    def counted(self: Ledger, units: Sequence[Unit], *, wait_s: float | None = None) -> Any:
        sizes.append(len(units))
        return commit(self, units, wait_s=wait_s)

    monkeypatch.setattr(Ledger, "commit", counted)
    return sizes


async def test_calls_of_neighbouring_turns_share_a_commit(tmp_path: Path, groups: list[int]) -> None:
    place = deployment(tmp_path / "home")
    place.gate.expect_no_interruptions()
    await place.gate.adecide(READ)  # introduces the agent's key
    groups.clear()

    async def late(turns: int) -> Outcome:
        for _ in range(turns):
            await asyncio.sleep(0)
        return (await place.gate.adecide(READ)).outcome

    outcomes = await asyncio.gather(*(late(number % 3) for number in range(30)))
    assert set(outcomes) == {Outcome.ALLOW}
    assert groups == [30]
    place.close()


async def test_nobody_waits_for_those_who_keep_coming(tmp_path: Path, groups: list[int]) -> None:
    place = deployment(tmp_path / "home")
    place.gate.expect_no_interruptions()
    await place.gate.adecide(READ)
    groups.clear()
    started: list[asyncio.Task[Any]] = []
    first = asyncio.create_task(place.gate.adecide(READ))
    while not first.done():
        started.append(asyncio.create_task(place.gate.adecide(READ)))
        await asyncio.sleep(0)
        assert len(started) < 20
    await asyncio.gather(*started)
    assert sum(groups) == len(started) + 1
    place.close()
