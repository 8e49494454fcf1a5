"""The proxies of model APIs as routes: the agent's key in, the provider's key out, errors as each vendor spells them.

(1) the credential says who asks: `Authorization: Bearer` or `x-api-key`
(2) the body, bounded, uncompressed, strict JSON
(3) the exchange: history checked, refused calls put back, or answered here
(4) the provider's answer, whole or streamed, with its calls decided
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import orjson
from msgspec import structs
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from aegis.behaviour.budgets import charge_model, request_to_decide
from aegis.config.config import Config
from aegis.core.call import MAX_NAME_CHARS, ToolCall
from aegis.core.json import parse
from aegis.core.principal import Principal
from aegis.core.times import MICROS
from aegis.enforce.enforcement import Enforcer
from aegis.errors import AegisError, EgressError, ForeignAnswer, InvalidCall, StoreError
from aegis.gate.gate import Acting
from aegis.outbound.client import Streamed
from aegis.proxies.models.book import Book, Speaking
from aegis.proxies.models.book import BookScope as Conversation
from aegis.proxies.models.exchange import Exchange
from aegis.proxies.models.formats import Format
from aegis.proxies.models.providers import MAX_ANSWER_BYTES, MAX_ERROR_BYTES, ModelProvider, Providers, error_of, whole
from aegis.proxies.models.reading import Reading
from aegis.proxies.models.synthesis import Resumptions, events_of
from aegis.server.admission import PROXY, permit_running
from aegis.server.http import Disconnected, error_headers, read_body, refusal_of
from aegis.server.services import Services
from aegis.wire.model import Wire
from aegis.wire.usage import TokenMeter

SESSION_HEADER: Final = "x-aegis-session"
MAX_REQUEST_BYTES: Final = 33_554_432  # conversations hold pictures and files; the vendors take as much
PRUNE_S: Final = 86_400  # between two looks for records of old conversations
SEND_S: Final = 60.0  # a client that does not read keeps a provider's connection no longer than this
_UNBUFFERED: Final = (b"x-accel-buffering", b"no")
_log = logging.getLogger("aegis.server.proxy")


class ModelProxies:
    """The model proxies of one gateway."""

    def __init__(self, services: Services):
        self._services = services
        self._book = Book(services.gate)
        self._resumptions = Resumptions(self._book)
        self._in_force: tuple[Config, Providers] | None = None
        self._replaced: list[Providers] = []
        self._pruned_at: int | None = None
        self._pruning: asyncio.Task[None] | None = None

    @property
    def services(self) -> Services:
        return self._services

    def providers(self) -> Providers:
        """The providers of the configuration in force; raises `ConfigError` for a key that cannot be had."""
        config = self._services.policy.config
        if self._in_force is None or self._in_force[0].settings.proxies != config.settings.proxies:
            fresh = Providers.of(config)
            if self._in_force is not None:  # answers that are under way still use its connections
                self._replaced.append(self._in_force[1])
            self._in_force = (config, fresh)
        return self._in_force[1]

    def exchange(self, principal: Principal, session: str, format_: Format) -> Exchange:
        """The passage of one request of this principal."""
        services, settings = self._services, self._services.policy.config.settings.proxies
        self._prune(services.clock())
        waits = settings.on_approval == "wait"
        enforcer = Enforcer(
            Acting(services.gate, principal, services.decide),
            on_approval="wait" if waits else "block",
            approval_timeout=float(settings.wait),
            host=Speaking(services.gate, principal),
        )
        scope = Conversation(principal=principal, session=session)
        reading = Reading(
            book=self._book,
            # What a key is limited to are tools; what its holder brings along is none.
            enforcer=Enforcer(
                Acting(services.gate, structs.replace(principal, tools=()), services.decide), on_approval="block"
            ),
            policy=services.gate.parts.policy.current,
            scope=scope,
            documents=settings.documents,
            texts=settings.texts,
        )
        return Exchange(
            book=self._book,
            resumptions=self._resumptions,
            enforcer=enforcer,
            reading=reading,
            format_=format_,
            scope=scope,
            unknown=settings.history,
            now=services.clock() // MICROS,
        )

    async def aclose(self) -> None:
        """Close every connection to a provider."""
        open_ones = [*self._replaced, *([self._in_force[1]] if self._in_force else [])]
        self._in_force, self._replaced = None, []
        if self._pruning is not None:
            await asyncio.gather(self._pruning, return_exceptions=True)
        for one in open_ones:
            await one.aclose()

    def _prune(self, now: int) -> None:
        """Once a day of use, forget what conversations of long ago left in the store."""
        if self._pruned_at is not None and now - self._pruned_at < PRUNE_S * MICROS:
            return
        self._pruned_at = now
        self._pruning = asyncio.create_task(self._forget())

    async def _forget(self) -> None:
        try:
            forgotten = await asyncio.to_thread(self._book.prune)
        except StoreError:  # nothing depends on it; it is tried again the next day
            _log.warning("old records of conversations could not be forgotten")
            return
        if forgotten:
            _log.info("old records of conversations were forgotten", extra={"records": forgotten})


class Proxy:
    """One proxied path."""

    def __init__(self, proxies: ModelProxies, format_: Format):
        self._proxies = proxies
        self._format = format_

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = ProxyAnswer(send, self._format, scope["aegis.request_id"])
        try:
            headers = Headers(scope=scope)
            principal = await principal_in(headers, self._proxies.services)
            await permit_running(principal, PROXY, self._proxies.services.gate)
            request = await request_in(scope, headers, receive)
        except Disconnected:
            return
        except Exception as error:
            await answer.fail(error)
            return
        asked = (scope.get("path_params", {}), scope.get("query_string", b"").decode("latin-1"))
        work = asyncio.ensure_future(self._answer(principal, headers, request, answer, *asked))
        gone = asyncio.ensure_future(_gone(receive))
        stalled = asyncio.ensure_future(answer.stalled())
        try:
            await asyncio.wait({work, gone, stalled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, stalled, work):  # where nobody listens any more, the provider need not go on
                task.cancel()
            await asyncio.gather(work, gone, stalled, return_exceptions=True)

    async def _answer(
        self,
        principal: Principal,
        headers: Headers,
        request: Wire,
        answer: ProxyAnswer,
        path: Mapping[str, str],
        query: str,
    ) -> None:
        try:
            session = session_in(headers)
            asked = self._format.asked(self._format, request, path, query)
            providers = self._proxies.providers()
            provider = providers.for_model(self._format.vendor, asked.model)
            exchange = self._proxies.exchange(principal, session, self._format)
            opened = await exchange.opened(request, asked.model)
            if opened.answer is not None:
                await answer.own(opened.answer, streamed=asked.streamed)
                return
            body = orjson.dumps(opened.request)
            decided = await self._admit(principal, session, asked.model)
            meter = TokenMeter(len(body))
            try:
                async with providers.ask(provider, asked.upstream, headers, body) as upstream:
                    await _relay(exchange, provider, upstream, answer, meter)
            finally:
                await asyncio.shield(self._charge(principal, session, asked.model, meter, decided))
        except Exception as error:
            await answer.fail(error)

    async def _admit(self, principal: Principal, session: str, model: str) -> bool:
        """Whether the request was decided as a call, as one is where the budgets of an agent are used up.

        Raises `InvalidCall` (429) while a person is asked for more, and after a no.
        """
        gate, rules = self._proxies.services.gate, self._proxies.services.policy.current.behaviour
        if not rules.budgets:
            return False
        agent, now = principal.agent or principal.id, self._proxies.services.clock()

        def look() -> ToolCall | None:
            with self._proxies.services.store.reader() as reader:
                return request_to_decide(reader, rules, agent, principal.id, session, model, now)

        call = await asyncio.to_thread(look)
        if call is None:
            return False
        decision = await gate.adecide(call, principal=principal)
        if not decision.allowed:
            hint = "a person is asked for more" if decision.approval is not None else decision.message
            raise InvalidCall("the budget of this agent is used up", code="budget_exhausted", hint=hint, status=429)
        return True

    async def _charge(self, principal: Principal, session: str, model: str, meter: TokenMeter, decided: bool) -> None:
        """Take what an answer cost from the budgets of its agent."""
        rules = self._proxies.services.policy.current.behaviour
        if not rules.budgets or not (meter.read or meter.wrote):
            return
        agent, now = principal.agent or principal.id, self._proxies.services.clock()
        unit = charge_model(
            rules, agent, principal.id, session, model, read=meter.read, wrote=meter.wrote, decided=decided, now=now
        )  # fmt: skip
        await self._proxies.services.gate.arecord(unit)


class ProxyAnswer:
    """What goes back to the client; knows whether it has begun, and how its vendor spells failures."""

    def __init__(self, send: Send, format_: Format, request_id: str):
        self._send = send
        self._format = format_
        self._request_id = request_id
        self._streaming = False
        self._sending: float | None = None

    @property
    def _stream_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        media = self._format.framing.media
        charset = "; charset=utf-8" if media.startswith("text/") else ""
        return ((b"content-type", f"{media}{charset}".encode()), _UNBUFFERED)

    async def stalled(self) -> None:
        """Return once the client has not taken a write for `SEND_S`; a timer for each write would cost more than it."""
        while True:
            await asyncio.sleep(SEND_S / 4)
            if self._sending is not None and asyncio.get_running_loop().time() - self._sending > SEND_S:
                return

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """One whole JSON answer."""
        listed = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        listed += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self._put({"type": "http.response.start", "status": status, "headers": listed})
        await self._put({"type": "http.response.body", "body": body})

    async def stream(self, chunks: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        """A stream of events, begun before the first chunk is there."""
        listed = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        await self._put({"type": "http.response.start", "status": 200, "headers": [*listed, *self._stream_headers]})
        self._streaming = True
        async for chunk in chunks:
            await self._put({"type": "http.response.body", "body": chunk, "more_body": True})
        await self._put({"type": "http.response.body", "body": b""})

    async def own(self, wire: Wire, *, streamed: bool) -> None:
        """An answer that the proxy gives by itself."""
        if not streamed:
            await self.whole(200, json.dumps(wire).encode(), {})
            return

        async def chunks() -> AsyncIterator[bytes]:
            for event in events_of(self._format.name, wire):
                yield self._format.framing.encode(event)

        await self.stream(chunks(), {})

    async def fail(self, error: Exception) -> None:
        """The refusal that stands for `error`; in a stream that has begun, as its last event."""
        refusal = _refusal(error)
        if refusal.status >= 500 and not isinstance(error, InvalidCall):
            level = logging.WARNING if isinstance(error, AegisError) else logging.ERROR
            extra = {"request_id": self._request_id, "error": type(error).__name__}
            _log.log(level, "a proxied request failed", extra=extra)
        wire = self._format.error(refusal, self._request_id)
        if self._streaming:
            body = self._format.framing.encode(self._format.breaks(wire))
            await self._put({"type": "http.response.body", "body": body})
            return
        await self.whole(refusal.status, orjson.dumps(wire), error_headers(refusal.status))

    async def _put(self, message: dict[str, Any]) -> None:
        self._sending = asyncio.get_running_loop().time()
        try:
            await self._send(message)
        finally:
            self._sending = None


async def principal_in(headers: Headers, services: Services) -> Principal:
    """The holder of the one credential that a request carries; raises `InvalidCall` (401)."""
    given = [_presented(value.encode("latin-1")) for value in headers.getlist("authorization")]
    for name in ("x-api-key", "x-goog-api-key"):
        given += [b"Bearer " + value.encode("latin-1") for value in headers.getlist(name)]
    different = set(given)
    credential = given[0] if len(different) == 1 else b"" if given else None
    return await services.principal(credential)


_SIGNED: Final = b"AWS4-HMAC-SHA256 "


def _presented(credential: bytes) -> bytes:
    """The bearer credential in an `Authorization`: a request signed with SigV4 has it as its access key id.

    Clients of AWS send bearer tokens over TLS alone. The signature proves nothing beyond the key, whose secret half the
    store does not hold, and is not looked at.
    """
    if not credential.startswith(_SIGNED):
        return credential
    for part in credential.removeprefix(_SIGNED).split(b","):
        name, _, value = part.strip().partition(b"=")
        if name == b"Credential":
            return b"Bearer " + value.partition(b"/")[0]
    return b""


async def request_in(scope: Scope, headers: Headers, receive: Receive) -> Wire:
    """The body of a request; raises `InvalidCall` for one that is compressed, too large, or no JSON object."""
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":  # a few bytes could unpack to any number
        raise InvalidCall("the body must not be compressed", code="unsupported_encoding", status=415)
    value = parse(await read_body(scope, receive, MAX_REQUEST_BYTES))
    if not isinstance(value, dict):
        raise InvalidCall("the body must be a JSON object", code="malformed", status=400)
    if value.get("background"):  # its answer would be fetched over a path that nobody watches
        raise InvalidCall("`background` answers are not proxied", code="unsupported", status=400)
    return value


def session_in(headers: Headers) -> str:
    """The session that a client names; raises `InvalidCall` (400) for what is no name."""
    session = headers.get(SESSION_HEADER, "").strip()
    if len(session) > MAX_NAME_CHARS or not session.isprintable():
        raise InvalidCall(f"`{SESSION_HEADER}` must have at most {MAX_NAME_CHARS} visible characters", status=400)
    return session


async def _relay(
    exchange: Exchange, provider: ModelProvider, upstream: Streamed, answer: ProxyAnswer, meter: TokenMeter
) -> None:
    headers = provider.told(upstream.headers)
    if upstream.status != 200:
        found = error_of(provider, upstream.status, await whole(upstream, MAX_ERROR_BYTES))
        if isinstance(found, InvalidCall):
            raise found
        await answer.whole(upstream.status, orjson.dumps(found), headers)
        return
    kind = upstream.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == exchange.framing.media:
        await answer.stream(_redacted(provider, exchange.events(meter.fed(upstream.chunks()))), headers)
    elif kind == "application/json":
        body = await whole(upstream, MAX_ANSWER_BYTES)
        meter.feed(body)
        await answer.whole(200, provider.secret.redacted(await _settled(exchange, body)), headers)
    else:
        raise ForeignAnswer("the provider's answer is neither JSON nor a stream of events")


async def _settled(exchange: Exchange, body: bytes) -> bytes:
    """The bytes of a whole answer as the client may see them."""
    try:
        value = parse(body)
    except InvalidCall as error:
        raise ForeignAnswer("the provider's answer is not strict JSON") from error
    if not isinstance(value, dict):
        raise ForeignAnswer("the provider's answer is not an object")
    settled = await exchange.settled(value)
    return body if settled == value else json.dumps(settled).encode()


async def _redacted(provider: ModelProvider, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield provider.secret.redacted(chunk)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(error: Exception) -> InvalidCall:
    if isinstance(error, EgressError | ForeignAnswer):
        return InvalidCall(
            "the provider's answer was not understood, so nothing of it is passed on",
            code="upstream_failed",
            hint="the log of the gateway says more",
            status=502,
        )
    return refusal_of(error)
