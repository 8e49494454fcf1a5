"""Results judged while they arrive: across chunk boundaries, in bounded memory, cut before a secret is complete.

The last bytes are held back (at most `HOLD_BYTES`, and no longer than `HOLD_SECONDS`), so that what
begins in one chunk and ends in another is seen before it is let through. Text of one piece is scanned
together with the end of what came before it. Conditions that need the whole hold all of it (`stream_whole`).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import Struct

from aegis.core.mission import Check, Postcondition
from aegis.core.outcome import Category
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.engine import make_engines
from aegis.detect.rules.scanner import Scanner, patterns_of, screen
from aegis.policy.guards.postconditions import FORBIDDEN, is_from_allowed, is_shaped

# Whether something of some categories occurs in a piece of text, in the time that clean text allows.
#
# (1) the screens of all patterns at once, which pass over prose; or the patterns themselves, which pass
#     over tables of figures faster
# (2) what the screens found, with the patterns themselves
# (3) what is left, with the scanner, which confirms and checks it

_SAMPLE: Final = 1_024  # bytes by which a text is taken for prose or for figures
_FIGURES: Final = 8  # one digit in so many characters: screens that begin with a digit begin everywhere
_DIGITS: Final = b"0123456789"


class Prefilter:
    """Finds quickly that no pattern of some categories occurs; a hit is looked at again by the scanner."""

    def __init__(self, scanner: Scanner, categories: Iterable[Category]):
        self.categories = frozenset(categories)
        rules = [one for one in scanner.rules.rules if one.category in self.categories and "result" in one.surfaces]
        patterns = [pattern for rule in rules for pattern in patterns_of(rule)]
        cache = default_cache_folder()
        self._scanner = scanner
        screens = list(dict.fromkeys(map(screen, patterns)))
        self._exact, self._screens = make_engines([patterns, screens], cache=cache)

    def found(self, data: bytes) -> frozenset[Category]:
        """The categories of which something occurs in `data`."""
        if not self._may_occur(data):
            return frozenset()
        hits = self._scanner.scan(data.decode("utf-8", "replace"), "result")
        return frozenset(hit.rule.category for hit in hits) & self.categories

    def _may_occur(self, data: bytes) -> bool:
        if self._is_hit(data):
            return True
        if data.isascii():
            return False
        # The engine folds the case of ASCII alone; other scripts are folded here, as the scanner does.
        text = data.decode("utf-8", "replace")
        lowered = text.lower()
        return lowered != text and self._is_hit(lowered.encode("utf-8", "replace"))

    def _is_hit(self, data: bytes) -> bool:
        sample = data[:_SAMPLE]
        is_prose = (len(sample) - len(sample.translate(None, _DIGITS))) * _FIGURES < len(sample)
        if is_prose and not self._screens.hits(data):
            return False
        return bool(self._exact.hits(data))


# Streams of frames: server-sent events and MCP's lines of JSON, with the text that a reader sees of each.

MAX_FRAME: Final = 1_048_576  # one frame that never ends is refused: bounds what is held
# An event ends with an empty line; lines end with LF, CR LF or CR (HTML, 9.2.5).
EVENT_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")
LINE_ENDS: Final = (b"\n",)
_DATA: Final = b"data"


class FrameTooLarge(ValueError):
    """A frame grew beyond `MAX_FRAME` bytes."""


class Frames:
    """Divides bytes into frames, byte for byte; what follows the last ending waits for more."""

    def __init__(self, endings: tuple[bytes, ...]):
        self._endings = endings
        self._overlap = max(len(one) for one in endings) - 1
        self._rest = bytearray()
        self._seen = 0  # bytes of the rest in which no ending begins

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Every frame that is complete now, its ending included."""
        self._rest += data
        while True:
            ends = [at + len(one) for one in self._endings if (at := self._rest.find(one, self._seen)) >= 0]
            if not ends:
                break
            end = min(ends)
            frame = bytes(self._rest[:end])
            del self._rest[:end]
            self._seen = 0
            yield frame
        self._seen = max(0, len(self._rest) - self._overlap)
        if len(self._rest) > MAX_FRAME:
            raise FrameTooLarge("a frame of the stream is too large")

    def rest(self) -> bytes:
        """What came after the last frame."""
        rest, self._rest, self._seen = bytes(self._rest), bytearray(), 0
        return rest


def event_texts(frame: bytes) -> dict[str, bytes]:
    """What one server-sent event says: its data, of JSON data every text by its place, and its other lines."""
    data: list[bytes] = []
    others: list[bytes] = []
    for line in frame.splitlines():
        name, _, value = line.partition(b":")
        (data if name == _DATA else others).append(value.removeprefix(b" ") if name == _DATA else line)
    texts = json_texts(b"\n".join(data))
    said = b"\n".join(one for one in others if one)
    return {**texts, ":": said} if said else texts


