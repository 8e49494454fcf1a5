"""Results judged while they arrive: across chunk boundaries, in bounded memory, cut before a secret is complete.

The last bytes are held back (at most `HOLD_BYTES`, and no longer than `HOLD_SECONDS`), so that what
begins in one chunk and ends in another is seen before it is let through. Text of one piece is scanned
together with the end of what came before it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aegis.core.mission import Postcondition
from aegis.core.outcome import Category
from aegis.guards.postconditions import FORBIDDEN
from aegis.rules.engine import Engine, Pattern, make_engine
from aegis.rules.scanner import Scanner

HOLD_BYTES: Final = 256
HOLD_SECONDS: Final = 0.05
CONTEXT: Final = 512  # bytes of earlier text that a match can begin in
PIECE: Final = 65_536  # larger chunks are taken in parts: bounds what is held and scanned at once


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamSummary:
    """What a stream came to. `failed` names the conditions that did not hold; `broken` that it ended early."""

    size: int
    digest: str
    failed: tuple[str, ...] = ()
    broken: bool = False


class Prefilter:
    """Finds quickly that no pattern of some categories occurs; a hit is looked at again by the scanner."""

    def __init__(self, scanner: Scanner, categories: Iterable[Category]):
        self.categories = frozenset(categories)
        rules = [rule for rule in scanner.rules.rules if rule.category in self.categories]
        self._scanner = scanner
        self._engine: Engine = make_engine(
            [Pattern(text, rule.case_sensitive) for rule in rules for text in rule.patterns], cache=None
        )

    def found(self, data: bytes) -> frozenset[Category]:
        """The categories of which something occurs in `data`."""
        if not self._engine.hits(data):
            return frozenset()
        hits = self._scanner.scan(data.decode("utf-8", "replace"), "result")
        return frozenset(hit.rule.category for hit in hits) & self.categories


class StreamJudge:
    """One stream under its conditions. Feed it pieces; it gives back what may be let through.

    Once a condition fails nothing more is let through, and `failed` names it.
    """

    def __init__(self, conditions: Sequence[Postcondition], prefilter: Prefilter, *, hold: int = HOLD_BYTES):
        self._conditions = tuple(one for one in conditions if one.check in FORBIDDEN)
        self._limits = tuple((one.limit, one.id) for one in conditions if one.check == "max_bytes")
        # What needs the whole result is not judged on a stream, and is named as missing.
        self.unjudged = tuple(one.id for one in conditions if one.check not in (*FORBIDDEN, "max_bytes", "signed"))
        self._widest = (
            0
            if any(one.window == 0 for one in self._conditions)
            else max((one.window for one in self._conditions), default=0)
        )
        self._prefilter = prefilter
        self._hold = hold
        self._held: deque[tuple[bytes, int]] = deque()  # pieces, and how much text each brought
        self._held_text = 0
        self._context = b""
        self._hash = hashlib.sha256()
        self._since: float | None = None
        self.size = 0
        self.seen = 0
        self.failed: tuple[str, ...] = ()

    def feed(self, piece: bytes, now: float, *, text: bytes | None = None) -> bytes:
        """Take one piece at `now` (monotonic seconds); the bytes that may be let through.

        `text` is what a reader of the stream would see of it (a frame without its envelope); without
        it, the piece itself.
        """
        out = [] if len(piece) > PIECE and text is None else [self._take(piece, piece if text is None else text, now)]
        if not out:
            out = [
                self._take(part, part, now)
                for part in (piece[start : start + PIECE] for start in range(0, len(piece), PIECE))
            ]
        return b"".join(out)

    def due(self, now: float) -> bytes:
        """What was held for as long as the promise allows."""
        if self.failed or self._since is None or now - self._since < HOLD_SECONDS:
            return b""
        return self._release(0)

    def finish(self) -> bytes:
        """The rest, at the end of the stream."""
        return b"" if self.failed else self._release(0)

    def summary(self, *, broken: bool = False) -> StreamSummary:
        """What the stream came to; `broken` where it ended before its end."""
        return StreamSummary(
            size=self.size, digest="sha-256:" + self._hash.hexdigest(), failed=self.failed, broken=broken
        )

    def _take(self, piece: bytes, text: bytes, now: float) -> bytes:
        if self.failed:
            return b""
        self.size += len(piece)
        self._hash.update(piece)
        over = tuple(name for limit, name in self._limits if self.size > limit)
        if over:
            self.failed = over
            return b""
        if self._conditions and (self._widest == 0 or self.seen < self._widest):
            self.failed = self._judge(text)
            if self.failed:
                return b""
        self.seen += len(text)
        self._context = (self._context + text)[-CONTEXT:] if len(text) < CONTEXT else text[-CONTEXT:]
        self._held.append((piece, len(text)))
        self._held_text += len(text)
        if self._since is None:
            self._since = now
        return self.due(now) or self._release(self._hold)

    def _judge(self, text: bytes) -> tuple[str, ...]:
        failed: list[str] = []
        data = self._context + text
        found = self._prefilter.found(data)
        if not found:
            return ()
        for one in self._conditions:
            if not one.window:
                hit = bool(found & FORBIDDEN[one.check])
            else:
                inside = data[: max(0, one.window - self.seen + len(self._context))]
                hit = bool(self._prefilter.found(inside) & FORBIDDEN[one.check])
            if hit:
                failed.append(one.id)
        return tuple(failed)

    def _release(self, keep: int) -> bytes:
        """Everything but the last `keep` bytes of text; a plain piece is divided, a framed one is not."""
        out: list[bytes] = []
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
            out.append(piece[:cut])
            self._held[0] = (piece[cut:], length - cut)
            self._held_text = keep
        if keep == 0:
            out.extend(piece for piece, _ in self._held)
            self._held.clear()
            self._held_text = 0
        self._since = None if not self._held else self._since if not out else self._since
        return b"".join(out)
