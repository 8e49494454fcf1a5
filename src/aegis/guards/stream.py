"""Results judged while they arrive: across chunk boundaries, in bounded memory, cut before a secret is complete.

The last bytes are held back (at most `HOLD_BYTES`, and no longer than `HOLD_SECONDS`), so that what
begins in one chunk and ends in another is seen before it is let through. Text of one piece is scanned
together with the end of what came before it. Conditions that need the whole hold all of it (`stream_whole`).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aegis.core.mission import Check, Postcondition
from aegis.core.outcome import Category
from aegis.guards.postconditions import FORBIDDEN
from aegis.guards.prefilter import Prefilter
from aegis.guards.stream_whole import Whole

HOLD_BYTES: Final = 256
HOLD_SECONDS: Final = 0.05
CONTEXT: Final = 512  # bytes of earlier text that a match can begin in
MAX_PLACES: Final = 256  # places of frames whose text is joined, each on its own: bounds memory
_WHOLE: Final[tuple[Check, ...]] = ("schema", "allowed_sources")
_ELSEWHERE: Final = "\x00"  # all further places, joined as one
PIECE: Final = 65_536  # larger chunks are taken in parts: bounds what is held and scanned at once


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamSummary:
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
        self._whole = Whole([one for one in conditions if one.check in _WHOLE], framed=framed)
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
