"""The gateway as a `Decider`: what it does not plainly allow, this side refuses."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import (
    Decision,
    DeclaredPlan,
    EndedSession,
    OpenedSession,
    ParentSession,
    ResultDecision,
    SaidTurn,
)
from aegis.core.outcome import Outcome, Reason
from aegis.errors import GatewayUnavailable, InvalidCall
from aegis.sdk.client import hold as permits
from aegis.sdk.client import hold as sessions
from aegis.sdk.client import wire
from aegis.sdk.client.endpoint import endpoint
from aegis.sdk.client.hold import Hold
from aegis.sdk.client.http1 import HttpAnswer, check_header_value
from aegis.sdk.client.streaming import Provenance, StreamTalk, astream, stream
from aegis.sdk.client.transport import AsyncTransport, SyncTransport, TransportError
from aegis.sdk.client.wire import AskedCall

if TYPE_CHECKING:
    from aegis.missions.holder import Holder, Provers

DEFAULT_URL: Final = "http://127.0.0.1:8787"  # where `aegis serve` listens
DEFAULT_TIMEOUT: Final = 30.0
Framing = Literal["plain", "sse", "lines"]

_MAY_RUN: Final = frozenset({Outcome.ALLOW, Outcome.SANITIZE, Outcome.BLOCK})
_HELD: Final = frozenset({Outcome.REQUIRE_APPROVAL})
_REFUSED: Final = frozenset({Outcome.BLOCK})


class Client:
    """A `Decider` over HTTP that fails closed.

    Every transport error, time-out, 409, 429, 5xx, redirect and every answer that the contract does
    not allow for the very call is a block decision; any other 4xx raises `InvalidCall`. Safe to
    share between threads, event loops and forked processes.

    Args:
        url: `http://HOST:PORT`, `https://HOST:PORT` or `unix:///path`; by default `AEGIS_URL`, else this machine's
            port 8787.
        api_key: the agent's key (by default `AEGIS_API_KEY`); sent as a bearer credential, and only to this gateway.
        agent: the agent's name, for calls that name none.
        uds: path of the gateway's Unix socket; used in place of TCP.
        timeout: seconds that one exchange may take as a whole.
        gateway_uid: the user that must hold the Unix socket; by default the user of this process.
        ca: file of the certificates that may sign the gateway's; by default those of the system.
        home: where this agent's holder key lives; by default `AEGIS_HOME` or `~/.aegis`.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        agent: str | None = None,
        uds: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        gateway_uid: int | None = None,
        ca: str | None = None,
        home: str | Path | None = None,
    ):
        if not 0 < timeout < float("inf"):
            raise InvalidCall("`timeout` must be a positive number of seconds")
        url = (os.environ.get("AEGIS_URL") or DEFAULT_URL) if url is None else url
        api_key = os.environ.get("AEGIS_API_KEY", "").strip() if api_key is None else api_key
        try:
            self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
            check_header_value(api_key or "-")
        except ValueError as error:
            raise InvalidCall("`api_key` holds something other than visible ASCII") from error
        self._agent = agent
        self._timeout = float(timeout)
        self._endpoint = endpoint(url, uds=uds, uid=gateway_uid, ca=ca)
        self._sync = SyncTransport(self._endpoint)
        self._async = AsyncTransport(self._endpoint)
        self._home = None if home is None else Path(home)
        self._provers: Provers | None = None  # made with the first session: what proves is loaded with it

    @property
    def authenticated(self) -> bool:
        """Whether every connection proves that its other end is the gateway (TLS, or the socket's owner)."""
        return self._endpoint.authenticated

    def decide(self, call: ToolCall) -> Decision:
        """The gateway's decision; raises `InvalidCall` for misuse alone."""
        asked = self._ask(call)
        try:
            answer = self._sync.request("POST", "/v1/decisions", self._headers, asked.body, self._timeout)
        except TransportError:
            return wire.blocked(asked, Reason.UNAVAILABLE)
        return _decided(asked, answer)

    async def adecide(self, call: ToolCall) -> Decision:
        """The gateway's decision; raises `InvalidCall` for misuse alone."""
        asked = self._ask(call)
        try:
            answer = await self._async.request("POST", "/v1/decisions", self._headers, asked.body, self._timeout)
        except TransportError:
            return wire.blocked(asked, Reason.UNAVAILABLE)
        return _decided(asked, answer)

    def observe(self, result: ToolResult) -> ResultDecision:
        """The gateway's decision on a result; raises `InvalidCall` for misuse alone."""
        body = wire.result_body(result)
        try:
            answer = self._sync.request("POST", "/v1/results", self._headers, body, self._timeout)
        except TransportError:
            return wire.withheld(Reason.UNAVAILABLE)
        return _observed(answer)

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        """The gateway's decision on a result; raises `InvalidCall` for misuse alone."""
        body = wire.result_body(result)
        try:
            answer = await self._async.request("POST", "/v1/results", self._headers, body, self._timeout)
        except TransportError:
            return wire.withheld(Reason.UNAVAILABLE)
        return _observed(answer)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        """The decision that a held call comes to, asked for again under the same call id.

        Waits at most `timeout` seconds (without one: until the approval is resolved or the gateway
        stays away) and gives back a decision that does not allow when they are over.
        """
        hold = Hold(call=call, decision=decision, timeout=timeout, exchange_timeout=self._timeout)
        while (step := hold.next()) is not None:
            if step.target is None:
                hold.decided(self.decide(hold.call))
                continue
            step.pause()
            try:
                hold.answered(self._sync.request("GET", step.target, self._headers, None, step.timeout))
            except TransportError:
                hold.unanswered()
        return hold.decision

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        """The async twin of `wait`; cancelling it leaves the approval pending."""
        hold = Hold(call=call, decision=decision, timeout=timeout, exchange_timeout=self._timeout)
        while (step := hold.next()) is not None:
            if step.target is None:
                hold.decided(await self.adecide(hold.call))
                continue
            await step.apause()
            try:
                hold.answered(await self._async.request("GET", step.target, self._headers, None, step.timeout))
            except TransportError:
                hold.unanswered()
        return hold.decision

    def open_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        mounts: Sequence[str] = (),
        owner: str = "",
        turns: Sequence[str] = (),
        parent: ParentSession | None = None,
    ) -> OpenedSession:
        """Open `session` with the task that the host trusts, and under a mission where one is named.

        Where the mission names a holder key, possession is proved here, and from then on with every call
        of the session; `tools` are what the host offers the agent. The same words again find the same
        session. Raises `InvalidCall` where it is refused and `GatewayUnavailable` where nobody can say.
        """
        steps = self._opening(session, task, mission, tools, mounts, owner, turns, parent)
        try:
            post = next(steps)
            while True:
                try:
                    answer = self._sync.request("POST", post.target, self._headers, post.body, self._timeout)
                except TransportError as error:
                    raise GatewayUnavailable("the gateway did not answer about the session") from error
                post = steps.send(answer)
        except StopIteration as stop:
            opened: OpenedSession = stop.value
            return opened

    async def aopen_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        mounts: Sequence[str] = (),
        owner: str = "",
        turns: Sequence[str] = (),
        parent: ParentSession | None = None,
    ) -> OpenedSession:
        """The async twin of `open_session`."""
        steps = self._opening(session, task, mission, tools, mounts, owner, turns, parent)
        try:
            post = next(steps)
            while True:
                try:
                    answer = await self._async.request("POST", post.target, self._headers, post.body, self._timeout)
                except TransportError as error:
                    raise GatewayUnavailable("the gateway did not answer about the session") from error
                post = steps.send(answer)
        except StopIteration as stop:
            opened: OpenedSession = stop.value
            return opened

    def evaluate_streaming(
        self,
        decision_id: str,
        chunks: Iterable[bytes | str],
        *,
        framing: Framing = "plain",
        provenance: Provenance | None = None,
    ) -> Iterator[bytes]:
        """What of a streamed result may be used, while it arrives; raises `StreamCut` where it may not.

        `framing` says what the chunks hold: plain bytes, server-sent events (`sse`) or lines of JSON (`lines`);
        `provenance` gives the tool's signature over the whole, and is asked once the last chunk came. The source of
        the chunks runs in a thread of its own, so that what is held back is given in time though no chunk comes.
        """
        return stream(self._sync, self._talk(decision_id, framing), chunks, self._timeout, provenance)

    def aevaluate_streaming(
        self,
        decision_id: str,
        chunks: AsyncIterable[bytes | str],
        *,
        framing: Framing = "plain",
        provenance: Provenance | None = None,
    ) -> AsyncIterator[bytes]:
        """The async twin of `evaluate_streaming`; what is held back is given in time though no chunk comes."""
        return astream(self._async, self._talk(decision_id, framing), chunks, self._timeout, provenance)

    def redeem(self, permit: str, *, tool: str, arguments: dict[str, Any], server: str | None = None) -> str:
        """Use up a permit for exactly this call, at the gateway; raises `PermitInvalid` for anything but its yes."""
        body = permits.body_of(permit, tool=tool, arguments=arguments, server=server)
        try:
            answer = self._sync.request("POST", permits.TARGET, self._headers, body, self._timeout)
        except TransportError as error:
            raise permits.unavailable() from error
        return permits.read_answer(answer)

    async def aredeem(self, permit: str, *, tool: str, arguments: dict[str, Any], server: str | None = None) -> str:
        """The async twin of `redeem`."""
        body = permits.body_of(permit, tool=tool, arguments=arguments, server=server)
        try:
            answer = await self._async.request("POST", permits.TARGET, self._headers, body, self._timeout)
        except TransportError as error:
            raise permits.unavailable() from error
        return permits.read_answer(answer)

    def close(self) -> None:
        """Close the idle connections; the client opens new ones if it is used again."""
        self._sync.close()
        self._async.close()

    def _ask(self, call: ToolCall) -> AskedCall:
        if self._provers is not None:
            call = self._provers.prove(call)
        # The id exists before anything is sent: it is what makes a repetition harmless.
        return wire.ask(call, call.call_id or secrets.token_hex(16), self._agent)

    def _talk(self, decision_id: str, framing: Framing) -> StreamTalk:
        return StreamTalk(decision_id, framing, host=self._endpoint.host_header, headers=self._headers)

    def add_turn(self, session: str, text: str, *, turn: int | None = None, documents: Sequence[str] = ()) -> SaidTurn:
        """Record what the user said in `session`, which is opened where it is not open; `turn` is its number.

        `documents` are what the user pasted: they count as read and untrusted. The same turn with the same text is
        found. Raises `InvalidCall` where it is refused and `GatewayUnavailable` where nobody can say.
        """
        return sessions.read_turn(self._told(sessions.turn_of(session, text, turn=turn, documents=documents)))

    async def aadd_turn(
        self, session: str, text: str, *, turn: int | None = None, documents: Sequence[str] = ()
    ) -> SaidTurn:
        """The async twin of `add_turn`."""
        return sessions.read_turn(await self._atold(sessions.turn_of(session, text, turn=turn, documents=documents)))

    def declare_plan(self, session: str, plan: dict[str, Any]) -> DeclaredPlan:
        """Declare what `session` is about to do: `steps`, each a `tool` with `arguments`, `effects` and `times`.

        With `ordered` each follows those before it. A plan that lets more through than the one in force waits for a
        person. Raises `InvalidCall` where it is refused and `GatewayUnavailable` where nobody can say.
        """
        return sessions.read_plan(self._told(sessions.plan_of(session, plan)))

    async def adeclare_plan(self, session: str, plan: dict[str, Any]) -> DeclaredPlan:
        """The async twin of `declare_plan`."""
        return sessions.read_plan(await self._atold(sessions.plan_of(session, plan)))

    def end_session(self, session: str) -> EndedSession:
        """End `session`: nothing is said or called in it any more, and what waits or was granted in it ends.

        Raises `InvalidCall` for a session that nobody knows and `GatewayUnavailable` where nobody can say.
        """
        return sessions.read_end(self._told(sessions.end_of(session)))

    async def aend_session(self, session: str) -> EndedSession:
        """The async twin of `end_session`."""
        return sessions.read_end(await self._atold(sessions.end_of(session)))

    def _told(self, post: sessions.Post) -> HttpAnswer:
        """The answer to what is told of a session; raises `GatewayUnavailable` where there is none."""
        try:
            return self._sync.request("POST", post.target, self._headers, post.body, self._timeout)
        except TransportError as error:
            raise sessions.unheard() from error

    async def _atold(self, post: sessions.Post) -> HttpAnswer:
        """The async twin of `_told`."""
        try:
            return await self._async.request("POST", post.target, self._headers, post.body, self._timeout)
        except TransportError as error:
            raise sessions.unheard() from error

    def _opening(
        self,
        session: str,
        task: str,
        mission: str | None,
        tools: Sequence[Any] | None,
        mounts: Sequence[str],
        owner: str,
        turns: Sequence[str],
        parent: ParentSession | None,
    ) -> sessions.Steps:
        if self._provers is None:
            from aegis.missions.holder import Provers

            self._provers = Provers()
        return sessions.opening(
            session,
            task=task,
            mission=mission,
            tools=tools,
            mounts=mounts,
            owner=owner,
            turns=turns,
            parent=parent,
            holder=self._holder,
            provers=self._provers,
        )

    def _holder(self) -> Holder:
        from aegis.missions.holder import Holder, holder_folder

        if self._agent is None:
            raise InvalidCall("the mission names a holder key, which is kept by the agent's name: say `agent`")
        return Holder(holder_folder(self._home), self._agent)


