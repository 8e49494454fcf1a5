"""Results judged while they arrive: across chunk boundaries, in bounded memory, cut before a secret is complete.

The last bytes are held back (at most `HOLD_BYTES`, and no longer than `HOLD_SECONDS`), so that what
begins in one chunk and ends in another is seen before it is let through. Text of one piece is scanned
together with the end of what came before it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aegis.core.mission import Postcondition
from aegis.core.outcome import Category
from aegis.guards.postconditions import FORBIDDEN
from aegis.guards.prefilter import Prefilter

HOLD_BYTES: Final = 256
HOLD_SECONDS: Final = 0.05
CONTEXT: Final = 512  # bytes of earlier text that a match can begin in
MAX_PLACES: Final = 256  # places of frames whose text is joined, each on its own: bounds memory
_ELSEWHERE: Final = "\x00"  # all further places, joined as one
PIECE: Final = 65_536  # larger chunks are taken in parts: bounds what is held and scanned at once


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamSummary:
    """What a stream came to. `failed` names the conditions that did not hold; `broken` that it ended early."""

    size: int
    digest: str | None = None
    failed: tuple[str, ...] = ()
    broken: bool = False


class StreamJudge:
    """One stream under its conditions. Feed it pieces; it gives back what may be let through.

    Once a condition fails nothing more is let through, and `failed` names it. `digest` digests the
    whole stream as well, which costs more than judging it.
    """

    def __init__(
        self,
        conditions: Sequence[Postcondition],
        prefilter_for: Callable[[frozenset[Category]], Prefilter],
        *,
        hold: int = HOLD_BYTES,
        digest: bool = False,
    ):
        self._limits = tuple((one.limit, one.id) for one in conditions if one.check == "max_bytes")
        # What needs the whole result is not judged on a stream, and is named as missing.
        self.unjudged = tuple(one.id for one in conditions if one.check not in (*FORBIDDEN, "max_bytes", "signed"))
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
        return self._since is not None and not self.failed

    def due(self, now: float) -> bytes:
        """What was held for as long as the promise allows."""
        if self.failed or self._since is None or now - self._since < HOLD_SECONDS:
            return b""
        return self._release(0, now)

    def finish(self) -> bytes:
        """The rest, at the end of the stream."""
        return b"" if self.failed else self._release(0, 0.0)

    def summary(self, *, broken: bool = False) -> StreamSummary:
        """What the stream came to; `broken` where it ended before its end."""
        return StreamSummary(
            size=self.size,
            digest=None if self._hash is None else "sha-256:" + self._hash.hexdigest(),
            failed=self.failed,
            broken=broken,
        )

    def _take(self, piece: bytes, texts: Mapping[str, bytes], now: float) -> bytes:
        if self.failed:
            return b""
        self.size += len(piece)
        if self._hash is not None:
            self._hash.update(piece)
        over = tuple(name for limit, name in self._limits if self.size > limit)
        if over:
            self.failed = over
            return b""
        for window, conditions, prefilter in self._groups:
            if window and self.seen >= window:
                continue
            self.failed = self._judge(texts, window, conditions, prefilter)
            if self.failed:
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
        return self.due(now) or self._release(self._hold, now)

    def _place(self, name: str) -> str:
        """Where the text before that of `name` is kept."""
        return name if name in self._contexts or len(self._contexts) < MAX_PLACES else _ELSEWHERE

    def _judge(
        self, texts: Mapping[str, bytes], window: int, conditions: Sequence[Postcondition], prefilter: Prefilter
    ) -> tuple[str, ...]:
        """The conditions that the next texts do not meet, together with what came before them."""
        failed: list[str] = []
        for place, text in texts.items():
            before = self._contexts.get(self._place(place), b"")
            data = before + text if before else text
            if window:
                data = data[: window - self.seen + len(before)]
            found = prefilter.found(data)
            if found:
                failed.extend(one.id for one in conditions if found & FORBIDDEN[one.check])
        return tuple(dict.fromkeys(failed))

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
