"""Runs of one deployment: started, paused, resumed, taken up after a crash."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import aiosqlite
import orjson
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from aegis.bootstrap import Deployment
from aegis.config.config import Config
from aegis.context.turns import MAX_DOCUMENT_BYTES, MAX_DOCUMENTS, MAX_TURN_BYTES, UserTurn
from aegis.core.canonical import canonical, sha256
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.errors import InvalidCall, StoreConflict, StoreCorrupt
from aegis.gate.events import new_id
from aegis.outbound.client import Egress, EgressPolicy
from aegis.runs.nodes import BuildGraph, Hear, Hearing, Nodes, Plan, RunTools, compile_graph, principal_of
from aegis.runs.plan import compile_plans
from aegis.runs.records import LEASE_SECONDS, ClaimBox, Claims, RunRecord, RunRow, RunRows, pack, unpack
from aegis.runs.routing import Health
from aegis.runs.state import RunAnswer, RunRequest, RunState, Status
from aegis.runs.tools import ToolServers
from aegis.wire.client import texts

_log = logging.getLogger("aegis.runs")

# Where runs pause: LangGraph's checkpoints in a SQLite file of the home, sealed under the deployment's keys.

FILE: Final = "runs.db"
_CIPHER: Final = "aegis"


class _Cipher(CipherProtocol):
    def __init__(self, box: ClaimBox) -> None:
        self._box = box

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return _CIPHER, pack(*self._box.seal(plaintext))

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        if ciphername != _CIPHER:
            raise StoreCorrupt("a checkpoint is not sealed by this deployment")
        return self._box.open_payload(*unpack(ciphertext))


class _Sealed(EncryptedSerializer):
    """Opens nothing that was not sealed here: a checkpoint that somebody wrote into the file is refused."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if not data[0].endswith(f"+{_CIPHER}"):
            raise StoreCorrupt("a checkpoint is not sealed by this deployment")
        return super().loads_typed(data)


@asynccontextmanager
async def open_checkpoints(home: Path, box: ClaimBox) -> AsyncIterator[AsyncSqliteSaver]:
    """The saver over `runs.db` in `home`; its file is readable by its owner alone."""
    path = home / FILE
    path.touch(mode=0o600, exist_ok=True)
    # Values are plain JSON: nothing but the library's own safe types is ever made from a checkpoint.
    serializer = _Sealed(_Cipher(box), JsonPlusSerializer(allowed_msgpack_modules=None))
    async with aiosqlite.connect(path) as connection:
        await connection.execute("PRAGMA journal_mode=WAL")
        # After a power cut a run goes on from an older checkpoint: what ran is claimed in the store, durably.
        await connection.execute("PRAGMA synchronous=NORMAL")
        await connection.execute("PRAGMA busy_timeout=5000")
        yield AsyncSqliteSaver(connection, serde=serializer)


MAX_STEPS: Final = 1_000  # of one graph: a custom graph that turns in a circle ends
MOST_ATTEMPTS: Final = 5  # a run that breaks off, or takes its process with it, is not taken up for ever
MOST_AT_WORK: Final = 200  # runs of this process at a time; further ones wait for their turn
_BETWEEN: Final = "\n\n"  # two texts of role `user`: what is said in one sentence stands in one of them
_PIECE_CHARS: Final = 65_536  # of a text that counts as read; a longer one is read in pieces


