"""A source that blocks, read so that its silence is noticed: what was held back can be released in time."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Item(Generic[T]):
    __slots__ = ("value",)

    def __init__(self, value: T):
        self.value = value


class _End:
    __slots__ = ("error",)

    def __init__(self, error: BaseException | None):
        self.error = error


def pumped(source: Iterable[T], patience: Callable[[], float | None]) -> Generator[T | None]:
    """Every item of `source`, and `None` whenever it was silent for `patience()` seconds (`None`: for ever).

    The source runs in a thread of its own, in the context of the caller and at most one item ahead; what it
    raises is raised here. A list or a tuple is never silent, and needs no thread.
    """
    if isinstance(source, list | tuple):
        yield from source
        return
    items: queue.SimpleQueue[_Item[T] | _End] = queue.SimpleQueue()
    room = threading.Semaphore(1)
    left = threading.Event()

    def pump() -> None:
        try:
            iterator = iter(source)
            while room.acquire() and not left.is_set():
                try:
                    value = next(iterator)
                except StopIteration:
                    break
                items.put(_Item(value))
        except BaseException as error:
            items.put(_End(error))
        else:
            items.put(_End(None))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(pump,), name="aegis-source", daemon=True).start()
    try:
        while True:
            try:
                item = items.get(timeout=patience())
            except queue.Empty:
                yield None
                continue
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            room.release()
            yield item.value
    finally:
        left.set()
        room.release()
