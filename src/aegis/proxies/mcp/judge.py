"""The messages that are more than passed on: calls, reads, lists, and the answers to them.

A call of a tool is decided before the server sees it; one that may not run is answered here, as an error of the tool.
What comes back is judged before the client sees it. Reading a resource and getting a prompt are decided and judged
alike, under the names `read_resource` and `get_prompt`: what a server hands to a model is untrusted wherever from.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.bounded import Bounded
from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical, sha256
from aegis.core.decider import Decider
from aegis.core.decision import ApprovalRef, Decision, ResultDecision
from aegis.core.outcome import Reason
from aegis.core.text import json_text, visible
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer
from aegis.enforce.scope import Session
from aegis.errors import InvalidCall
from aegis.proxies.mcp.messages import (
    Id,
    Message,
    envelope,
    id_of,
    params_of,
    rpc_error,
    tool_error,
)
from aegis.proxies.mcp.tools import ToolBook

# Calls whose server asks back before it answers (protocol 2026-07-28): one call in several rounds, decided once.
#
# The server's answer says what it wants and holds a state; the client makes the same request again with the state
# and what was asked. Such a round goes on under the decision of the first one, as long as that stands: once for
# each state, for exactly the same request, and not for long. Any other request with a state is a call like every
# call.

MAX_ROUNDS: Final = 10_000  # what a server that only asks back can make us remember
MAX_BYTES: Final = 33_554_432
ROUND_S: Final = 900.0  # a decision is of its time: what was allowed or approved long ago is decided anew
_ASKING: Final = frozenset({"resultType", "inputRequests", "requestState", "_meta"})
_ANSWERING: Final = frozenset({"inputResponses", "requestState", "_meta"})


class Round(Struct, frozen=True, kw_only=True):
    """A request that goes on under the decision of a call, with other arguments if a guard changed them."""

    decision_id: str
    call_id: str
    arguments: dict[str, Any] | None


class Rounds:
    """The rounds that are open with one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: Bounded[str, tuple[Round, float]] = Bounded(MAX_ROUNDS, MAX_BYTES)

    def asked(self, request: Message, result: object, following: Round) -> bool:
        """Whether a result asks back and holds nothing else; then the `following` round of the request is open."""
        if not isinstance(result, dict) or result.get("resultType") != "input_required" or not result.keys() <= _ASKING:
            return False
        state = result.get("requestState")
        if isinstance(state, str):
            weight = 0 if following.arguments is None else len(canonical(following.arguments))
            self._open.put(_key(request, state), (following, self._clock() + ROUND_S), weight)
        return True

    def taken(self, request: Message) -> Round | None:
        """The round that this request goes on with, which is closed by that; `None` where there is none."""
        state = params_of(request).get("requestState")
        if not isinstance(state, str):
            return None
        try:
            key = _key(request, state)
        except InvalidCall:  # what has no canonical form was never let through
            return None
        found = self._open.get(key)
        self._open.drop(key)
        return found[0] if found is not None and self._clock() < found[1] else None


def _key(request: Message, state: str) -> str:
    params = {name: value for name, value in params_of(request).items() if name not in _ANSWERING}
    return sha256(canonical([request.get("method"), params, state]))


# Asking the person at the client about a held call, by the protocol's own elicitation.
#
# Who answers must hold an approver's key: the gate checks, as everywhere, that it is not the requester who
# approves. The answer carries the digests of what was shown, so it counts for no other call and under no other
# policy.

REASON: Final = "answered at the MCP client"


class Said(Struct, frozen=True, kw_only=True):
    """What a person at a client said about an approval, bound to the digests of what they were shown."""

    approval: str
    decision: Literal["approve", "deny"]
    call_digest: str
    policy_digest: str

    def to_wire(self) -> dict[str, str]:
        """The body of the answer as the HTTP API takes it."""
        return {
            "decision": self.decision,
            "reason": REASON,
            "call_digest": self.call_digest,
            "policy_digest": self.policy_digest,
        }


Elicit = Callable[[Message], Awaitable[Message | None]]
Resolve = Callable[[Said], Awaitable[None]]

_SCHEMA: Final[Message] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "enum": ["approve", "deny"], "title": "May this call run?"}},
    "required": ["decision"],
}


