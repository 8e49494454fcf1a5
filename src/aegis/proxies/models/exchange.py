"""One request to a model and its answer: what the client claims is checked, what the model proposes is decided.

(1) the request's history is held against the book, its results and the documents that it brings are judged
(2) held calls of earlier answers that a person has released meanwhile are given out, without asking the model
(3) calls that were refused are put back where the model expects them
(4) the calls of the answer are decided together; only then the client sees those that may run
(5) what was taken out is durable before the client sees the rest
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aegis.adapters._enforce import Attempt, Enforced, Enforcer
from aegis.adapters.context import Session
from aegis.core.outcome import Outcome
from aegis.core.ports import Document
from aegis.dialects.flow import Flow
from aegis.dialects.model import Proposed, Removal, Ruling, Step, Wire, new_ref
from aegis.dialects.sse import sse_bytes
from aegis.errors import ForeignAnswer
from aegis.proxies.models.book import Book, Scope
from aegis.proxies.models.formats import Format
from aegis.proxies.models.history import History, Unknown
from aegis.proxies.models.reading import Reading
from aegis.proxies.models.records import Kind, Record, Taken
from aegis.proxies.models.resume import Found, Resumptions
from aegis.proxies.models.synthesis import answer_of

ALIVE_S: Final = 10.0  # a stream that waits for a person says so to whatever closes silent connections
_ALIVE: Final = b": a call is being decided\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """What becomes of a request: it goes to the provider, or is answered here."""

    request: Wire
    answer: Wire | None = None


_Ruled = tuple[Proposed, Enforced | None]


class Exchange:
    """The passage of one request and its answer through the proxy; `enforcer` decides for the scope's principal."""

    def __init__(
        self,
        *,
        book: Book,
        resumptions: Resumptions,
        enforcer: Enforcer,
        reading: Reading,
        format_: Format,
        scope: Scope,
        unknown: Unknown,
        now: int,
    ):
        self._book = book
        self._resumptions = resumptions
        self._enforcer = enforcer
        self._reading = reading
        self._format = format_
        self._dialect = format_.dialect
        self._scope = scope
        self._session = Session(name=scope.session) if scope.session else None
        self._unknown: Unknown = unknown
        self._now = now
        self._structured = False
        self._model = ""

    async def opened(self, request: Wire) -> Opened:
        """The request as the provider may see it, or the answer to it; raises `InvalidCall` for a forged one."""
        self._structured = self._dialect.structured(request)
        self._model = str(request.get("model", ""))
        request = await self._checked(request)  # (1)
        # (2)
        found = Found(self._book, self._scope)
        restored = self._dialect.put_back(request, found)
        waiting = [record for record in found.records if record.held]
        for record in waiting:
            moved, given = await self._resumptions.move(record, self._scope, self._enforcer, self._session)
            if given:
                return Opened(request=request, answer=await self._given_out(moved, given))
            if moved.held and not moved.kept:
                return Opened(request=request, answer=await self._still_waiting(moved))
        # (3)
        if waiting:
            restored = self._dialect.put_back(request, Found(self._book, self._scope))
        return Opened(request=restored)

    async def counted(self, request: Wire) -> Wire:
        """The request as it would be sent for an answer, where only its size is asked for: nothing is given out or
        resumed by that. Raises as `opened` does."""
        return self._dialect.put_back(await self._checked(request), Found(self._book, self._scope))

    async def settled(self, answer: Wire) -> Wire:
        """The answer as the client may see it."""
        anchors = self._dialect.anchors(answer)
        calls = self._dialect.calls(answer)
        rulings, ruled = await self._ruled(calls, anchors[0])
        settled = self._dialect.settle(answer, rulings, structured=self._structured)
        documents, records = self._noted(anchors, settled.removals, ruled)
        await self._book.write(documents)
        return _with_pending(settled.answer, records)

    async def events(self, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The bytes of a streamed answer as the client may see them; raises `ForeignAnswer` for a malformed one."""
        gate = self._dialect.stream(structured=self._structured)
        flow = Flow(gate)
        ruled: list[_Ruled] = []
        noted = 0
        async for arrived in _arriving(flow, source):
            ready: list[bytes] = []
            for part in _understood(arrived):
                if isinstance(part, bytes):
                    ready.append(part)
                    continue
                if isinstance(part, ForeignAnswer):
                    if ready:  # what came before it was understood
                        yield b"".join(ready)
                    raise part
                ready += map(sse_bytes, part.events)
                documents: list[Document] = []
                if part.calls:
                    if ready:
                        yield b"".join(ready)
                    deciding = asyncio.ensure_future(self._ruled(part.calls, gate.anchors[0] if gate.anchors else ""))
                    async for beat in _beats(deciding):
                        yield beat
                    rulings, made = await deciding
                    ruled += made
                    documents += self._aliases(made)
                    ready = [sse_bytes(event) for event in gate.settle(rulings)]
                if len(gate.removals) > noted:
                    more, _ = self._noted(gate.anchors, gate.removals[noted:], ruled, aliases=False)
                    documents += more
                    noted = len(gate.removals)
                if documents:
                    await self._book.write(documents)  # (5)
            if ready:  # what came together goes on together: one write to the socket
                yield b"".join(ready)

    async def _checked(self, request: Wire) -> Wire:
        """The request without what a model may not see; raises `InvalidCall` for a forged one."""
        history = History(self._book, self._enforcer, self._dialect, self._scope, self._session, self._unknown)
        request = await history.checked(request)
        return await self._reading.judged(request, self._dialect.brought(request))

    async def _ruled(self, calls: Sequence[Proposed], answer_id: str) -> tuple[dict[str, Ruling], list[_Ruled]]:
        asked = [call for call in calls if call.arguments is not None]
        attempts = [
            Attempt(
                tool=call.tool,
                arguments=call.arguments or {},
                server=call.server,
                call_id=self._book.gate_id(self._scope, answer_id, call.call_id),
            )
            for call in asked
        ]
        enforced = await self._enforcer.arun(self._enforcer.enforce(attempts, self._session))
        by_key = {call.key: one for call, one in zip(asked, enforced, strict=True)}
        rulings = {call.key: _ruling(by_key[call.key]) for call in asked}
        for call in calls:
            rulings.setdefault(call.key, Ruling(allowed=False, message=call.problem))
        return rulings, [(call, by_key.get(call.key)) for call in calls]

    def _noted(
        self, anchors: Sequence[str], removals: Sequence[Removal], ruled: Sequence[_Ruled], *, aliases: bool = True
    ) -> tuple[list[Document], list[Record]]:
        """What has to be durable about an answer: under which ids its calls were decided, and what was taken out."""
        documents = self._aliases(ruled) if aliases else []
        records: list[Record] = []
        waiting = list(ruled)
        for removal in removals:
            record = self._record(removal, anchors, waiting)
            keys: list[tuple[Kind, str]] = [("call", key) for key in removal.kept]
            if self._format.vendor != "openai" or self._format.name == "responses":
                keys += [("anchor", anchor) for anchor in anchors]
            documents += self._book.remember(self._scope, record, keys)
            records.append(record)
        if not removals and self._format.name == "responses":
            documents += self._book.cleared(self._scope, anchors[1:])
        return documents, records

    def _aliases(self, ruled: Sequence[_Ruled]) -> list[Document]:
        return [
            document
            for call, one in ruled
            if one is not None and one.allowed
            for document in self._book.alias(self._scope, call.call_id, one.decision.call_digest, one.decision.call_id)
        ]

    def _record(self, removal: Removal, anchors: Sequence[str], waiting: list[_Ruled]) -> Record:
        taken: list[Taken] = []
        for refused in removal.refused:
            # Both lists are in the order of the answer; what lies between was let through.
            while waiting and waiting[0][0].call_id != refused.call_id:
                waiting.pop(0)
            call, one = waiting.pop(0) if waiting else (None, None)
            held = one is not None and one.decision.outcome is Outcome.REQUIRE_APPROVAL
            taken.append(
                Taken(
                    refused=refused,
                    tool="" if call is None else call.tool,
                    server=None if call is None else call.server,
                    gate_id="" if one is None else one.decision.call_id,
                    decision_id="" if one is None else one.decision.decision_id,
                    approval_id=one.decision.approval.id if one is not None and one.decision.approval else "",
                    state="held" if held else "refused",
                )
            )
        return Record(
            ref=removal.ref or new_ref(),
            format=self._format.name,
            answer_id=anchors[0] if anchors else "",
            model=self._model,
            taken=tuple(taken),
            kept=removal.kept,
            text=removal.text,
        )

    async def _given_out(self, record: Record, given: Sequence[tuple[Taken, Enforced]]) -> Wire:
        """The answer that holds exactly the calls that a person released."""
        calls: list[Wire] = []
        documents: list[Document] = []
        for taken, one in given:
            call = taken.refused.call
            calls.append(self._dialect.with_arguments(call, one.arguments()) if one.changed else call)
            documents += self._book.alias(
                self._scope, taken.refused.call_id, one.decision.call_digest, one.decision.call_id
            )
        await self._book.write(documents)
        return self._own_answer(record, calls)

    async def _still_waiting(self, record: Record) -> Wire:
        """The same pending answer again: the model is not asked, and nothing new is recorded."""
        calls = [one.refused.call for one in record.held]
        whole = self._own_answer(record, calls)
        keys = self._dialect.calls(whole)
        rulings = {
            call.key: Ruling(allowed=False, message=one.refused.message)
            for call, one in zip(keys, record.held, strict=True)
        }
        settled = self._dialect.settle(whole, rulings, structured=self._structured)
        text = json.dumps(settled.answer)
        for removal in settled.removals:
            text = text.replace(removal.ref, record.ref)
        answer: Wire = json.loads(text)
        return _with_pending(answer, [record])

    def _own_answer(self, record: Record, calls: Sequence[Wire]) -> Wire:
        kept_there = record.answer_id if self._format.name == "responses" else ""
        return answer_of(self._format.name, calls, model=record.model, now=self._now, answer_id=kept_there)


def _ruling(enforced: Enforced) -> Ruling:
    if enforced.allowed:
        return Ruling(allowed=True, arguments=enforced.arguments() if enforced.changed else None)
    approval = enforced.decision.approval
    if enforced.decision.outcome is Outcome.REQUIRE_APPROVAL and approval is not None:
        message = (
            f"`{enforced.tool}` was not run: it waits for a person (approval {approval.id}, open until "
            f"{approval.expires_at}); it is made again by itself after that, so do not repeat it"
        )
        return Ruling(allowed=False, message=message)
    return Ruling(allowed=False, message=enforced.refusal)


def _with_pending(answer: Wire, records: Sequence[Record]) -> Wire:
    """The answer, with a member that lists the calls which wait for a person."""
    pending = [
        {"tool": one.tool, "call_id": one.refused.call_id, "approval": one.approval_id, "ref": record.ref}
        for record in records
        for one in record.held
    ]
    return {**answer, "aegis": {"pending": pending}} if pending else answer


async def _arriving(flow: Flow, source: AsyncIterator[bytes]) -> AsyncIterator[Iterator[bytes | Step]]:
    async for chunk in source:
        yield flow.feed(chunk)
    yield flow.end()


def _understood(parts: Iterator[bytes | Step]) -> Iterator[bytes | Step | ForeignAnswer]:
    """The parts as far as they are understood, and what was wrong with the rest."""
    try:
        yield from parts
    except ForeignAnswer as error:
        yield error


async def _beats(deciding: asyncio.Future[Any]) -> AsyncIterator[bytes]:
    """Signs of life while calls are decided; ends when they are, cancels the decision when nobody listens."""
    try:
        while not deciding.done():
            done, _ = await asyncio.wait({deciding}, timeout=ALIVE_S)
            if not done:
                yield _ALIVE
    finally:
        if not deciding.done():
            deciding.cancel()
