"""One request to an MCP server over HTTP and its answer, judged on both ways.

A question to the person at the client goes out before the answer, on the same stream of events.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers

from aegis.approvals.answering import Answer
from aegis.core.addresses import is_loopback
from aegis.core.bounded import Bounded
from aegis.core.principal import Principal
from aegis.errors import AegisError, ForeignAnswer, InvalidCall
from aegis.outbound.client import Streamed
from aegis.proxies.mcp.judge import JUDGED, LIST, REASON, McpJudge, McpVerdict, Said
from aegis.proxies.mcp.messages import (
    BATCHING,
    Id,
    Message,
    asked_of,
    id_of,
    is_answer,
    is_batch,
    is_request,
    params_of,
    read_messages,
    rpc_error,
    written,
)
from aegis.proxies.mcp.remote import Upstream, Upstreams
from aegis.server.admission import RESOLVE, permit
from aegis.server.services import Services
from aegis.wire.model import WireEvent
from aegis.wire.sse import SseReader, sse_bytes

# Pages that reach an MCP endpoint under a name that was pointed at this machine (DNS rebinding).
#
# The protocol has servers look at `Origin` on every connection and answer 403 where it is not theirs (2025-11-25,
# transports, security warning). Programs send none. A page is let in where no other one can be: on this machine,
# under a name of this machine, or at the gateway's own address over TLS, whose certificate no other name gets past.


def check_page(headers: Headers, scheme: str) -> None:
    """Guarantee that no page of elsewhere sent this request; raises `InvalidCall` (403)."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if origins and not _is_own(origins, hosts, scheme):
        raise InvalidCall("pages of other origins reach no MCP server here", code="cross_origin", status=403)


def _is_own(origins: Sequence[str], hosts: Sequence[str], scheme: str) -> bool:
    if len(origins) != 1 or len(hosts) != 1:
        return False
    try:
        page, host = urlsplit(origins[0]), urlsplit(f"//{hosts[0]}")
        if _is_here(page) and _is_here(host):
            return True
        return page.scheme == scheme == "https" and page.netloc.lower() == host.netloc.lower() != ""
    except ValueError:
        return False


def _is_here(parts: SplitResult) -> bool:
    """Whether the name means this machine in every resolver (RFC 6761, 6.3)."""
    return is_loopback((parts.hostname or "").removesuffix("."))


# People at MCP clients over HTTP, asked about a held call while it waits, by the protocol's own elicitation.
#
# A question goes out on the stream that answers the call; the answer comes in with a request of its own. It counts
# as the approver's whose key came with the call (`aegis-approver-key`), by the gate's rules: nobody approves for
# themselves.

APPROVER: Final = "aegis-approver-key"
MAX_CLIENTS: Final = 10_000
Where = tuple[str, str, str]
"""One session of one client: principal, server, id of the session."""


class People:
    """Which clients can show a question, and the questions that wait."""

    def __init__(self, services: Services):
        self._services = services
        self._able: Bounded[Where, bool] = Bounded(MAX_CLIENTS, MAX_CLIENTS)
        self._waiting: dict[tuple[Where, str], asyncio.Future[Message]] = {}

    def greeted(self, where: Where, greeting: Message) -> None:
        """Remember what a client said of itself when it opened its session."""
        capabilities = params_of(greeting).get("capabilities")
        if where[2] and isinstance(capabilities, dict) and "elicitation" in capabilities:
            self._able.put(where, value=True)

    def can_be_asked(self, where: Where) -> bool:
        """Whether that client shows questions."""
        return bool(where[2]) and self._able.get(where) is not None

    def question(self, where: Where, params: Message) -> tuple[Message, asyncio.Future[Message]]:
        """A question as it goes to the client, and what its answer will be."""
        name = f"aegis-{secrets.token_hex(12)}"
        future = self._waiting[where, name] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._waiting.pop((where, name), None))
        return {"jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": params}, future

    def answered(self, where: Where, message: Message) -> bool:
        """Whether a message answers a question of ours, which is then settled."""
        future = self._waiting.get((where, str(id_of(message)))) if is_answer(message) else None
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    async def resolve(self, key: str, said: Said) -> None:
        """Answer an approval as the holder of `key`; raises `InvalidCall` where that one may not."""
        principal = await self._services.principal(f"Bearer {key}".encode("latin-1"))
        permit(principal, RESOLVE)
        given = Answer(
            decision=said.decision,
            reason=REASON,
            call_digest=said.call_digest,
            policy_digest=said.policy_digest,
        )
        await self._services.gate.aanswer(said.approval, given, principal=principal)


