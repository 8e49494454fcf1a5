"""Runs that break off: taken up a few times, ended with a reason on the record, and no tool runs twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from aegis.bootstrap import Deployment
from aegis.core.principal import Principal
from aegis.errors import StoreUnavailable
from aegis.runs.explain import steps_of
from aegis.runs.nodes import BuildGraph, Nodes, standard_graph
from aegis.runs.records import Action, RunRecord, RunRow, RunRows
from aegis.runs.service import MOST_ATTEMPTS, Runs, open_runs
from aegis.runs.state import RunRequest, RunState
from support.deployments import deployment
from support.run_world import Provider, call, config, provider, say, write_tools

BOT = Principal(id="bot", roles=frozenset({"agent"}), agent="bot")
REQUEST = RunRequest(messages=({"role": "user", "content": "go"},), run_id="poor")


class Broken(Exception):
    """What a node of somebody else's graph raises."""


@asynccontextmanager
async def world(
    folder: Path, build: BuildGraph = standard_graph
) -> AsyncIterator[tuple[Runs, Deployment, Provider, Path]]:
    command, journal = write_tools(folder)
    with provider() as model:
        model.script = [call("read_note", {"name": "a"}), say("done")]
        routes = "{default: {models: [main], servers: [office]}}"
        place = deployment(folder / "home", config(model.url, command, routes=routes))
        try:
            async with open_runs(place, {"default": build}) as runs:
                yield runs, place, model, journal
        finally:
            place.close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_TEST_KEY", "sk-test-of-runs")


def after_tools(breaks: int) -> BuildGraph:
    """The standard graph, but the model's second turn raises so many times; the tools have run by then."""
    raised = 0

    def build(nodes: Nodes) -> object:
        real = nodes.model

        async def model(state: RunState) -> RunState:
            nonlocal raised
            if state.get("turns", 0) == 1 and raised < breaks:
                raised += 1
                raise Broken("the text of an error is nobody's business")
            return await real(state)

        nodes.model = model  # type: ignore[method-assign]
        return standard_graph(nodes)

    return build  # type: ignore[return-value]


async def test_a_run_that_breaks_off_every_time_ends_as_failed(tmp_path: Path) -> None:
    async with world(tmp_path, after_tools(1_000)) as (runs, place, _, journal):
        assert (await runs.start(BOT, REQUEST)).status == "running"
        for _ in range(MOST_ATTEMPTS + 3):
            await runs.recover()
        ended = await runs.get(BOT, "poor")
        assert (ended.status, ended.reason) == ("failed", "unavailable")
        assert (await runs.resume(BOT, "poor")).status == "failed"
        assert (await runs.start(BOT, REQUEST)).status == "failed"
        with place.store.reader() as reader:
            steps = [step for step in steps_of(reader, "poor") if step.stage == "end"]
        assert [(step.outcome, step.reason) for step in steps] == [("block", "unavailable")]
        assert journal.read_text().splitlines() == ["read_note a"]


async def test_a_run_that_breaks_off_once_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path, after_tools(2)) as (runs, _, _, journal):
        await runs.start(BOT, REQUEST)
        await runs.recover()
        await runs.recover()
        assert (await runs.get(BOT, "poor")).output == "done"
        assert journal.read_text().splitlines() == ["read_note a"]


async def test_a_run_that_takes_its_process_with_it_is_not_taken_up_for_ever(tmp_path: Path) -> None:
    async with world(tmp_path) as (runs, place, _, _):
        rows = RunRows(place.store, place.gate.parts.clock, "999999999-gone")
        row = rows.start(RunRow(run_id="poor", principal="bot", route="default", digest="d", status="running"), b"")
        for _ in range(MOST_ATTEMPTS - 1):
            taken = rows.take(structs.replace(row, owner="999999999-gone"))
            assert taken is not None
            row = taken
        await runs.recover()
        assert (await runs.get(BOT, "poor")).status == "failed"


async def test_a_run_that_broke_off_before_its_first_step_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object, **__: object) -> str:
        raise StoreUnavailable("the disk is full")

    async with world(tmp_path) as (runs, place, _, journal):
        with monkeypatch.context() as patch:
            patch.setattr("aegis.runs.records.LEASE_SECONDS", 0)  # the process is gone as soon as it began
            patch.setattr("aegis.runs.service.RunRecord.write", lost)
            with pytest.raises(StoreUnavailable):
                await runs.start(BOT, REQUEST)
        await runs.recover()
        assert (await runs.get(BOT, "poor")).output == "done"
        assert journal.read_text().splitlines() == ["read_note a"]
        with place.store.reader() as reader:
            stages = [step.stage for step in steps_of(reader, "poor")]
            assert not reader.documents("run-openings")  # what it began from is not kept any longer
        assert (stages[0], stages.count("start"), stages[-1]) == ("start", 1, "end")


@pytest.mark.parametrize("broken_at", ["start", "end"])
async def test_a_run_that_breaks_off_behind_a_receipt_starts_and_ends_once_on_record(
    broken_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunRecord.write
    left = [broken_at]

    async def write(record: RunRecord, run_id: str, principal: Principal, action: Action, **more: Any) -> str:
        written = await real(record, run_id, principal, action, **more)
        if action in left:
            left.remove(action)
            raise StoreUnavailable("gone behind the commit")
        return written

    async with world(tmp_path) as (runs, place, _, _):
        monkeypatch.setattr(RunRecord, "write", write)
        with monkeypatch.context() as patch:
            patch.setattr("aegis.runs.records.LEASE_SECONDS", 0)
            with suppress(StoreUnavailable):
                await runs.start(BOT, REQUEST)
        await runs.recover()
        assert (left, (await runs.get(BOT, "poor")).status) == ([], "completed")
        with place.store.reader() as reader:
            stages = [step.stage for step in steps_of(reader, "poor")]
        assert (stages[0], stages[-1], stages.count("start"), stages.count("end")) == ("start", "end", 1, 1)


async def test_a_run_whose_route_is_gone_keeps_no_other_from_going_on(tmp_path: Path) -> None:
    async with world(tmp_path, after_tools(1)) as (runs, place, _, _):
        rows = RunRows(place.store, place.gate.parts.clock, "999999999-gone")
        rows.start(RunRow(run_id="lost", principal="bot", route="away", digest="d", status="running"), b"")
        await runs.start(BOT, REQUEST)
        for _ in range(MOST_ATTEMPTS):
            await runs.recover()
        assert (await runs.get(BOT, "poor")).status == "completed"
        assert (await runs.get(BOT, "lost")).status == "failed"