class Runs:
    """The runs of one process over one deployment. Used from one event loop.

    `graphs` are graphs of the code's own by route, in place of the configured ones.
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
        self._compiled: tuple[Config, Mapping[str, Plan], RunTools] | None = None
        self._retired: list[RunTools] = []
        self._hearing: dict[str, Hearing] = {}
        self._begun: set[asyncio.Task[RunAnswer]] = set()

    async def start(self, principal: Principal, request: RunRequest, hear: Hear | None = None) -> RunAnswer:
        """Begin a run and take it as far as it goes. The same id with the same request answers with its state.

        `hear` gets the pieces of the answer as they come, where no guard of the route has to see all of it first.
        Raises `InvalidCall` for a route that does not exist, or an id that another request took.
        """
        plan, _ = self._plan(request.route)
        run_id = request.run_id or new_id()
        digest = sha256(canonical([list(request.messages), list(request.documents), request.route]))
        row = RunRow(
            run_id=run_id,
            principal=principal.id,
            agent=principal.agent or "",
            route=plan.name,
            digest=digest,
            status="running",
        )
        state = _opening(row, principal, request)
        kept = pack(*self._deployment.keyring.seal(orjson.dumps(state)))
        try:
            row = await asyncio.to_thread(self._rows.start, row, kept)
        except StoreConflict:
            known = await asyncio.to_thread(self._rows.find, run_id)
            if known is None or known.principal != principal.id or known.digest != digest:
                raise InvalidCall("this run id was already used for another run", code="conflict", status=409) from None
            return await self.get(principal, run_id)
        await self._record.write(run_id, principal, "start", details={"route": plan.name})
        if hear is None:
            return await self._go(row, state)
        self._hearing[run_id] = Hearing(plan, hear)
        try:
            return await self._go(row, state)
        finally:
            del self._hearing[run_id]

    def begin(self, principal: Principal, request: RunRequest, hear: Hear) -> asyncio.Task[RunAnswer]:
        """`start` as a task of its own, which goes on when nobody listens any more."""
        task = asyncio.create_task(self.start(principal, request, hear))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    async def get(self, principal: Principal, run_id: str) -> RunAnswer:
        """Where the run stands. Raises `InvalidCall` (404) for one of another principal."""
        row = await self._own(principal, run_id)
        return await self._answer(row)

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
        ends = await asyncio.gather(*(self._take_up(row) for row in rows), return_exceptions=True)
        for row, end in zip(rows, ends, strict=True):
            if isinstance(end, BaseException):  # one run that cannot go on keeps no other from it
                _log.error("a run was not taken up", extra={"run": row.run_id, "error": type(end).__name__})

    async def aclose(self) -> None:
        """End the tool servers and connections. Runs that nobody waits for are taken up again by the next process."""
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)
        current = [] if self._compiled is None else [self._compiled[2]]
        for tools in (*self._retired, *current):
            await tools.servers.aclose()
            await tools.egress.aclose()

    async def _take_up(self, row: RunRow) -> RunAnswer:
        leased = await asyncio.to_thread(self._rows.take, row)
        if leased is None:
            return await self._answer(row)
        if leased.attempts > MOST_ATTEMPTS:
            return await self._fail(leased)
        return await self._go(leased, Command(resume=True) if row.status == "paused" else None)

    async def _entry(self, row: RunRow) -> RunState | None:
        """Where a run that broke off goes on: at its last checkpoint, or at its beginning where it came to none."""
        snapshot = await self._graph(*self._plan(row.route)).aget_state(_thread(row))
        if snapshot.values:
            return None
        opening = await asyncio.to_thread(self._rows.opening, row.run_id)
        if opening is None:
            return None
        state: RunState = orjson.loads(self._deployment.keyring.open_payload(*unpack(opening)))
        await self._record.write(row.run_id, principal_of(state), "start", details={"route": row.route})
        return state

    async def _go(self, row: RunRow, entry: RunState | Command[Any] | None) -> RunAnswer:
        """Take the run as far as it goes. One that breaks off is taken up again, `MOST_ATTEMPTS` times in all."""
        try:
            async with self._work:
                entry = await self._entry(row) if entry is None else entry
                if isinstance(entry, dict):
                    await self._say(row, entry)
                kept = await self._at_work(row, entry)
            answer = await self._answer(row)
        except Exception as error:
            # An error of a node may hold what the run is about, so it is logged by its name alone.
            extra = {"run": row.run_id, "attempt": row.attempts, "error": type(error).__name__}
            _log.error("a run broke off", extra=extra)
            return await self._broke(row)
        latest = await asyncio.to_thread(self._rows.find, row.run_id) or row
        if kept:
            await asyncio.to_thread(self._rows.settle, latest, answer.status)
        return answer

    async def _say(self, row: RunRow, state: RunState) -> None:
        """Record what the user says in the request, before anything is decided; a run that is begun again finds it.

        A run without tools makes no calls that could be judged by it.
        """
        if not self._plan(row.route)[0].servers:
            return
        gate, principal = self._deployment.gate, principal_of(state)
        for number, said in enumerate(_turns(state), 1):
            try:
                await gate.aadd_turn(row.run_id, said.text, turn=number, documents=said.documents, principal=principal)
            except InvalidCall as error:
                if error.status != 409:
                    raise
                # The host opened the session of this name, and said something else there: these words follow it.
                await gate.aadd_turn(row.run_id, said.text, documents=said.documents, principal=principal)

    async def _at_work(self, row: RunRow, entry: RunState | Command[Any] | None) -> bool:
        """Run the graph while the lease is kept; whether it was kept. What the graph raises is raised."""
        graph = self._graph(*self._plan(row.route))
        config = {**_thread(row), "recursion_limit": MAX_STEPS}
        work = asyncio.ensure_future(graph.ainvoke(entry, config, durability="sync"))
        beat = asyncio.create_task(self._beat(row))
        try:
            done, _ = await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            beat.cancel()
            await asyncio.gather(work, beat, return_exceptions=True)
        for task in done:
            task.result()
        return work in done

    async def _broke(self, row: RunRow) -> RunAnswer:
        """Let go of a run that broke off, for the next attempt; end it after the last one."""
        latest = await asyncio.to_thread(self._rows.find, row.run_id) or row
        if latest.attempts >= MOST_ATTEMPTS:
            return await self._fail(latest)
        return _bare(await asyncio.to_thread(self._rows.settle, latest, "running"))

    async def _fail(self, row: RunRow) -> RunAnswer:
        """End a run that cannot go on. Raises `StoreError` where that cannot be recorded; it is tried again then."""
        principal = Principal(id=row.principal, roles=frozenset({"agent"}), agent=row.agent or None)
        await self._record.write(
            row.run_id,
            principal,
            "end",
            outcome=Outcome.BLOCK,
            reason=Reason.UNAVAILABLE,
            details={"status": "failed", "attempts": row.attempts},
        )
        return _bare(await asyncio.to_thread(self._rows.settle, row, "failed"))

    async def _beat(self, row: RunRow) -> None:
        """Keep the lease while the run is at work; returns once another process has it."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            kept = await asyncio.to_thread(self._rows.renew, row)
            if kept is None:
                _log.error("a run was taken up by another process", extra={"run": row.run_id})
                return
            row = kept

    async def _answer(self, row: RunRow) -> RunAnswer:
        if row.status == "failed":
            return _bare(row)
        graph = self._graph(*self._plan(row.route))
        snapshot = await graph.aget_state(_thread(row))
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

    def _plan(self, route: str) -> tuple[Plan, RunTools]:
        config = self._deployment.policy.config
        if self._compiled is None or self._compiled[0] is not config:
            plans = compile_plans(config)
            if self._compiled is not None:
                self._retired.append(self._compiled[2])
            self._compiled = (config, plans, self._tools(config, plans))
        plan = self._compiled[1].get(route)
        if plan is None:
            hint = "routes stand in `runs.routes`"
            raise InvalidCall(f"there is no route `{route}`", code="not_found", hint=hint, status=404)
        return plan, self._compiled[2]

    def _tools(self, config: Config, plans: Mapping[str, Plan]) -> RunTools:
        private = frozenset(
            provider.url.split("/")[2].lower()
            for provider in config.settings.proxies.providers.values()
            if provider.private
        )
        return RunTools(
            gate=self._deployment.gate,
            record=self._record,
            claims=self._claims,
            egress=Egress(EgressPolicy(private=private)),
            servers=ToolServers({name: one for plan in plans.values() for name, one in plan.servers.items()}),
            health=self._health,
            hearing=self._hearing,
        )

    def _graph(self, plan: Plan, tools: RunTools) -> Any:
        return compile_graph(Nodes(plan, tools), self._saver, self._graphs.get(plan.name, plan.graph))


