"""What a process remembers of its conversations: decided calls, observed results, and what was taken out.

Bounded in number and bytes; the oldest goes first. What is forgotten is no longer put back or looked
up, and nothing is allowed for it. Everything is kept by session, so that ids that a server counts anew in
every conversation do not mix them up.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from msgspec import Struct, field

from aegis.core.bounded import Bounded
from aegis.core.call import MAX_NAME_CHARS
from aegis.core.reasoning import Reasoning
from aegis.wire.model import Removal

if TYPE_CHECKING:
    from aegis.enforce.enforcement import Enforced

MAX_ITEMS: Final = 10_000  # a process that runs for months does not grow for ever
MAX_BYTES: Final = 33_554_432  # refused arguments are the model's: their number and size are its choice
MAX_RESULTS: Final = 16  # different results that are remembered of one call

UNIQUE_CHARS: Final = 20  # ids of OpenAI and Anthropic have more, counters have fewer
_SUFFIX_CHARS: Final = 16


class Decided(Struct):
    """A call that was decided here: how it is known to the decider, and what was made of its results.

    `refusal` is set where a call that a runner is going to execute was refused before; `told` is the refusal
    that a runner was given as the result, which it may have put into words of its own. `enforced` is what may run, and
    `begun` says that it was given to somebody who runs it.
    """

    decision_id: str
    allowed: bool
    refusal: str = ""
    told: str = ""
    enforced: Enforced | None = None
    begun: bool = False
    results: dict[str, tuple[bool, Any]] = field(default_factory=dict)


class Memory:
    """The memory of all hooked clients of a process; safe for threads and forks."""

    def __init__(self, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._decided: Bounded[tuple[str, str], Decided] = Bounded(max_items, max_bytes)
        self._answers: Bounded[tuple[str, str], str] = Bounded(max_items, max_bytes)
        self._removals: Bounded[tuple[str, str, str], Removal] = Bounded(max_items, max_bytes)
        self._reasoning: Bounded[tuple[str, str], Reasoning] = Bounded(max_items, max_bytes)
        renew = weakref.WeakMethod(self._renew)
        os.register_at_fork(after_in_child=lambda: (method := renew()) and method())

    def call_id(self, session: str, answer_id: str, call_id: str) -> str:
        """The id under which a provider's call is decided; the same call of the same answer has the same id.

        It is the provider's own where that is long enough to be unique for ever. Shorter ones are
        counters on some servers: they get a suffix, or a call of yesterday would stand for today's.
        """
        if not call_id or len(call_id) > MAX_NAME_CHARS - _SUFFIX_CHARS - 1:
            return secrets.token_hex(16)
        with self._lock:
            if len(call_id) >= UNIQUE_CHARS:
                first = self._answers.get((session, call_id))
                if first is None:
                    self._answers.put((session, call_id), answer_id)
                if first is None or first == answer_id:
                    return call_id
            own = f"{answer_id}\0{call_id}"
            known = self._answers.get((session, own))
            if known is None:
                known = f"{call_id}.{secrets.token_hex(_SUFFIX_CHARS // 2)}"
                self._answers.put((session, own), known)
            return known

    def execution_id(self, session: str, answer_id: str | None, call_id: str) -> str:
        """The id under which a call is decided where it is executed.

        It is the one under which the answer was decided, if that happened and nobody executed the call yet.
        Without an answer's id (`None`) a long id stands for itself, and a short one for nothing.
        """
        if not call_id or len(call_id) > MAX_NAME_CHARS - _SUFFIX_CHARS - 1:
            return secrets.token_hex(16)
        unique = len(call_id) >= UNIQUE_CHARS
        own, claim = f"{answer_id or ''}\0{call_id}", f"\0claimed\0{call_id}"
        with self._lock:
            known = self._answers.get((session, own))
            if known is None and answer_id is None:
                return call_id if unique else secrets.token_hex(16)
            if known is None:
                free = unique and self._answers.get((session, claim)) is None
                known = call_id if free else f"{call_id}.{secrets.token_hex(_SUFFIX_CHARS // 2)}"
                self._answers.put((session, own), known)
                self._answers.put((session, claim), call_id)
            return known

    def learn_execution_id(self, session: str, answer_id: str | None, call_id: str, used: str) -> None:
        """Remember that a call had to be decided under another id, because its own stood for other arguments."""
        if call_id and (answer_id is not None or len(call_id) >= UNIQUE_CHARS):
            with self._lock:
                self._answers.put((session, f"{answer_id or ''}\0{call_id}"), used)

    def learn_decision(self, session: str, call_id: str, decided: Decided) -> None:
        """Remember under which decision the result of a call is to be observed."""
        enforced = decided.enforced
        weight = 0 if enforced is None else len(enforced.asked) + len(enforced.body)
        if call_id:
            with self._lock:
                self._decided.put((session, call_id), decided, weight)

    def forget_decision(self, session: str, call_id: str) -> None:
        """Forget the decision on a call: it is going to be decided anew."""
        with self._lock:
            self._decided.drop((session, call_id))

    def decision(self, session: str, call_id: str) -> Decided | None:
        """The decision on the newest call with this id, or `None`."""
        with self._lock:
            return self._decided.get((session, call_id))

    def learn_reasoning(self, session: str, call_id: str, reasoning: Reasoning | None) -> None:
        """Remember why a call is made that is decided where it runs."""
        if reasoning is not None and call_id:
            with self._lock:
                self._reasoning.put((session, call_id), reasoning, sum(len(one.text) for one in reasoning.blocks))

    def reasoning(self, session: str, call_id: str) -> Reasoning | None:
        """Why a call is made, where its answer said it."""
        with self._lock:
            return self._reasoning.get((session, call_id))

    def learn_result(self, decided: Decided, digest: str, changed: bool, value: Any) -> None:
        """Remember what may be seen of the result with this digest."""
        with self._lock:
            if len(decided.results) >= MAX_RESULTS:
                decided.results.pop(next(iter(decided.results)))
            decided.results[digest] = (changed, value)

    def learn_removals(self, session: str, anchors: Sequence[str], removals: Sequence[Removal]) -> None:
        """Remember what was taken out of an answer, and forget what an anchor stood for before."""
        with self._lock:
            for anchor in anchors:
                self._removals.drop((session, "anchor", anchor))
            for removal in removals:
                weight = sum(len(orjson.dumps(one.call, default=str)) for one in removal.refused)
                for key in removal.kept:
                    self._removals.put((session, "call", key), removal, weight)
                if removal.ref:
                    self._removals.put((session, "ref", removal.ref), removal, weight)
                for anchor in filter(None, anchors):
                    self._removals.put((session, "anchor", anchor), removal, weight)

    def recall(self, session: str) -> SessionRecall:
        """What was taken out in one session."""
        return SessionRecall(self, session)

    def removal(self, session: str, kind: str, key: str) -> Removal | None:
        """What was taken out and is known by this key."""
        with self._lock:
            return self._removals.get((session, kind, key))

    def _renew(self) -> None:
        # The thread that held the lock does not exist in the child.
        self._lock = threading.Lock()


class SessionRecall:
    """The removals of one session, as dialects look for them."""

    def __init__(self, memory: Memory, session: str):
        self._memory = memory
        self._session = session

    def by_call(self, key: str) -> Removal | None:
        return self._memory.removal(self._session, "call", key)

    def by_ref(self, ref: str) -> Removal | None:
        return self._memory.removal(self._session, "ref", ref)

    def by_anchor(self, anchor: str) -> Removal | None:
        return self._memory.removal(self._session, "anchor", anchor)