def json_texts(data: bytes) -> dict[str, bytes]:
    """Every string, number and name of JSON by its place, where items of a list share one; other data as it is.

    What a place says in one frame goes on in the next: an envelope around it divides nothing.
    """
    try:
        root = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {"": data}
    found: dict[str, list[str]] = {}
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        place, value = stack.pop()
        if isinstance(value, str):
            found.setdefault(place, []).append(value)
        elif isinstance(value, dict):
            found.setdefault(f"{place}/", []).extend([f" {key} " for key in value])
            stack.extend([(f"{place}/{key}", inner) for key, inner in reversed(value.items())])
        elif isinstance(value, list):
            stack.extend([(place, inner) for inner in reversed(value)])
        elif value is not None and not isinstance(value, bool):
            found.setdefault(place, []).append(f" {value} ")
    return {place: "".join(parts).encode() for place, parts in found.items()}


# Conditions that need the whole of a stream: it is held up to a bound, and judged when it ends.
#
# Nothing of a stream is passed on before such a condition is judged. A stream that grows beyond the bound cannot be
# judged: it goes on, or ends there, as the policy for missing evidence says.

WHOLE_BYTES: Final = 1_048_576  # what is held for such a condition: bounds memory, and is what results are read to


class WholeStream:
    """What one stream says, as far as it is kept; `framed` says that pieces come with the texts at their places."""

    def __init__(self, conditions: Sequence[Postcondition], *, framed: bool):
        self._conditions = conditions
        self._framed = framed
        self._texts: dict[str, list[bytes]] = {}
        self._size = 0
        # Frames are an envelope of many values: a schema of the result says nothing about them.
        self.unjudged = tuple(one.id for one in conditions if framed and one.check == "schema")

    @property
    def is_held(self) -> bool:
        """Whether everything that came may still be judged."""
        return bool(self._conditions) and not self.unjudged

    def take(self, size: int, texts: Mapping[str, bytes]) -> None:
        """Keep what a piece of `size` bytes says; beyond the bound nothing is kept, and all are `unjudged`."""
        if not self.is_held:
            return
        self._size += max(size, sum(map(len, texts.values())))
        if self._size > WHOLE_BYTES:
            self._texts.clear()
            self.unjudged = tuple(one.id for one in self._conditions)
            return
        for place, text in texts.items():
            self._texts.setdefault(place, []).append(text)

    def failed(self) -> tuple[Postcondition, ...]:
        """The conditions that the whole does not meet."""
        if not self.is_held:
            return ()
        said = [b"".join(parts).decode("utf-8", "replace") for parts in self._texts.values()]
        return tuple(
            one
            for one in self._conditions
            if not (is_from_allowed(said, one) if one.check == "allowed_sources" else is_shaped("".join(said), one))
        )


HOLD_BYTES: Final = 256
HOLD_SECONDS: Final = 0.05
CONTEXT: Final = 512  # bytes of earlier text that a match can begin in
MAX_PLACES: Final = 256  # places of frames whose text is joined, each on its own: bounds memory
_WHOLE: Final[tuple[Check, ...]] = ("schema", "allowed_sources")
_ELSEWHERE: Final = "\x00"  # all further places, joined as one
PIECE: Final = 65_536  # larger chunks are taken in parts: bounds what is held and scanned at once


class StreamSummary(Struct, frozen=True, kw_only=True):
    """What a stream came to.

    `failed` names the conditions for which it was cut, `noted` others that did not hold, `unjudged` those
    that could not be judged; `broken` says that it ended early.
    """

    size: int
    digest: str | None = None
    failed: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    broken: bool = False