def _thread(row: RunRow) -> dict[str, Any]:
    return {"configurable": {"thread_id": row.run_id}}


def _opening(row: RunRow, principal: Principal, request: RunRequest) -> RunState:
    return {
        "run_id": row.run_id,
        "principal": {
            "id": principal.id,
            "agent": principal.agent or principal.id,
            "tools": [selector.text for selector in principal.tools],
        },
        "route": row.route,
        "status": "running",
        "messages": list(request.messages),
        "documents": [{"role": "document", "content": text} for text in request.documents],
    }


def _turns(state: RunState) -> Iterator[UserTurn]:
    """What the user says in a request, and what else was read by then.

    (1) texts of role `user` are words, joined to as few turns as hold them; one that is too long for a turn was pasted
    (2) retrieved texts count as read, and so do earlier answers: they may repeat what other runs read
    (3) system prompts are the application's own: neither words nor read
    (4) there is always a turn: a request in which no user speaks asks for nothing
    """
    words: list[list[str]] = [[]]
    read: list[str] = []
    room = MAX_TURN_BYTES
    for message in (*state["messages"], *state.get("documents", [])):
        for text in () if message.get("role") == "system" else texts(message):
            size = len(text.encode(errors="replace")) + len(_BETWEEN)
            if message.get("role") != "user" or size > MAX_TURN_BYTES:
                read.append(text)
                continue
            if size > room:
                words.append([])
                room = MAX_TURN_BYTES
            words[-1].append(text)
            room -= size
    for said, pasted in zip_longest(map(_BETWEEN.join, words), _beside(read), fillvalue=""):
        yield UserTurn(text=said, documents=tuple(pasted))


def _beside(read: Iterable[str]) -> Iterator[Sequence[str]]:
    """Texts in portions of what may come beside one turn; one that is larger comes in pieces."""
    portion: list[str] = []
    room = MAX_DOCUMENT_BYTES
    for text in read:
        for at in range(0, len(text), _PIECE_CHARS):
            piece = text[at : at + _PIECE_CHARS]
            size = len(piece.encode(errors="replace"))
            if len(portion) == MAX_DOCUMENTS or size > room:
                yield portion
                portion, room = [], MAX_DOCUMENT_BYTES
            portion.append(piece)
            room -= size
    if portion:
        yield portion


def _bare(row: RunRow) -> RunAnswer:
    """What can be said of a run without its checkpoints, which may be what is broken."""
    answer = RunAnswer(run_id=row.run_id, status=row.status, route=row.route)
    if row.status != "failed":
        return answer
    return replace(answer, reason=Reason.UNAVAILABLE.value, message="the run broke off too often and was ended")


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
