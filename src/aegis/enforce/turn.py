"""One request to a provider and its answer, whatever the SDK: results are observed, calls are enforced."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from aegis.core.call import ToolResult
from aegis.core.canonical import canonical, sha256
from aegis.core.reasoning import reasoning_of
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer, Steps, log
from aegis.enforce.memory import Decided, Memory
from aegis.enforce.scope import Session, current_scope, current_session
from aegis.errors import InvalidCall
from aegis.wire.model import (
    Dialect,
    Proposed,
    Ruling,
    StreamFilter,
    ToolOutput,
    WholeDialect,
    Wire,
    WireEvent,
    framed,
    put_all,
)
from aegis.wire.reasoning import ReasoningReader, may_reason
from aegis.wire.sse import SseReader, sse_bytes

_UNKNOWN: Final = "a tool result in the conversation belongs to no call decided by this process; it was not observed"
_UNREADABLE: Final = "the result was withheld: it is not valid JSON text, so it could not be checked"
_BESIDE: Final = "the result was withheld: its tool ran without a decision about what it ran with"
_UNASKED: Final = "the result was withheld: the call was refused, and must not have run"


class ProviderTurn:
    """The passage of one request and its answer through the adapter.

    `deferred` names tools (and `toolset:` families) that a runner of the SDK executes itself: they
    are enforced there, with their final arguments, and pass here.
    """

    def __init__(self, enforcer: Enforcer, memory: Memory, dialect: WholeDialect, *, deferred: frozenset[str]) -> None:
        self.enforcer = enforcer
        self.memory = memory
        self.dialect = dialect
        self.deferred = deferred
        self.session: Session | None = current_session()
        self.structured = False
        scope = current_scope()
        self._finals, self._handoffs = scope.final or {}, scope.handoffs
        self._reader = ReasoningReader()

    def amended(self, request: Wire) -> Steps[Wire]:
        """The request as the provider may see it: results observed, refused calls put back."""
        self.structured = self.dialect.structured(request)
        request = yield from self._observed(request)
        return self.dialect.put_back(request, self.memory.recall(self._name))

    def settled(self, answer: Wire) -> Steps[Wire]:
        """The answer as the agent may see it."""
        anchors = self.dialect.anchors(answer)
        calls = self.dialect.calls(answer)
        self._reader.whole(answer)
        rulings = yield from self._rulings(calls, anchors[0])
        settled = self.dialect.settle(answer, rulings, structured=self.structured)
        self.memory.learn_removals(self._name, anchors, settled.removals)
        return settled.answer

    def body(self, content: bytes) -> Steps[bytes]:
        """The bytes of an answer as the agent may see them; the same object where nothing changes."""
        try:
            answer = json.loads(content)
        except ValueError:
            return content  # the SDK cannot read a call from it either: it uses the same parser
        if not isinstance(answer, dict):
            return content
        settled = yield from self.settled(answer)
        return content if settled is answer or settled == answer else json.dumps(settled).encode()

    @property
    def _name(self) -> str:
        return "" if self.session is None else self.session.name

    def _rulings(self, calls: Sequence[Proposed], answer_id: str) -> Steps[dict[str, Ruling]]:
        rulings: dict[str, Ruling] = {}
        asked: list[Proposed] = []
        attempts: list[Attempt] = []
        reasoning = reasoning_of(self._reader.finished()) if calls else None
        for call in calls:
            if self._is_deferred(call):
                rulings[call.key] = self._deferring(call)
                self.memory.learn_reasoning(self._name, call.call_id, reasoning)
            elif call.arguments is None:
                rulings[call.key] = Ruling(allowed=False, message=call.problem)
                self.memory.learn_decision(self._name, call.call_id, Decided(decision_id="", allowed=False))
            else:
                call_id = self.memory.call_id(self._name, answer_id, call.call_id)
                asked.append(call)
                final = self._final(call.tool, call.arguments)
                handoff = call.server is None and call.tool in self._handoffs
                attempts.append(
                    Attempt(
                        tool=call.tool,
                        arguments=final,
                        server=call.server,
                        call_id=call_id,
                        handoff=handoff,
                        reasoning=reasoning,
                    )
                )
        enforced = yield from self.enforcer.enforce(attempts, self.session)
        for call, attempt, outcome in zip(asked, attempts, enforced, strict=True):
            # What is handed out is what was decided, so that it is the same call where it runs.
            rulings[call.key] = _ruling(outcome, changed=attempt.arguments != call.arguments)
            decided = Decided(
                decision_id=outcome.decision.decision_id,
                allowed=outcome.allowed,
                enforced=outcome if outcome.allowed else None,
            )
            self.memory.learn_decision(self._name, call.call_id, decided)
        return rulings

    def _deferring(self, call: Proposed) -> Ruling:
        """Let a runner's call pass. One that cannot be read passes empty, for its refusal to be its result."""
        if call.arguments is not None:
            self.memory.forget_decision(self._name, call.call_id)
            self.enforcer.open_calls.opened(self._name, call.call_id, call.tool)
            return Ruling(allowed=True)
        refused = Decided(decision_id="", allowed=False, refusal=call.problem)
        self.memory.learn_decision(self._name, call.call_id, refused)
        return Ruling(allowed=True, arguments={})

    def _final(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments with which a tool of the host would run; those that are given where that is not known."""
        final = self._finals.get(tool)
        try:
            return given if final is None else final(given)
        except Exception:
            return given  # the tool says what is wrong where it is run

    def _is_deferred(self, call: Proposed) -> bool:
        return (call.tool if call.server is None else call.server) in self.deferred

    def _observed(self, request: Wire) -> Steps[Wire]:
        """The request with every tool result as the model may see it."""
        # (1) What each result is known by, and which of them were never seen.
        found: list[tuple[ToolOutput, Decided, str]] = []
        unseen: dict[tuple[str, str], tuple[Decided, Any]] = {}
        for output in self.dialect.outputs(request):
            decided, digest = self.memory.decision(self._name, output.call_id), _digest(output.value)
            beside = self.enforcer.open_calls.closed(self._name, output.call_id)
            if beside and (decided is None or digest not in decided.results):
                # Whatever was decided, this is not what was judged under it.
                decided = Decided(decision_id="", allowed=False, told=_BESIDE)
                self.memory.learn_decision(self._name, output.call_id, decided)
            if decided is None:
                log.info(_UNKNOWN)
                continue
            found.append((output, decided, digest))
            if decided.allowed and digest and digest not in decided.results:
                unseen[decided.decision_id, digest] = (decided, output.value)
        # (2) Observe those, each once, however often the conversation repeats it.
        results = [
            # A runner's result was observed where it ran; this is what its framework made of it, or a shorter form.
            ToolResult(decision_id=key[0], result=value, further=bool(decided.results))
            for key, (decided, value) in unseen.items()
        ]
        observed = yield from self.enforcer.observe(results)
        for (key, (decided, _)), seen in zip(unseen.items(), observed, strict=True):
            self.memory.learn_result(decided, key[1], seen.changed, seen.value)
        # (3) Replace what the model may not see as it is; a result of a refused call is never shown.
        changes: list[tuple[tuple[str | int, ...], Any]] = []
        for output, decided, digest in found:
            changed, value = decided.results.get(
                digest, (True, _UNREADABLE if decided.allowed else decided.told or _UNASKED)
            )
            if changed:
                changes.append((output.path, framed(output, value)))
        return put_all(request, changes) if changes else request


class StreamedTurn(ProviderTurn):
    """The passage of a request whose answer may come as server-sent events."""

    def __init__(self, enforcer: Enforcer, memory: Memory, dialect: Dialect, *, deferred: frozenset[str]) -> None:
        super().__init__(enforcer, memory, dialect, deferred=deferred)
        self._stream = dialect.stream

    def chunks(self, source: Iterator[bytes]) -> Iterator[bytes]:
        """The bytes of a streamed answer as the agent may see them."""
        reader, gate = SseReader(), self._stream(structured=self.structured)
        for events in read_events(reader, source):
            for event in events:
                self._read(event)
                step = gate.feed(event)
                if step.events:
                    yield _bytes(step.events)
                if step.calls:
                    yield self._released(gate, self.enforcer.run(self._rulings(step.calls, gate.anchors[0])))

    async def achunks(self, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The async twin of `chunks`."""
        reader, gate = SseReader(), self._stream(structured=self.structured)
        async for events in aread_events(reader, source):
            for event in events:
                self._read(event)
                step = gate.feed(event)
                if step.events:
                    yield _bytes(step.events)
                if step.calls:
                    rulings = await self.enforcer.arun(self._rulings(step.calls, gate.anchors[0]))
                    yield self._released(gate, rulings)

    def _read(self, event: WireEvent) -> None:
        """Collect the reasoning that an event brings; one that no JSON is spells none."""
        if may_reason(event.data):
            with suppress(ValueError):
                self._reader.take(json.loads(event.data))

    def _released(self, gate: StreamFilter, rulings: Mapping[str, Ruling]) -> bytes:
        events = gate.settle(rulings)
        self.memory.learn_removals(self._name, gate.anchors, gate.removals)
        return _bytes(events)


def read_events(reader: SseReader, source: Iterator[bytes]) -> Iterator[list[WireEvent]]:
    for chunk in source:
        yield reader.feed(chunk)
    yield reader.end()


async def aread_events(reader: SseReader, source: AsyncIterator[bytes]) -> AsyncIterator[list[WireEvent]]:
    async for chunk in source:
        yield reader.feed(chunk)
    yield reader.end()


def _ruling(enforced: Enforced, *, changed: bool) -> Ruling:
    if not enforced.allowed:
        return Ruling(allowed=False, message=enforced.refusal)
    return Ruling(allowed=True, arguments=enforced.arguments() if enforced.changed or changed else None)


def _digest(value: Any) -> str:
    """By what a result is known again; empty for what is not JSON."""
    try:
        return sha256(canonical(value))
    except InvalidCall:
        return ""


def _bytes(events: Sequence[WireEvent]) -> bytes:
    return b"".join(map(sse_bytes, events))
