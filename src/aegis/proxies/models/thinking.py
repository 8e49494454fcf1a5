"""The reasoning of one conversation: what the model gave is remembered, and what comes back is held against it.

Of each signed block the book keeps a digest under that of its signature. A block that comes back with the same
signature and another text was changed; one that was never given here is strange where the conversation was seen from
its first signed block on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aegis.core.canonical import canonical, sha256
from aegis.core.ports import Document
from aegis.core.reasoning import Reasoning, ReasoningBlock, reasoning_of
from aegis.enforce.enforcement import log
from aegis.proxies.models.book import Book, BookScope
from aegis.wire.model import Wire
from aegis.wire.reasoning import ReasoningReader, sent_back

_BEGUN = "begun"


class ReasoningWatch:
    """What one request and its answer bring of reasoning."""

    def __init__(self, book: Book, scope: BookScope) -> None:
        self._book = book
        self._scope = scope
        self._reader = ReasoningReader()
        self._noted = 0
        self._changed = 0
        self._begins = False

    def heard(self, request: Wire) -> None:
        """Hold what comes back in a request against what was given."""
        signed = {block.digest: block for block in map(_named, sent_back(request)) if block.signature}
        self._begins = bool(self._scope.session) and not signed
        if not signed:
            return
        is_known = bool(self._scope.session) and self._book.signed(self._scope, _BEGUN) is not None
        for digest, block in signed.items():
            given = self._book.signed(self._scope, sha256(canonical(block.signature)))
            if given is None and not is_known:
                continue
            if given != digest:
                self._changed += 1
        if self._changed:
            log.warning("signed reasoning came back other than the model gave it: %d blocks", self._changed)

    def whole(self, answer: Wire) -> None:
        """Take a whole answer."""
        self._reader.whole(answer)

    def take(self, value: Any) -> bool:
        """Take an event of a streamed answer; whether it brought reasoning."""
        return self._reader.take(value)

    def reasoning(self) -> Reasoning | None:
        """What the calls of the answer are made for, as far as it is known now."""
        return reasoning_of(self._reader.finished(), changed=self._changed)

    def documents(self) -> Sequence[Document]:
        """What has to be durable of the blocks that came since the last time."""
        fresh = [block for block in map(_named, self._reader.blocks[self._noted :]) if block.signature]
        self._noted = len(self._reader.blocks)
        found = [
            self._book.learn_signed(self._scope, sha256(canonical(block.signature)), block.digest) for block in fresh
        ]
        if found and self._begins:
            self._begins = False
            found.append(self._book.learn_signed(self._scope, _BEGUN, _BEGUN))
        return found


def _named(block: ReasoningBlock) -> ReasoningBlock:
    """A block that can be digested, whatever it holds."""
    kept = reasoning_of([block])
    return block if kept is None else ReasoningBlock(text=kept.blocks[0].text, signature=kept.blocks[0].signature)
