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
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.call import ToolResult
from aegis.core.canonical import call_digest, canonical, sha256
from aegis.core.outcome import Outcome
from aegis.core.ports import Document
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer, log
from aegis.enforce.scope import Session
from aegis.enforce.words import words_in
from aegis.errors import ForeignAnswer, InvalidCall
from aegis.proxies.models.book import Book, BookScope, IssuedCall, Kind, Record, TakenOut
from aegis.proxies.models.formats import Format
from aegis.proxies.models.reading import Reading, ReasoningWatch
from aegis.proxies.models.synthesis import FoundHeld, Resumptions, answer_of
from aegis.wire.flow import WireFlow
from aegis.wire.model import (
    Proposed,
    ProxyDialect,
    Removal,
    Ruling,
    Step,
    Wire,
    call_identities,
    framed,
    new_ref,
    put_all,
)
from aegis.wire.sse import Framing

# What a request claims to have happened before, held against the book: nothing that nobody decided gets through.
#
# (1) forms of calls that have no id are refused: nothing could be looked up for them
# (2) every call of the conversation was let through here, with these very arguments
# (3) every result belongs to such a call
# (4) every result is judged before the model sees it; what may not be seen is replaced

Unknown = Literal["refuse", "judge"]
_LEGACY: Final = ("functions", "function_call")


class History:
    """Checks the conversations of one scope."""

    def __init__(
        self,
        book: Book,
        enforcer: Enforcer,
        dialect: ProxyDialect,
        scope: BookScope,
        session: Session | None,
        unknown: Unknown,
    ):
        self._book = book
        self._enforcer = enforcer
        self._dialect = dialect
        self._scope = scope
        self._session = session
        self._unknown = unknown

    async def checked(self, request: Wire) -> Wire:
        """The request as a model may see it; raises `InvalidCall` (400, 403) for one that claims too much."""
        # (1)
        if any(request.get(name) for name in _LEGACY):
            raise _refused("the legacy `functions` API is not proxied; use `tools`", "unsupported", status=400)
        # (2)
        known: defaultdict[str, deque[IssuedCall]] = defaultdict(deque)
        strange: list[Proposed] = []
        for call in self._dialect.issued(request):
            found = self._look_up(call)
            if found is None:
                strange.append(call)
            else:
                known[call.call_id].append(found)
        for call, issued in zip(strange, await self._judged(strange), strict=True):
            known[call.call_id].append(issued)
        # (3)
        for call_id in self._dialect.answered(request):
            issued_to = known.get(call_id)
            if not issued_to:
                stored = self._book.issued(self._scope, call_id)
                if stored is None or not stored.allowed:
                    raise _refused("the request holds a result of a call that was never let through", "unknown_result")
                known[call_id].append(stored)
        # (4)
        return await self._observed(request, known)

    def _look_up(self, call: Proposed) -> IssuedCall | None:
        if call.arguments is None or not call.call_id:
            return None
        try:
            digest = call_digest(server=call.server, tool=call.tool, arguments=canonical(call.arguments))
        except InvalidCall:
            return None
        for call_id in dict.fromkeys((call.call_id, call.unnamed)):
            found = self._book.issued(self._scope, call_id, digest)
            if found is not None and found.allowed:
                return found
        return None

    async def _judged(self, calls: list[Proposed]) -> list[IssuedCall]:
        """Calls that nobody decided, judged as if the model had just made them; raises where one may not run."""
        if not calls:
            return []
        if self._unknown == "refuse":
            raise _refused(
                "the request holds a tool call that was not let through here, or not with these arguments",
                "unknown_call",
            )
        attempts: list[Attempt] = []
        for call in calls:
            if call.arguments is None or not call.call_id:
                raise _refused("the request holds a tool call that cannot be read", "unknown_call")
            attempts.append(
                Attempt(tool=call.tool, server=call.server, arguments=call.arguments, call_id=f"history.{call.call_id}")
            )
        enforced = await self._enforcer.arun(self._enforcer.enforce(attempts, self._session))
        documents: list[Document] = []
        for call, one in zip(calls, enforced, strict=True):
            if not one.allowed or one.changed:
                raise _refused("the request holds a tool call that would not be let through", "unknown_call")
            decision = one.decision
            documents += self._book.alias(self._scope, call.call_id, decision.call_digest, decision.call_id)
        await self._book.write(documents)
        return [IssuedCall(decision_id=one.decision.decision_id, allowed=True) for one in enforced]

    async def _observed(self, request: Wire, known: dict[str, deque[IssuedCall]]) -> Wire:
        found: list[tuple[Any, str, str]] = []
        unseen: dict[tuple[str, str], Any] = {}
        for output in self._dialect.outputs(request):
            calls = known[output.call_id]
            # Servers that count ids anew repeat them: the n-th result belongs to the n-th call.
            issued = calls.popleft() if len(calls) > 1 else calls[0]
            try:
                digest = sha256(canonical(output.value))
            except InvalidCall as error:
                raise _refused("the request holds a result that is not valid JSON", "malformed", status=400) from error
            found.append((output, issued.decision_id, digest))
            if self._book.seen(issued.decision_id, digest) is None:
                unseen[issued.decision_id, digest] = output.value
        results = [ToolResult(decision_id=decision_id, result=value) for (decision_id, _), value in unseen.items()]
        observed = await self._enforcer.arun(self._enforcer.observe(results))
        now: dict[tuple[str, str], tuple[bool, Any]] = {}
        for key, seen in zip(unseen, observed, strict=True):
            now[key] = (seen.changed, seen.value)
            if seen.decision.receipt is not None:  # what could not be recorded is asked again the next time
                self._book.learn(*key, seen.changed, seen.value)
        changes = []
        for output, decision_id, digest in found:
            changed, value = now.get((decision_id, digest)) or self._book.seen(decision_id, digest) or (True, _GONE)
            if changed:
                changes.append((output.path, framed(output, value)))
        return put_all(request, changes) if changes else request


