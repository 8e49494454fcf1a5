"""Every document of a collection, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aegis.core.ports import Document, Reader

PAGE: Final = 1_000


def every(reader: Reader, collection: str) -> Iterator[Document]:
    """The documents of `collection` in the order of their keys, in bounded memory."""
    after = ""
    while page := reader.documents(collection, after=after, limit=PAGE):
        yield from page
        after = page[-1].key
