"""Answers of httpx, of whatever generation, with another body or another stream."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final, cast

# They describe the bytes that came over the wire, not those that go on.
_OF_THE_WIRE: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


def with_body(response: Any, body: bytes) -> Any:
    """The same answer with another, already read body."""
    replaced = type(response)(content=body, **_rest(response))
    try:
        replaced.elapsed = response.elapsed
    except RuntimeError:
        return replaced  # not read to its end: nobody knows how long it took
    return replaced


def with_stream(response: Any, chunks: Iterator[bytes]) -> Any:
    """The same answer with another stream; closing it closes the original."""
    return type(response)(stream=_sync_class(_family(response))(response, chunks), **_rest(response))


def with_async_stream(response: Any, chunks: AsyncIterator[bytes]) -> Any:
    """The async twin of `with_stream`."""
    return type(response)(stream=_async_class(_family(response))(response, chunks), **_rest(response))


def _rest(response: Any) -> dict[str, Any]:
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _OF_THE_WIRE]
    return {
        "status_code": response.status_code,
        "headers": headers,
        "request": response.request,
        "extensions": response.extensions,
        "history": response.history,
        "default_encoding": response.default_encoding,
    }


def _family(response: Any) -> ModuleType:
    """The package that the answer's class comes from: it accepts only streams of its own kind."""
    return sys.modules[type(response).__module__.partition(".")[0]]


@cache
def _sync_class(family: ModuleType) -> type[Any]:
    class GatedStream(cast("type[Any]", family.SyncByteStream)):  # type: ignore[misc]
        def __init__(self, original: Any, chunks: Iterator[bytes]):
            self._original = original
            self._chunks = chunks

        def __iter__(self) -> Iterator[bytes]:
            return self._chunks

        def close(self) -> None:
            self._original.close()

        def __getattr__(self, name: str) -> Any:
            # Observers that the SDK has attached to the stream.
            return getattr(self._original.stream, name)

    return GatedStream


@cache
def _async_class(family: ModuleType) -> type[Any]:
    class AsyncGatedStream(cast("type[Any]", family.AsyncByteStream)):  # type: ignore[misc]
        def __init__(self, original: Any, chunks: AsyncIterator[bytes]):
            self._original = original
            self._chunks = chunks

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._chunks

        async def aclose(self) -> None:
            await self._original.aclose()

        def __getattr__(self, name: str) -> Any:
            # Observers that the SDK has attached to the stream.
            return getattr(self._original.stream, name)

    return AsyncGatedStream