MAX_BATCH: Final = 100  # each of its calls is decided
Put = Callable[[Mapping[str, object]], Awaitable[None]]
_log = logging.getLogger("aegis.server.mcp")


class McpExchange:
    """One request to a server and its answer."""

    def __init__(
        self,
        judge: McpJudge,
        people: People,
        principal: Principal,
        server: Upstream,
        headers: Headers,
        upstreams: Upstreams,
        put: Put,
    ):
        self._server = server
        self._headers = headers
        self._upstreams = upstreams
        self._put = put
        self._people = people
        self._where = principal.id, server.name, headers.get("mcp-session-id", "")
        self._greeting: Message | None = None
        self._request: Id | None = None
        self._streaming = False
        self._replayed = False
        self._batched = False
        self._refused: list[Message] = []
        self._judge = judge

    async def run(self, method: str, body: bytes) -> None:
        """Answer the request."""
        _EXCHANGE.set(self)
        try:
            await self._run(method, body)
        except AegisError as error:
            if not self._streaming:
                raise
            _log.warning("an MCP exchange failed", extra={"error": type(error).__name__})
            await self._whole(
                200, written(rpc_error(self._request, "the request was not answered: it could not be checked")), {}
            )

    async def elicit(self, params: Message) -> Message | None:
        """What the person at the client says; `None` where the client shows no questions, or came without a key."""
        if APPROVER not in self._headers or not self._people.can_be_asked(self._where):
            return None
        question, answer = self._people.question(self._where, params)
        try:
            await self._begin({"cache-control": "no-store"})
            event = WireEvent(event="message", data=written(question).decode().rstrip("\n"))
            await self._put({"type": "http.response.body", "body": sse_bytes(event), "more_body": True})
            result = (await answer).get("result")
            return result if isinstance(result, dict) else None
        finally:
            answer.cancel()

    async def resolve(self, said: Said) -> None:
        """Answer an approval with the key that came with the call."""
        await self._people.resolve(self._headers[APPROVER], said)

    async def _run(self, method: str, body: bytes) -> None:
        patched = False
        self._replayed = method == "GET"
        if method == "POST":
            body, patched = await self._judged(body)
            if not body:  # nothing of it may go on: it was answered here
                return
        headers = self._server.headers(self._headers, patched=patched)
        async with self._upstreams.ask(self._server, method, headers, body) as answer:
            await self._relay(answer)

    async def _judged(self, body: bytes) -> tuple[bytes, bool]:
        """What goes on to the server, and whether arguments were changed; empty where it was answered here."""
        # Without a header the version is the one that has no header yet, which is the one with batches.
        messages = asked_of(body, self._headers.get("mcp-protocol-version", BATCHING))
        if not is_batch(body):
            (message,) = messages
            if self._people.answered(self._where, message):
                await self._whole(202, b"", {})
                return b"", False
            self._request = id_of(message)
            self._greeting = message if message.get("method") == "initialize" else None
            verdict = await self._judged_message(message)
            if verdict.reply is not None:
                await self._whole(200, written(verdict.reply), {"content-type": "application/json"})
                return b"", False
            judged = verdict.forward is not message
            return (written(verdict.forward) if judged and verdict.forward is not None else body), judged
        if len(messages) > MAX_BATCH or any(message.get("method") == "initialize" for message in messages):
            raise InvalidCall("this cannot be a batch", code="unsupported", status=400)
        verdicts = await asyncio.gather(*map(self._judged_message, messages))
        self._refused = [verdict.reply for verdict in verdicts if verdict.reply is not None]
        forwarded = [verdict.forward for verdict in verdicts if verdict.forward is not None]
        self._batched = True
        if not forwarded:
            await self._batch(200, [], {})
            return b"", False
        return b"[" + b",".join(written(message).rstrip() for message in forwarded) + b"]\n", True

    async def _judged_message(self, message: Message) -> McpVerdict:
        if is_request(message) and message["method"] in JUDGED:
            return await self._judge.request(message)
        return McpVerdict(forward=message)

    async def _batch(self, status: int, messages: list[Message], headers: Mapping[str, str]) -> None:
        """Answer a batch with the server's answers and our refusals."""
        body = b"[" + b",".join(written(one).rstrip() for one in (*self._refused, *messages)) + b"]"
        await self._whole(status, self._server.clean(body), {**headers, "content-type": "application/json"})

    async def _relay(self, answer: Streamed) -> None:
        headers = self._server.told(answer.headers)
        if self._greeting is not None:
            principal, server, _ = self._where
            self._people.greeted((principal, server, headers.get("mcp-session-id", "")), self._greeting)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status in (401, 403):  # its words are about our credential
            raise InvalidCall(
                f"the MCP server `{self._server.name}` rejected the gateway", code="upstream_credential", status=502
            )
        if kind == "text/event-stream" and answer.status == 200:
            await self._stream(answer, headers)
            return
        body = b"".join([chunk async for chunk in answer.chunks()])
        if self._batched and answer.status < 400 and (kind == "application/json" or not body.strip()):
            found = [await self._seen(one) for one in read_messages(body)] if body.strip() else []
            if found or self._refused:
                await self._batch(200, found, headers)
                return
        elif body.strip() and kind == "application/json":
            (message,) = read_messages(body)
            body = written(await self._seen(message))
        elif body.strip() and answer.status < 400:
            raise ForeignAnswer("an answer of the MCP server is neither JSON nor a stream of events")
        await self._whole(answer.status, self._server.clean(body), headers)

    async def _stream(self, answer: Streamed, headers: Mapping[str, str]) -> None:
        await self._begin(headers)
        for refusal in self._refused:
            event = WireEvent(event="message", data=written(refusal).decode().rstrip("\n"))
            await self._put({"type": "http.response.body", "body": sse_bytes(event), "more_body": True})
        reader = SseReader()
        async for events in _events(reader, answer):
            for event in events:
                body = self._server.clean(sse_bytes(await self._event(event)))
                await self._put({"type": "http.response.body", "body": body, "more_body": True})
        await self._put({"type": "http.response.body", "body": b""})

    async def _event(self, event: WireEvent) -> WireEvent:
        if not event.data.strip():
            return event  # a priming event has an id alone
        (message,) = read_messages(event.data.encode())
        seen = written(await self._seen(message)).decode().rstrip("\n")
        return WireEvent(event=event.event, data=seen, id=event.id, retry=event.retry)

    async def _seen(self, message: Message) -> Message:
        if not is_answer(message):
            self._judge.notified(message)
            return message
        if self._replayed and not self._judge.expects(message):
            # An answer that comes again after a break, to a question that this gateway does not remember.
            return rpc_error(id_of(message), "the answer was withheld: it belongs to no request known here")
        try:
            return await self._judge.answer(message)
        except AegisError as error:
            _log.warning("an answer was withheld", extra={"error": type(error).__name__})
            return rpc_error(id_of(message), "the answer was withheld: it could not be checked")

    async def _begin(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of events, unless a question to a person did."""
        if not self._streaming:
            self._streaming = True
            listed = _listed({**headers, "content-type": "text/event-stream"})
            await self._put({"type": "http.response.start", "status": 200, "headers": listed})

    async def _whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if self._streaming:
            event = sse_bytes(WireEvent(event="message", data=body.decode().strip()))
            await self._put({"type": "http.response.body", "body": event})
            return
        listed = [*_listed(headers), (b"content-length", b"%d" % len(body))]
        await self._put({"type": "http.response.start", "status": status, "headers": listed})
        await self._put({"type": "http.response.body", "body": body})


_EXCHANGE: Final[ContextVar[McpExchange]] = ContextVar("aegis_mcp_exchange")


async def elicit_now(params: Message) -> Message | None:
    return await _EXCHANGE.get().elicit(params)


async def resolve_now(said: Said) -> None:
    await _EXCHANGE.get().resolve(said)


async def asked(upstreams: Upstreams, server: Upstream, told: Headers, method: str, params: Message) -> Message:
    """Put a request of our own to a server, as its client would."""
    request: Message = {"jsonrpc": "2.0", "id": "aegis-list", "method": LIST, "params": params}
    headers = {**server.headers(told, patched=True), "accept": "application/json, text/event-stream"}
    if "mcp-method" in headers:
        headers["mcp-method"] = method
        headers.pop("mcp-name", None)
    async with upstreams.ask(server, "POST", headers, written(request)) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            async for events in _events(SseReader(), answer):
                for event in events:
                    for message in read_messages(event.data.encode()) if event.data.strip() else ():
                        if message.get("id") == request["id"]:
                            return message
            return {}
        body = b"".join([chunk async for chunk in answer.chunks()])
    if answer.status != 200:
        return {}
    (message,) = read_messages(body)
    return message


async def _events(reader: SseReader, answer: Streamed) -> AsyncIterator[list[WireEvent]]:
    async for chunk in answer.chunks():
        yield reader.feed(chunk)
    yield reader.end()


def _listed(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