class AskingDecider:
    """A decider that, while a held call waits, asks the person at the client; everything else is `inner`'s.

    `elicit` puts an elicitation to the client (`None` where it cannot), `resolve` answers an approval with the
    approver's key.
    """

    def __init__(self, inner: Decider, elicit: Elicit, resolve: Resolve):
        self._inner = inner
        self._elicit = elicit
        self._resolve = resolve

    def decide(self, call: ToolCall) -> Decision:
        return self._inner.decide(call)

    async def adecide(self, call: ToolCall) -> Decision:
        return await self._inner.adecide(call)

    def observe(self, result: ToolResult) -> ResultDecision:
        return self._inner.observe(result)

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        return await self._inner.aobserve(result)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        return self._inner.wait(call, decision, timeout)

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        # A call that would run with other arguments than these is for people who are shown those.
        if decision.approval is None or digest_of(call) != decision.call_digest:
            return await self._inner.await_decision(call, decision, timeout)
        asking = asyncio.ensure_future(self._ask(call, decision, decision.approval))
        try:
            return await self._inner.await_decision(call, decision, timeout)
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking

    def close(self) -> None:
        self._inner.close()

    async def _ask(self, call: ToolCall, decision: Decision, approval: ApprovalRef) -> None:
        named = visible(f"`{call.tool}` of `{call.server}`")
        arguments = json_text(call.arguments, pretty=True)
        text = f"{named} has to be approved ({approval.id}). It would run with:\n{arguments}"
        answer = await self._elicit({"message": text, "requestedSchema": _SCHEMA})
        if answer is None:
            return
        content = answer.get("content")
        chosen = content.get("decision") if isinstance(content, dict) else None
        if answer.get("action") == "decline":
            chosen = "deny"
        elif answer.get("action") != "accept":
            return
        if chosen == "approve" or chosen == "deny":
            await self._resolve(
                Said(
                    approval=approval.id,
                    decision=chosen,
                    call_digest=decision.call_digest,
                    policy_digest=decision.policy_digest,
                )
            )


def digest_of(call: ToolCall) -> str:
    """The digest of exactly this call."""
    return call_digest(server=call.server, tool=call.tool, arguments=canonical(call.arguments))


CALL: Final = "tools/call"
LIST: Final = "tools/list"
_READS: Final = {"resources/read": ("read_resource", "uri"), "prompts/get": ("get_prompt", "name")}
_GREETINGS: Final = frozenset({"initialize", "server/discover"})
_TASK: Final = "tasks/result"
JUDGED: Final = frozenset({CALL, LIST, _TASK, *_READS, *_GREETINGS})
CHANGED: Final = "notifications/tools/list_changed"
MAX_PAGES: Final = 100  # a server that always has another page would keep a call waiting for ever
MAX_TASKS: Final = 10_000

Ask = Callable[[str, Message], Awaitable[Message]]
Refused = Callable[[str, Reason], Awaitable[None]]
"""Puts on the record that a call of this tool was refused for what the tool says about itself."""


class McpVerdict(Struct, frozen=True, kw_only=True):
    """What becomes of a request: it goes on to the server, or it is answered here."""

    forward: Message | None = None
    reply: Message | None = None


class _Asked(Struct, frozen=True, kw_only=True):
    """A request whose answer is judged."""

    request: Message
    decided: Round | None = None