def _decided(asked: AskedCall, answer: HttpAnswer) -> Decision:
    """What an answer means for the call; anything unknown is a refusal."""
    status = answer.status
    try:
        if status == 200:
            return wire.read_decision(answer.body, asked, _MAY_RUN)
        if status == 202:
            return wire.read_decision(answer.body, asked, _HELD)
    except wire.BadAnswer:
        return wire.blocked(asked, Reason.UNAVAILABLE)
    wait = wire.retry_after(answer.headers.get("retry-after"))
    if status == 429:
        return _refusal(asked, answer, Reason.RATE_LIMITED, wait)
    if status == 409:
        return _refusal(asked, answer, Reason.CONFLICT, wait)
    if 400 <= status < 500:
        raise wire.read_error(answer.body, status)
    return _refusal(asked, answer, Reason.UNAVAILABLE, wait)


def _refusal(asked: AskedCall, answer: HttpAnswer, reason: Reason, wait: int | None) -> Decision:
    """The block decision in the body where there is one, and otherwise one made here."""
    try:
        return wire.with_retry(wire.read_decision(answer.body, asked, _REFUSED), wait)
    except wire.BadAnswer:
        return wire.blocked(asked, reason, wait=wait)


def _observed(answer: HttpAnswer) -> ResultDecision:
    if answer.status == 200:
        try:
            return wire.read_result(answer.body)
        except wire.BadAnswer:
            return wire.withheld(Reason.UNAVAILABLE)
    if answer.status == 429:
        return wire.withheld(Reason.RATE_LIMITED)
    if answer.status == 409:
        return wire.withheld(Reason.CONFLICT)
    if 400 <= answer.status < 500:
        raise wire.read_error(answer.body, answer.status)
    return wire.withheld(Reason.UNAVAILABLE)