class StreamJudge:
    """One stream under its conditions. Feed it pieces; it gives back what may be let through.

    Once a condition fails nothing more is let through, and `failed` names it; one whose recourse does not
    withhold is `noted`. `framed` says that pieces are frames; `opens` that what cannot be judged goes on.
    `digest` digests the whole stream as well, which costs more than judging it.
    """

    def __init__(
        self,
        conditions: Sequence[Postcondition],
        prefilter_for: Callable[[frozenset[Category]], Prefilter],
        *,
        hold: int = HOLD_BYTES,
        digest: bool = False,
        framed: bool = False,
        opens: bool = False,
    ):
        self._opens = opens
        self._limits = tuple(one for one in conditions if one.check == "max_bytes")
        self._whole = WholeStream([one for one in conditions if one.check in _WHOLE], framed=framed)
        # Conditions that look at the same beginning share a scan, so that a window costs nothing beyond it.
        windows: dict[int, list[Postcondition]] = {}
        for one in conditions:
            if one.check in FORBIDDEN:
                windows.setdefault(one.window, []).append(one)
        self._groups = tuple(
            (window, tuple(group), prefilter_for(frozenset().union(*(FORBIDDEN[one.check] for one in group))))
            for window, group in windows.items()
        )
        self._hold = hold
        self._held: deque[tuple[bytes, int]] = deque()  # pieces, and how much text each brought
        self._held_text = 0
        self._contexts: dict[str, bytes] = {}  # the end of the text before, for each place it stands at
        self._hash = hashlib.sha256() if digest else None
        self._since: float | None = None
        self.size = 0
        self.seen = 0
        self.failed: tuple[str, ...] = ()
        self.noted: tuple[str, ...] = ()

    def feed(self, piece: bytes, now: float, *, texts: Mapping[str, bytes] | None = None) -> bytes:
        """Take one piece at `now` (monotonic seconds); the bytes that may be let through.

        `texts` is what a reader of the stream would see of it: of a frame the text at each of its
        places, which goes on in the next frame; without it, the piece itself.
        """
        if texts is not None:
            return self._take(piece, texts, now)
        parts = (piece[start : start + PIECE] for start in range(0, len(piece), PIECE))
        return b"".join([self._take(part, {"": part}, now) for part in parts])

    @property
    def holds(self) -> bool:
        """Whether something is held back that will be due."""
        return self._since is not None and not self.is_cut and not self._whole.is_held

    @property
    def is_cut(self) -> bool:
        """Whether nothing more is let through: a condition failed, or cannot be judged and must be."""
        return bool(self.failed) or (bool(self._whole.unjudged) and not self._opens)

    def patience(self, now: float) -> float | None:
        """For how many seconds from `now` more may be waited for until something is due; `None`: for ever."""
        return max(0.0, self._since + HOLD_SECONDS - now) if self.holds and self._since is not None else None

    def due(self, now: float) -> bytes:
        """What was held for as long as the promise allows."""
        if not self.holds or self._since is None or now - self._since < HOLD_SECONDS:
            return b""
        return self._release(0, now)

    def finish(self) -> bytes:
        """The rest, at the end of the stream, where the whole meets its conditions."""
        if not self.is_cut:
            self._fail(self._whole.failed())
        return b"" if self.is_cut else self._release(0, 0.0)

    def summary(self, *, broken: bool = False) -> StreamSummary:
        """What the stream came to; `broken` where it ended before its end."""
        return StreamSummary(
            size=self.size,
            digest=None if self._hash is None else "sha-256:" + self._hash.hexdigest(),
            failed=self.failed,
            noted=self.noted,
            unjudged=self._whole.unjudged,
            broken=broken,
        )

    def _take(self, piece: bytes, texts: Mapping[str, bytes], now: float) -> bytes:
        if self.is_cut:
            return b""
        self.size += len(piece)
        if self._hash is not None:
            self._hash.update(piece)
        self._fail([one for one in self._limits if self.size > one.limit])
        for window, conditions, prefilter in self._groups:
            if window and self.seen >= window:
                continue
            open_still = [one for one in conditions if one.id not in self.noted]
            if open_still and not self.is_cut:
                self._fail(self._judge(texts, window, open_still, prefilter))
        self._whole.take(len(piece), texts)
        if self.is_cut:
            return b""
        length = sum(len(text) for text in texts.values())
        self.seen += length
        for name, text in texts.items():
            place = self._place(name)
            if len(text) >= CONTEXT:
                self._contexts[place] = text[-CONTEXT:]
            else:
                self._contexts[place] = (self._contexts.get(place, b"") + text)[-CONTEXT:]
        self._held.append((piece, length))
        self._held_text += length
        if self._since is None:
            self._since = now
        return b"" if self._whole.is_held else self.due(now) or self._release(self._hold, now)

    def _fail(self, conditions: Sequence[Postcondition]) -> None:
        """Cut the stream, or note what does not hold, as the recourse of the conditions says."""
        for one in conditions:
            if "withhold" in one.recourse:
                self.failed = tuple(dict.fromkeys((*self.failed, one.id)))
            else:
                self.noted = tuple(dict.fromkeys((*self.noted, one.id)))

    def _place(self, name: str) -> str:
        """Where the text before that of `name` is kept."""
        return name if name in self._contexts or len(self._contexts) < MAX_PLACES else _ELSEWHERE

    def _judge(
        self, texts: Mapping[str, bytes], window: int, conditions: Sequence[Postcondition], prefilter: Prefilter
    ) -> list[Postcondition]:
        """The conditions that the next texts do not meet, together with what came before them."""
        failed: list[Postcondition] = []
        for place, text in texts.items():
            before = self._contexts.get(self._place(place), b"")
            data = before + text if before else text
            if window:
                data = data[: window - self.seen + len(before)]
            found = prefilter.found(data)
            if found:
                failed.extend(one for one in conditions if found & FORBIDDEN[one.check])
        return failed

    def _release(self, keep: int, now: float) -> bytes:
        """Everything but the last `keep` bytes of text; a plain piece is divided, a framed one is not."""
        out: list[bytes | memoryview] = []
        while self._held and self._held_text > keep:
            piece, length = self._held[0]
            if self._held_text - length >= keep:
                self._held.popleft()
                self._held_text -= length
                out.append(piece)
                continue
            if length != len(piece):
                break
            cut = self._held_text - keep
            out.append(memoryview(piece)[:cut])
            self._held[0] = (piece[cut:], length - cut)
            self._held_text = keep
        if keep == 0:
            out.extend(piece for piece, _ in self._held)
            self._held.clear()
            self._held_text = 0
        if out or not self._held:
            self._since = now if self._held else None
        return b"".join(out)