@dataclass(kw_only=True)
class McpJudge:
    """Judges the traffic with one server; `ask` puts a request of our own to it.

    `session` makes the calls of a connection one session; `refused` hears of calls that are refused undecided; `rounds`
    are those that are open with the server. Safe for one event loop.
    """

    server: str
    enforcer: Enforcer
    tools: ToolBook
    ask: Ask
    session: Session | None = None
    refused: Refused | None = None
    rounds: Rounds = field(default_factory=Rounds)
    _waiting: dict[Id, _Asked] = field(default_factory=dict)
    _tasks: dict[str, Round] = field(default_factory=dict)

    async def request(self, message: Message) -> McpVerdict:
        """What becomes of a request of the client."""
        method = message.get("method")
        if method == CALL:
            return await self._call(message)
        if method in _READS:
            return await self._read(message, *_READS[str(method)])
        if method == _TASK:
            return self._task(message)
        self._expect(message)
        return McpVerdict(forward=message)

    async def answer(self, message: Message) -> Message:
        """An answer of the server as the client may see it."""
        request_id = id_of(message)
        asked = None if request_id is None else self._waiting.pop(request_id, None)
        if asked is None:
            return message
        method = asked.request.get("method")
        result = message.get("result")
        if method == LIST and isinstance(result, dict):
            shown = self.tools.shown(result)
            self.tools.stale = self.tools.stale and "nextCursor" in result
            return message if shown is result else {**message, "result": shown}
        if method in _GREETINGS and isinstance(result, dict):
            return {**message, "result": self.tools.instructions(result)}
        if asked.decided is None:
            return message
        return await self._seen(asked.request, asked.decided, message)

    def expects(self, message: Message) -> bool:
        """Whether this answers a request whose answer is judged."""
        request_id = id_of(message)
        return request_id is not None and request_id in self._waiting

    def forget(self, request_id: Id) -> None:
        """Nobody waits for this answer any more."""
        self._waiting.pop(request_id, None)

    def notified(self, message: Message) -> None:
        """A notification of the server."""
        if message.get("method") == CHANGED:
            self.tools.stale = True

    async def _call(self, message: Message) -> McpVerdict:
        params = params_of(message)
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not name or not isinstance(arguments if arguments is not None else {}, dict):
            self._expect(message)
            return McpVerdict(forward=message)  # the server says best what is wrong with it: nothing can run
        if self.tools.stale:
            await self._look(message)
        refusal = self.tools.refusal(name)
        if refusal is not None:
            reason, why = refusal
            if self.refused is not None:
                await self.refused(name, reason)
            return McpVerdict(reply=tool_error(message, f"`{name}` was not run: {why} (reason: {reason.value})"))
        decided = await self._decided(message, name, arguments or {})
        if isinstance(decided, Enforced):
            return McpVerdict(reply=tool_error(message, _refusal(decided)))
        self._expect(message, decided)
        if decided.arguments is not None:
            message = {**message, "params": {**params, "arguments": decided.arguments}}
        return McpVerdict(forward=message)

    async def _read(self, message: Message, tool: str, member: str) -> McpVerdict:
        params = params_of(message)
        arguments = {name: value for name, value in params.items() if name in (member, "arguments")}
        decided = await self._decided(message, tool, arguments, as_asked=True)
        if isinstance(decided, Enforced):
            return McpVerdict(reply=rpc_error(id_of(message), _refusal(decided)))
        self._expect(message, decided)
        return McpVerdict(forward=message)

    def _task(self, message: Message) -> McpVerdict:
        """What a call comes to that the server runs in the background (protocol 2025-11-25)."""
        decided = self._tasks.get(str(params_of(message).get("taskId")))
        if decided is None:
            text = "the result was withheld: nobody decided the call that this task belongs to"
            return McpVerdict(reply=rpc_error(id_of(message), text))
        self._expect(message, decided)
        return McpVerdict(forward=message)

    async def _decided(
        self, message: Message, tool: str, arguments: Message, *, as_asked: bool = False
    ) -> Round | Enforced:
        """Under what the request goes on, or what refuses it; `as_asked` asks for its own arguments or none."""
        known = self.rounds.taken(message)
        enforcer, session = self.enforcer, self.session
        # Ids of JSON-RPC are counted anew in every connection, so the call gets one of its own.
        attempt = Attempt(
            tool=tool, server=self.server, arguments=arguments, call_id=None if known is None else known.call_id
        )
        if known is None:
            (enforced,) = await enforcer.arun(enforcer.enforce([attempt], session))
        else:
            again = await enforcer.arun(enforcer.again(attempt, known.decision_id, session))
            if again is None:
                return known
            enforced = again
        if not enforced.allowed or (as_asked and enforced.changed):
            return enforced
        decision = enforced.decision
        changed = enforced.arguments() if enforced.changed else None
        return Round(decision_id=decision.decision_id, call_id=decision.call_id, arguments=changed)

    def _expect(self, message: Message, decided: Round | None = None) -> None:
        self._waiting[message["id"]] = _Asked(request=message, decided=decided)

    async def _seen(self, request: Message, decided: Round, message: Message) -> Message:
        member = "result" if "result" in message else "error"
        value, method = message.get(member), request.get("method")
        task = value.get("task") if isinstance(value, dict) else None
        if isinstance(task, dict) and isinstance(task.get("taskId"), str) and method == CALL:
            while len(self._tasks) >= MAX_TASKS:
                self._tasks.pop(next(iter(self._tasks)))
            self._tasks[task["taskId"]] = decided
            return message
        if method != _TASK and self.rounds.asked(request, value, decided):
            return message  # a question to the client, as elicitation and sampling are in the older protocol
        given = ToolResult(decision_id=decided.decision_id, result=value)
        (observed,) = await self.enforcer.arun(self.enforcer.observe([given]))
        if observed.withheld:
            text = str(observed.value)
            if member == "error" or method in _READS:
                return rpc_error(id_of(message), text)
            return tool_error(request, text)
        return {**message, member: observed.value} if observed.changed else message

    async def _look(self, message: Message) -> None:
        """Have the server announce its tools, where it changed them or was never asked."""
        params: Message = envelope(message)
        for _ in range(MAX_PAGES):
            answer = await self.ask(LIST, params)
            result = answer.get("result")
            if not isinstance(result, dict):
                return  # a server without tools has nothing that could have changed
            self.tools.shown(result)
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                self.tools.stale = False
                return
            params = {**params, "cursor": cursor}
        raise InvalidCall("the server announces more tools than can be read")


def _refusal(enforced: Enforced) -> str:
    approval = enforced.decision.approval
    if approval is not None and not enforced.decision.allowed:
        return (
            f"`{enforced.tool}` was not run: a person has to approve it (approval {approval.id}, open until "
            f"{approval.expires_at})"
        )
    return enforced.refusal
