"""How many tokens an answer of a model cost, as its provider says in it: in every dialect, whole or streamed.

Counts are looked for in the bytes, whatever frames them: a name that stands in a text of the answer has its quotes
escaped and is no count. Providers that report while they stream report sums, so that the largest of a name is meant.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aegis.core.patterns import Lazy

MAX_TOKENS: Final = 10**9  # of one answer: bounds what a provider that lies can take from a budget
BYTES_PER_TOKEN: Final = 4  # of what was sent or came, where no provider says how much it was
_KEPT: Final = 64  # bytes in which a count that two chunks share lies
_READ: Final = (
    b"prompt_tokens", b"input_tokens", b"cache_creation_input_tokens", b"cache_read_input_tokens", b"promptTokenCount",
    b"inputTokens", b"prompt_eval_count",
)  # fmt: skip
_WROTE: Final = (
    b"completion_tokens", b"output_tokens", b"candidatesTokenCount", b"thoughtsTokenCount", b"outputTokens",
    b"eval_count",
)  # fmt: skip
_COUNT: Final = Lazy(b'"(' + b"|".join((*_READ, *_WROTE)) + rb')"\s{0,4}:\s{0,4}(\d{1,15})')


class TokenMeter:
    """Reads the tokens of one answer as it comes. `sent` are the bytes of the request."""

    def __init__(self, sent: int):
        self._sent = sent
        self._came = 0
        self._last = b""
        self._found: dict[bytes, int] = {}

    def feed(self, data: bytes) -> None:
        """Take in the next bytes of the answer."""
        self._came += len(data)
        for name, digits in _COUNT.findall(self._last + data):
            self._found[name] = max(self._found.get(name, 0), min(int(digits), MAX_TOKENS))
        self._last = (self._last + data)[-_KEPT:]

    async def fed(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks, taken in as they pass."""
        async for chunk in chunks:
            self.feed(chunk)
            yield chunk

    @property
    def read(self) -> int:
        """Tokens that the model read: as reported, else by the size of the request."""
        return self._sum(_READ) or (self._sent // BYTES_PER_TOKEN if self._came else 0)

    @property
    def wrote(self) -> int:
        """Tokens that the model wrote: as reported, else by the size of the answer."""
        return self._sum(_WROTE) or self._came // BYTES_PER_TOKEN

    def _sum(self, names: tuple[bytes, ...]) -> int:
        return min(sum(self._found.get(name, 0) for name in names), MAX_TOKENS)
