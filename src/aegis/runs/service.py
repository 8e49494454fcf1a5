"""Runs of one deployment: started, paused, resumed, taken up after a crash."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command

from aegis.bootstrap import Deployment
from aegis.core.canonical import canonical
from aegis.core.digest import sha256
from aegis.core.principal import Principal
from aegis.egress import Egress, EgressPolicy
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.ids import new_id
from aegis.pipeline.config import Config
from aegis.runs.checkpoints import open_checkpoints
from aegis.runs.claims import Claims
from aegis.runs.nodes import Nodes, Tools
from aegis.runs.plan import Plan, compile_plans
from aegis.runs.record import RunRecord
from aegis.runs.request import RunAnswer, RunRequest
from aegis.runs.routing import Health
from aegis.runs.rows import LEASE_SECONDS, RunRow, RunRows
from aegis.runs.spine import BuildGraph, compile_graph, standard_graph
from aegis.runs.state import RunState, Status
from aegis.runs.tools import ToolServers

_log = logging.getLogger("aegis.runs")

MAX_STEPS: Final = 1_000  # of one graph: a custom graph that turns in a circle ends
MOST_AT_WORK: Final = 200  # runs of this process at a time; further ones wait for their turn


class Runs:
    """The runs of one process over one deployment. Used from one event loop.

    `graphs` are code-level graphs by route, in place of the standard one.
    """

    def __init__(
        self, deployment: Deployment, saver: BaseCheckpointSaver[str], graphs: Mapping[str, BuildGraph] | None = None
    ) -> None:
        gate = deployment.gate
        self._deployment = deployment
        self._saver = saver
        self._graphs = dict(graphs or {})
        self._rows = RunRows(deployment.store, gate.parts.clock, f"{os.getpid()}-{new_id()}")
        self._record = RunRecord(gate)
        self._claims = Claims(deployment.store, deployment.keyring)
        self._health = Health()
        self._work = asyncio.Semaphore(MOST_AT_WORK)
        self._compiled: tuple[Config, Mapping[str, Plan], Tools] | None = None
        self._retired: list[Tools] = []

    async def start(self, principal: Principal, request: RunRequest) -> RunAnswer:
        """Begin a run and take it as far as it goes. The same id with the same request answers with its state.

        Raises `InvalidCall` for a route that does not exist, or an id that another request took.
        """
        plan, tools = self._plan(request.route)
        run_id = request.run_id or new_id()
        digest = sha256(canonical([list(request.messages), list(request.documents), request.route]))
        row = RunRow(run_id=run_id, principal=principal.id, route=plan.name, digest=digest, status="running")
        try:
            row = await asyncio.to_thread(self._rows.start, row)
        except StoreConflict:
            known = await asyncio.to_thread(self._rows.find, run_id)
            if known is None or known.principal != principal.id or known.digest != digest:
                raise InvalidCall("this run id was already used for another run", code="conflict", status=409) from None
            return await self.get(principal, run_id)
        await self._record.write(run_id, principal, "start", details={"route": plan.name})
        state: RunState = {
            "run_id": run_id,
            "principal": {
                "id": principal.id,
                "agent": principal.agent or principal.id,
                "tools": [selector.text for selector in principal.tools],
            },
            "route": plan.name,
            "status": "running",
            "messages": list(request.messages),
            "documents": [{"role": "document", "content": text} for text in request.documents],
        }
        return await self._go(row, plan, tools, state)

    async def get(self, principal: Principal, run_id: str) -> RunAnswer:
        """Where the run stands. Raises `InvalidCall` (404) for one of another principal."""
        row = await self._own(principal, run_id)
        plan, tools = self._plan(row.route)
        return await self._answer(row, self._graph(plan, tools))

    async def resume(self, principal: Principal, run_id: str) -> RunAnswer:
        """Go on with a paused run: what was approved runs, what was denied is told to the model."""
        row = await self._own(principal, run_id)
        return await self._take_up(row)

    async def answered(self, run_id: str) -> None:
        """Somebody answered a held call of this run: it goes on, where it is paused."""
        row = await asyncio.to_thread(self._rows.find, run_id)
        if row is not None and row.status == "paused":
            await self._take_up(row)

    async def recover(self, *, paused: bool = False) -> None:
        """Take up every run whose process is gone; with `paused`, ask every run that waits for a person again."""
        rows = await asyncio.to_thread(self._rows.with_status, "running")
        if paused:
            rows += await asyncio.to_thread(self._rows.with_status, "paused")
        await asyncio.gather(*(self._take_up(row) for row in rows))

    async def aclose(self) -> None:
        """End the tool servers and connections."""
        current = [] if self._compiled is None else [self._compiled[2]]
        for tools in (*self._retired, *current):
            await tools.servers.aclose()
            await tools.egress.aclose()

    async def _take_up(self, row: RunRow) -> RunAnswer:
        plan, tools = self._plan(row.route)
        leased = await asyncio.to_thread(self._rows.take, row)
        if leased is None:
            return await self._answer(row, self._graph(plan, tools))
        return await self._go(leased, plan, tools, Command(resume=True) if row.status == "paused" else None)

    async def _go(self, row: RunRow, plan: Plan, tools: Tools, entry: RunState | Command[Any] | None) -> RunAnswer:
        graph = self._graph(plan, tools)
        config = {"configurable": {"thread_id": row.run_id}, "recursion_limit": MAX_STEPS}
        async with self._work:
            beat = asyncio.create_task(self._beat(row))
            try:
                await graph.ainvoke(entry, config, durability="sync")
            finally:
                beat.cancel()
                await asyncio.gather(beat, return_exceptions=True)
        answer = await self._answer(row, graph)
        latest = await asyncio.to_thread(self._rows.find, row.run_id) or row
        await asyncio.to_thread(self._rows.settle, latest, answer.status)
        return answer

    async def _beat(self, row: RunRow) -> None:
        """Keep the lease while the run is at work."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            kept = await asyncio.to_thread(self._rows.renew, row)
            if kept is None:
                _log.error("a run was taken up by another process", extra={"run": row.run_id})
                return
            row = kept

    async def _answer(self, row: RunRow, graph: Any) -> RunAnswer:
        snapshot = await graph.aget_state({"configurable": {"thread_id": row.run_id}})
        values: dict[str, Any] = snapshot.values
        held = tuple(dict(interrupt.value) for task in snapshot.tasks for interrupt in task.interrupts)
        status: Status = "paused" if held else values.get("status", row.status)
        return RunAnswer(
            run_id=row.run_id,
            status=status,
            route=row.route,
            output=values.get("output", ""),
            reason=values.get("reason", "none"),
            message=values.get("message", ""),
            model=values.get("model", ""),
            labels=values.get("labels", {}),
            usage=values.get("usage", {}),
            cost=values.get("cost", 0),
            held=held,
            events=tuple(values.get("events", ())),
        )

    async def _own(self, principal: Principal, run_id: str) -> RunRow:
        row = await asyncio.to_thread(self._rows.find, run_id)
        if row is None or row.principal != principal.id:
            raise InvalidCall("there is no such run", code="not_found", status=404)
        return row

    def _plan(self, route: str) -> tuple[Plan, Tools]:
        config = self._deployment.policy.config
        if self._compiled is None or self._compiled[0] is not config:
            plans = compile_plans(config)
            if self._compiled is not None:
                self._retired.append(self._compiled[2])
            self._compiled = (config, plans, self._tools(config))
        plan = self._compiled[1].get(route)
        if plan is None:
            hint = "routes stand in `runs.routes`"
            raise InvalidCall(f"there is no route `{route}`", code="not_found", hint=hint, status=404)
        return plan, self._compiled[2]

    def _tools(self, config: Config) -> Tools:
        private = frozenset(
            provider.url.split("/")[2].lower()
            for provider in config.settings.proxies.providers.values()
            if provider.private
        )
        return Tools(
            gate=self._deployment.gate,
            record=self._record,
            claims=self._claims,
            egress=Egress(EgressPolicy(private=private)),
            servers=ToolServers(config.settings.runs.servers),
            health=self._health,
        )

    def _graph(self, plan: Plan, tools: Tools) -> Any:
        return compile_graph(Nodes(plan, tools), self._saver, self._graphs.get(plan.name, standard_graph))


@asynccontextmanager
async def open_runs(deployment: Deployment, graphs: Mapping[str, BuildGraph] | None = None) -> AsyncIterator[Runs]:
    """The runs of a deployment, their checkpoints in its home. Raises `ConfigError` where a route does not compile."""
    compile_plans(deployment.policy.config)
    async with open_checkpoints(deployment.home, deployment.keyring) as saver:
        runs = Runs(deployment, saver, graphs)
        try:
            yield runs
        finally:
            await runs.aclose()
