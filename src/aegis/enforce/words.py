"""What users say, as adapters hear it: at the entry of an agent's run, and nowhere inside.

(1) an entry is heard where no other run, model call or tool's body is around it: what those ask for is a model's word
(2) it is said in the host's session, once for each text; without a session nobody can be told
(3) a text that repeats what a result said is no user's, whatever its role says; a long one is a document
(4) words that cannot be recorded are missing, which only tightens: the run goes on, and the log says so
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

from aegis.core.bounded import Bounded
from aegis.core.decision import SaidTurn
from aegis.enforce.patching import Method
from aegis.enforce.scope import Session, aitems_in, current_scope, enter_again, is_outermost, items_in, scoped, within
from aegis.wire.model import ProxyDialect, Wire

MAX_TEXT_BYTES: Final = 65_536  # of a turn; what is longer is brought as a document
MAX_DOCUMENT_BYTES: Final = 1_048_576  # beside a turn; what is longer is not brought at all
MAX_KNOWN: Final = 10_000  # texts remembered as said, of all sessions: said again they are one turn more
MAX_READ_BYTES: Final = 8_388_608  # of results that are compared with what users seem to say
MAX_RESULTS: Final = 32  # of one session
_READ_CHARS: Final = 65_536  # of one result
_RUN: Final = 6  # words in a row that no two texts share by chance
_FEWEST: Final = 12  # characters of a whole result that is found again in a text

_log: Final = logging.getLogger("aegis")


class TurnHost(Protocol):
    """Whoever records what users say: a gate, or a client of one."""

    def add_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn: ...

    async def aadd_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn: ...


class SpokenTurn(NamedTuple):
    """One turn that is to be said."""

    session: str
    text: str
    documents: tuple[str, ...] = ()


class Words:
    """What was said and read in the sessions of this process."""

    def __init__(self, host: TurnHost | None):
        self.host = host
        self._lock = threading.Lock()
        self._said: Bounded[tuple[str, str], bool] = Bounded(MAX_KNOWN, 0)
        self._read: Bounded[str, tuple[str, ...]] = Bounded(MAX_KNOWN, MAX_READ_BYTES)

    def turns(self, session: Session | None, texts: Iterable[str], results: Iterable[Any] = ()) -> list[SpokenTurn]:
        """The turns of `texts` that were not said before; `results` are what else was read in their conversation."""
        if session is None or self.host is None:
            return []
        found: list[SpokenTurn] = []
        read: list[str] | None = None
        for text in texts:
            key = (session.name, _digest(text))
            with self._lock:
                if not text.strip() or text == session.task or self._said.get(key):
                    continue
                self._said.put(key, True)
            if read is None:
                read = [*self._known(session.name), *("\n".join(_texts(one))[:_READ_CHARS] for one in results)]
            size = len(text.encode(errors="replace"))
            if size > MAX_DOCUMENT_BYTES or repeats(text, read):
                _log.info("a text of role `user` was not taken for the user's words")
            elif size > MAX_TEXT_BYTES:
                found.append(SpokenTurn(session.name, "", (text,)))
            else:
                found.append(SpokenTurn(session.name, text))
        return found

    def read(self, session: Session | None, value: Any) -> None:
        """Remember what a result said, so that it is not taken for a user's words."""
        if session is None or self.host is None:
            return
        text = "\n".join(_texts(value))[:_READ_CHARS]
        if len(text) >= _FEWEST:
            with self._lock:
                texts = (*(self._read.get(session.name) or ())[1 - MAX_RESULTS :], text)
                self._read.put(session.name, texts, sum(map(len, texts)))

    def forget(self, turn: SpokenTurn) -> None:
        """Say a text again when it is heard again: it could not be recorded."""
        with self._lock:
            self._said.drop((turn.session, _digest(turn.text or turn.documents[0])))

    def _known(self, session: str) -> tuple[str, ...]:
        with self._lock:
            return self._read.get(session) or ()


def repeats(text: str, results: Iterable[str]) -> bool:
    """Whether a text holds a result, or six words in a row of one."""
    runs, folded = set(_runs(text)), " ".join(text.split())
    for one in results:
        whole = " ".join(one.split())
        if (len(whole) >= _FEWEST and whole in folded) or not runs.isdisjoint(_runs(one)):
            return True
    return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = text.split()
    return (tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))


