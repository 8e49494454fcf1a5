"""Drift by meaning: how near the user's words and the names of a session's tools are, as an embedding model sees it.

Asked beside decisions and never within one: what the model says is recorded in the session, with the model's name, and
judges the calls after it. It can only add to the drift that is counted. What leaves are the user's words and the words
of tools' names, no argument and no result. Where the endpoint is slow, gone or answers nonsense, drift is counted as
without one, and calls say that they were not measured.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import queue
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import mul
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import orjson

from aegis.context.heads import COLLECTION, drift_alarm, put_head, read_head, words_of
from aegis.context.sessions import find_surroundings, key_of_session
from aegis.core.canonical import SALT_BYTES, canonical, payload_commitment
from aegis.core.ports import Transaction
from aegis.core.receipt import Draft
from aegis.errors import AegisError, EgressError, KeyFileError, ModelFailed, StoreConflict
from aegis.gate.events import Event, new_id
from aegis.gate.parts import Parts
from aegis.keys.references import read_secret
from aegis.log.writer import Unit
from aegis.outbound.client import Egress, EgressPolicy, Request
from aegis.policy.dataflow.drift import EmbeddingEndpoint, drift_of, tool_text

MAX_TURNS: Final = 16  # texts of the user that are sent: the first, and the newest
MAX_CHARS: Final = 4_000  # of one text: models take some eight thousand tokens
MAX_TOOLS: Final = 32  # names of one request: bounds what one answer makes us read and multiply
MAX_MEASURED: Final = 64  # names that one session keeps distances of: they stand in its head
MAX_ANSWER: Final = 8_388_608  # bytes of one answer: 48 vectors of 8,192 numbers
MAX_NUMBERS: Final = 8_192  # of one vector
MAX_KEPT: Final = 512  # vectors of names that a process keeps
MAX_WAITING: Final = 256  # sessions that wait to be measured; a later call of one asks again
MAX_ASKED: Final = 8_192  # what was asked for already, by session, tool and turn
BACK_OFF_S: Final = (1, 5, 30, 120)  # without asking, after each failure in a row
CLOSE_S: Final = 2.0

_log = logging.getLogger("aegis.drift")

Vector = Sequence[float]  # an array of four bytes each


class _Embedding(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Embeddings(msgspec.Struct, frozen=True):
    data: list[_Embedding]


_answer: Final = msgspec.json.Decoder(_Embeddings).decode


async def embed(endpoint: EmbeddingEndpoint, texts: Sequence[str], egress: Egress) -> list[Vector]:
    """The vectors of `texts`, each of length one; raises `ModelFailed`, which holds nothing of what was sent.

    Source: the reference of `POST /v1/embeddings` (platform.openai.com/docs/api-reference/embeddings).
    """
    headers = {"content-type": "application/json"}
    try:
        if endpoint.key:
            headers["authorization"] = f"Bearer {read_secret(endpoint.key).reveal()}"
        asked = canonical({"model": endpoint.model, "input": list(texts), "encoding_format": "float"})
        request = Request(method="POST", url=f"{endpoint.url}/embeddings", headers=headers, body=asked)
        answered = await egress.send(request, total_seconds=endpoint.seconds, max_bytes=MAX_ANSWER)
    except KeyFileError as error:
        raise ModelFailed("its key cannot be read") from error
    except EgressError as error:
        raise ModelFailed(f"it was not reached: {error}") from error
    if answered.status != 200:
        raise ModelFailed(f"it answered with status {answered.status}")
    try:
        told = {one.index: one.embedding for one in _answer(answered.body).data}
    except (msgspec.DecodeError, RecursionError) as error:
        raise ModelFailed("it did not answer in its format") from error
    sizes = {len(one) for one in told.values()}
    if told.keys() != set(range(len(texts))) or len(sizes) != 1 or not 1 <= max(sizes) <= MAX_NUMBERS:
        raise ModelFailed("it did not answer with one vector for each text")
    return [_unit_of(told[number]) for number in range(len(texts))]


def _unit_of(numbers: list[float]) -> Vector:
    length = math.hypot(*numbers)
    if not 0 < length < math.inf:
        raise ModelFailed("it answered with a vector that points nowhere")
    return array("f", [number / length for number in numbers])


def cosine(first: Vector, second: Vector) -> float:
    """How alike two vectors of length one are, -1 to 1; vectors of two models are not alike at all."""
    if len(first) != len(second):
        return -1.0
    return sum(map(mul, first, second), 0.0)


def egress_to(endpoint: EmbeddingEndpoint) -> Egress:
    """A client that reaches the endpoint, and nothing else that is private."""
    private = frozenset({urlsplit(endpoint.url).netloc.lower()}) if endpoint.private else frozenset[str]()
    return Egress(EgressPolicy(private=private, connect_seconds=endpoint.seconds, idle_seconds=endpoint.seconds))


class DriftMeasures:
    """Measures sessions whose calls were recorded, in one thread that nobody waits for."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._lock = threading.Lock()
        self._asked: OrderedDict[tuple[str, str, str, int], None] = OrderedDict()
        self._jobs: queue.Queue[Event | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._process = 0
        self._closed = False
        self._vectors: OrderedDict[tuple[str, str, str], Vector] = OrderedDict()
        self._failures = 0
        self._silent_until = 0.0

    def __call__(self, event: Event) -> None:
        """Have the session of a recorded call measured, once for each tool and turn."""
        members = event.members
        if event.kind != "decision" or self._endpoint is None:
            return
        context = members.get("context")
        if context is None or not context["task"]:
            return
        self._ask(event, (members["principal"], members["session"], members["tool"], context["turns"]))

    def opened(self, principal: str, session: str) -> None:
        """Have a session measured in which the user said something: what its host offers, and what it used before."""
        if self._endpoint is not None:
            event = Event(kind="session", members={"principal": principal, "session": session}, recorded=None)
            self._ask(event, None)

    @property
    def _endpoint(self) -> EmbeddingEndpoint | None:
        return self._parts.policy.current.dataflow.embeddings

    def _ask(self, event: Event, place: tuple[str, str, str, int] | None) -> None:
        with self._lock:
            if self._closed or (place is not None and place in self._asked) or time.monotonic() < self._silent_until:
                return
            if self._thread is None or self._process != os.getpid():  # first use, or this is a forked child
                self._process, self._jobs = os.getpid(), queue.Queue(MAX_WAITING)
                self._thread = threading.Thread(target=self._run, name="aegis-drift", daemon=True)
                self._thread.start()
            try:
                self._jobs.put_nowait(event)
            except queue.Full:  # a later call of the session asks again
                return
            if place is not None:
                self._asked[place] = None
                if len(self._asked) > MAX_ASKED:
                    self._asked.popitem(last=False)

    def close(self) -> None:
        """End after the request that is under way, or without it where that takes longer than `CLOSE_S`."""
        with self._lock:
            self._closed = True
            thread, jobs = self._thread, self._jobs
        if thread is None or self._process != os.getpid():
            return
        with suppress(queue.Empty):
            while True:
                jobs.get_nowait()
        jobs.put_nowait(None)
        thread.join(CLOSE_S)

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        clients: dict[EmbeddingEndpoint, Egress] = {}
        try:
            while (event := await asyncio.to_thread(self._jobs.get)) is not None:
                endpoint = self._endpoint
                if endpoint is None or time.monotonic() < self._silent_until:
                    self._forget()
                    continue
                if endpoint not in clients:
                    await _closed(clients)
                    clients[endpoint] = egress_to(endpoint)
                await self._attempt(event, endpoint, clients[endpoint])
        finally:
            await _closed(clients)

    async def _attempt(self, event: Event, endpoint: EmbeddingEndpoint, egress: Egress) -> None:
        try:
            await self._measure(event, endpoint, egress)
        except ModelFailed as error:
            wait = BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]
            self._failures += 1
            self._silent_until = time.monotonic() + wait
            self._forget()
            _log.warning("drift is only counted: the embeddings were not told", extra={"error": str(error)})
        except StoreConflict:  # the user said more meanwhile: that turn has it measured
            self._forget()
        except AegisError:
            self._forget()
            _log.warning("the drift of a session could not be recorded", exc_info=True)
        except Exception:  # one fault must not end the measuring of every later session
            self._forget()
            _log.exception("the drift of a session could not be measured")
        else:
            if self._failures:
                _log.info("drift is measured again")
            self._failures = 0

    def _forget(self) -> None:
        """Let calls ask again for what was not measured."""
        with self._lock:
            self._asked.clear()

    async def _measure(self, event: Event, endpoint: EmbeddingEndpoint, egress: Egress) -> None:
        """(1) what is to be measured (2) ask for the vectors that are not known (3) record the distances."""
        principal, session = event.members["principal"], event.members["session"]
        key = key_of_session(principal, session)
        with self._parts.store.reader() as reader:
            document = reader.document(COLLECTION, key)
            if document is None:
                return
            head = read_head(document)
            words = [text for text in words_of(self._parts, reader, key, 0) if text.strip()]
            offered = find_surroundings(reader, key).tools
        used = [*head.tools, *_names(offered), *([event.members["tool"]] if "tool" in event.members else [])]
        known = head.measured_of(endpoint.model)
        texts = {*(tool_text(tool) for tool in used), *(name for name, _ in head.measured)}  # of other words, perhaps
        names = sorted(text for text in texts if text and text not in known)
        names = names[: MAX_MEASURED - len(known)] if words else []
        said = [text[:MAX_CHARS] for text in (words[:1] + words[1:][-(MAX_TURNS - 1) :])]
        for start in range(0, len(names), MAX_TOOLS):
            some = names[start : start + MAX_TOOLS]
            vectors = await self._vectors_of(endpoint, said, some, egress)
            near = [max(cosine(one, vector) for one in vectors[: len(said)]) for vector in vectors[len(said) :]]
            told = {name: endpoint.distance(one) for name, one in zip(some, near, strict=True)}
            self._parts.ledger.append(self._recorded(event, key, head.turns, endpoint.model, told))

    async def _vectors_of(
        self, endpoint: EmbeddingEndpoint, said: Sequence[str], names: Sequence[str], egress: Egress
    ) -> list[Vector]:
        """The vectors of what was said, and behind them those of names, which are kept."""
        places = [(endpoint.url, endpoint.model, name) for name in names]
        new = [place for place in places if place not in self._vectors]
        told = await embed(endpoint, [*said, *(place[2] for place in new)], egress)
        found = dict(zip(new, told[len(said) :], strict=True))
        vectors = [*told[: len(said)], *(found[place] if place in found else self._vectors[place] for place in places)]
        self._vectors.update(found)
        while len(self._vectors) > MAX_KEPT:
            self._vectors.popitem(last=False)
        return vectors

    def _recorded(self, event: Event, key: str, turns: int, model: str, told: Mapping[str, int]) -> Unit:
        """The unit that keeps distances with the session, under a receipt that names the model.

        Calls of these tools that ran already count with them, and the session alarms for them as for others.
        """
        principal, session = event.members["principal"], event.members["session"]
        salt = os.urandom(SALT_BYTES)
        payload = orjson.dumps({"model": model, "turns": turns, "distances": told}, option=orjson.OPT_SORT_KEYS)
        members = {
            "kind": "session",
            "receipt_id": new_id(),
            "principal": principal,
            "session": session,
            "action": "measured",
            "payload_commitment": payload_commitment(salt, payload),
        }
        rules = self._parts.policy.current.dataflow

        def apply(transaction: Transaction) -> Sequence[Draft]:
            document = transaction.document(COLLECTION, key)
            head = None if document is None else read_head(document)
            if head is None or document is None or head.turns != turns:
                raise StoreConflict("the user said more meanwhile")
            known = {**head.measured_of(model), **told}
            ran = {tool_text(one) for one in head.tools}
            drift = max((drift_of(name, far) for name, far in told.items() if name in ran), default=0)
            measured = msgspec.structs.replace(
                head,
                measured=tuple(sorted(known.items())[:MAX_MEASURED]),
                measured_by=model,
                measured_turns=turns,
                reads=head.reads + 1,
                drift=max(head.drift, drift),
            )
            put_head(transaction, key, measured, document.version)
            if not rules.alarms(head.drift, measured.drift):
                return ()
            return (drift_alarm(members["receipt_id"], principal, session, None),)

        return Unit(drafts=(Draft(members=members, payload=payload, salt=salt),), apply=apply)


def _names(offered: Iterable[Any]) -> Iterator[str]:
    """The names of the tools that a host offers: names themselves, or definitions as models take them."""
    for one in offered:
        inner = one.get("function", one) if isinstance(one, Mapping) else one
        name = inner.get("name") if isinstance(inner, Mapping) else inner
        if isinstance(name, str):
            yield name


async def _closed(clients: dict[EmbeddingEndpoint, Egress]) -> None:
    for client in clients.values():
        await client.aclose()
    clients.clear()