_GONE: Final = "the result was withheld: it could not be checked"


def _refused(message: str, code: str, *, status: int = 403) -> InvalidCall:
    log.warning("a request was refused: %s", message)
    return InvalidCall(message, code=code, hint="start the conversation anew through this gateway", status=status)


ALIVE_S: Final = 10.0  # a stream that waits for a person says so to whatever closes silent connections


class Opened(Struct, frozen=True, kw_only=True):
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
        scope: BookScope,
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
        self._watch = ReasoningWatch(book, scope)

    @property
    def framing(self) -> Framing:
        """How the provider's stream is written, and the client's."""
        return self._format.framing

    async def opened(self, request: Wire, model: str) -> Opened:
        """The request as the provider may see it, or the answer to it; raises `InvalidCall` for a forged one."""
        self._structured = self._dialect.structured(request)
        self._model = model
        request = await self._checked(request)  # (1)
        self._watch.heard(request)
        await self._heard(request)
        # (2)
        found = FoundHeld(self._book, self._scope)
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
            restored = self._dialect.put_back(request, FoundHeld(self._book, self._scope))
        return Opened(request=restored)

    async def _heard(self, request: Wire) -> None:
        """Record what the user says in the request, each text once; results and documents in it are no words."""
        if self._session is None:
            return
        place = self._scope.key("said")
        said = {sha256(text.encode(errors="replace")): text for text in words_in(self._dialect, request)}
        fresh = {digest: text for digest, text in said.items() if self._book.seen(place, digest) is None}
        if fresh:
            results = [output.value for output in self._dialect.outputs(request)]
            if await self._enforcer.arun(self._enforcer.say(fresh.values(), self._session, results)):
                for digest in fresh:
                    self._book.learn(place, digest, False, None)

    async def counted(self, request: Wire) -> Wire:
        """The request as it would be sent for an answer, where only its size is asked for: nothing is given out or
        resumed by that. Raises as `opened` does."""
        return self._dialect.put_back(await self._checked(request), FoundHeld(self._book, self._scope))

    async def settled(self, answer: Wire) -> Wire:
        """The answer as the client may see it."""
        anchors = self._dialect.anchors(answer)
        calls = self._dialect.calls(answer)
        self._watch.whole(answer)
        rulings, ruled = await self._ruled(calls, anchors[0])
        settled = self._dialect.settle(answer, rulings, structured=self._structured)
        documents, records = self._noted(anchors, settled.removals, ruled)
        await self._book.write([*documents, *self._watch.documents()])
        return _with_pending(settled.answer, records)

    async def events(self, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The bytes of a streamed answer as the client may see them; raises `ForeignAnswer` for a malformed one."""
        gate = self._dialect.stream(structured=self._structured)
        framing = self._format.framing
        flow = WireFlow(gate, framing, self._watch.take)
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
                ready += map(framing.encode, part.events)
                documents: list[Document] = [*self._watch.documents()]
                if part.calls:
                    if ready:
                        yield b"".join(ready)
                    deciding = asyncio.ensure_future(self._ruled(part.calls, gate.anchors[0] if gate.anchors else ""))
                    async for _ in _beats(deciding):
                        if framing.alive:
                            yield framing.alive
                    rulings, made = await deciding
                    ruled += made
                    documents += self._aliases(made)
                    ready = [framing.encode(event) for event in gate.settle(rulings)]
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
        return await self._reading.judged(request, self._dialect.supplied(request))

    async def _ruled(self, calls: Sequence[Proposed], answer_id: str) -> tuple[dict[str, Ruling], list[_Ruled]]:
        asked = [call for call in calls if call.arguments is not None]
        reasoning = self._watch.reasoning() if asked else None
        attempts = [
            Attempt(
                tool=call.tool,
                arguments=call.arguments or {},
                server=call.server,
                call_id=self._book.gate_id(self._scope, answer_id, call.call_id),
                reasoning=reasoning,
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
        allowed = [(call, one) for call, one in ruled if one is not None and one.allowed]
        # A call that has no id of its own is known by its arguments: those with which it goes on.
        nameless = [(call.tool, one.arguments()) for call, one in allowed if call.derived]
        derived = iter(call_identities(nameless))
        return [
            document
            for call, one in allowed
            for document in self._book.alias(
                self._scope,
                next(derived) if call.derived else call.call_id,
                one.decision.call_digest,
                one.decision.call_id,
            )
        ]

    def _record(self, removal: Removal, anchors: Sequence[str], waiting: list[_Ruled]) -> Record:
        taken: list[TakenOut] = []
        for refused in removal.refused:
            # Both lists are in the order of the answer; what lies between was let through.
            while waiting and waiting[0][0].call_id != refused.call_id:
                waiting.pop(0)
            call, one = waiting.pop(0) if waiting else (None, None)
            held = one is not None and one.decision.outcome is Outcome.REQUIRE_APPROVAL
            taken.append(
                TakenOut(
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

    async def _given_out(self, record: Record, given: Sequence[tuple[TakenOut, Enforced]]) -> Wire:
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


async def _arriving(flow: WireFlow, source: AsyncIterator[bytes]) -> AsyncIterator[Iterator[bytes | Step]]:
    async for chunk in source:
        yield flow.feed(chunk)
    yield flow.end()


def _understood(parts: Iterator[bytes | Step]) -> Iterator[bytes | Step | ForeignAnswer]:
    """The parts as far as they are understood, and what was wrong with the rest."""
    try:
        yield from parts
    except ForeignAnswer as error:
        yield error


async def _beats(deciding: asyncio.Future[Any]) -> AsyncIterator[None]:
    """Signs of life while calls are decided; ends when they are, cancels the decision when nobody listens."""
    try:
        while not deciding.done():
            done, _ = await asyncio.wait({deciding}, timeout=ALIVE_S)
            if not done:
                yield
    finally:
        if not deciding.done():
            deciding.cancel()