def _texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value, from the outside in."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, (list, tuple, Mapping)):
            waiting.extend(one.values() if isinstance(one, Mapping) else one)


def words_in(dialect: ProxyDialect, request: Wire) -> list[str]:
    """What the user says in a request to a model: its texts of role `user`, without documents and tool results.

    A request that offers no tools is no agent's: what stands in it may be anything that is to be put into other words.
    """
    if not request.get("tools") and not request.get("toolConfig"):
        return []
    supplied = [thing for thing in dialect.supplied(request) if thing.kind == "text" and thing.path[0] != "prompt"]
    return [passage.text for thing in supplied for passage in thing.passages]


# The entries of frameworks.

# What the user said, out of what an entry is called with.
WordsOf = Callable[..., Iterable[str]]


class Hearer:
    """Says what users say to the decider; `say` and `asay` are those of the enforcement point."""

    def __init__(self, say: Callable[[Sequence[str]], Any], asay: Callable[[Sequence[str]], Any]):
        self._say = say
        self._asay = asay

    def entry(self, words_of: WordsOf, around: Callable[[Method], Method] | None = None) -> Callable[[Method], Method]:
        """Make a replacement of a run's entry that says the user's words first; sync, async, or giving items.

        `around` makes another replacement, which is called inside.
        """

        def wrap(original: Method) -> Method:
            inner = original if around is None else around(original)
            if inspect.isasyncgenfunction(original):
                return self._astreamed(inner, words_of)
            if inspect.iscoroutinefunction(original):
                return self._awaited(inner, words_of)
            return self._called(inner, words_of)

        return wrap

    def context(self, words_of: WordsOf) -> Callable[[Method], Method]:
        """`entry` for a run that is an async context manager."""

        def wrap(original: Method) -> Method:
            @asynccontextmanager
            async def entered(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                await self._asay(heard(words_of, args, kwargs))
                leave = enter_again()
                try:
                    async with original(*args, **kwargs) as run:
                        yield run
                finally:
                    leave()

            return entered

        return wrap

    def _called(self, original: Method, words_of: WordsOf) -> Method:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._say(heard(words_of, args, kwargs))
            scope = current_scope()
            with scoped(scope):
                result = original(*args, **kwargs)
            if inspect.isgenerator(result):
                return items_in(scope, result)
            return aitems_in(scope, result) if inspect.isasyncgen(result) else result

        return call

    def _awaited(self, original: Method, words_of: WordsOf) -> Method:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._asay(heard(words_of, args, kwargs))
            with within():
                return await original(*args, **kwargs)

        return call

    def _astreamed(self, original: Method, words_of: WordsOf) -> Method:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._asay(heard(words_of, args, kwargs))
            async for item in aitems_in(current_scope(), original(*args, **kwargs)):
                yield item

        return call


def heard(words_of: WordsOf, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """What the user says with an entry; nothing where it lies inside another run, or cannot be read."""
    if not is_outermost():
        return []
    try:
        return [text for text in words_of(*args, **kwargs) if isinstance(text, str)]
    except Exception as error:
        _log.warning("the user's words could not be read at the entry of a run: %s", type(error).__name__)
        return []


def user_texts(items: Any) -> Iterator[str]:
    """The texts of role `user` in messages, as mappings, pairs or objects; parts that are no text are left out."""
    for one in items if isinstance(items, (list, tuple)) else [items]:
        if isinstance(one, str):
            yield one
            continue
        if isinstance(one, tuple) and len(one) == 2:
            role, content = one
        elif isinstance(one, Mapping):
            role, content = one.get("role", one.get("type")), one.get("content")
        else:
            role, content = getattr(one, "role", None) or getattr(one, "type", None), getattr(one, "content", None)
        if getattr(role, "value", role) in {"user", "human"}:
            yield from part_texts(content)


def part_texts(content: Any) -> Iterator[str]:
    """The texts of a message's content: itself, or those of its parts that are plain text."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, (list, tuple)):
        for part in content:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Mapping) and part.get("type") in {"text", "input_text"}:
                text = part.get("text")
                if isinstance(text, str):
                    yield text
