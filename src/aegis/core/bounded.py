"""A dictionary of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """A dictionary that forgets what was used least recently. Not safe for threads by itself."""

    def __init__(self, max_items: int, max_weight: int) -> None:
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._max_items = max_items
        self._max_weight = max_weight
        self._weight = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: K) -> V | None:
        """The value, which counts as used now, or `None`."""
        found = self._items.get(key)
        if found is None:
            return None
        self._items.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Remember a value; one that is heavier than all may be together is not remembered."""
        if key in self._items:
            self.drop(key)
        if weight > self._max_weight:
            return
        self._items[key] = (value, weight)
        self._weight += weight
        while len(self._items) > self._max_items or self._weight > self._max_weight:
            _, (_, gone) = self._items.popitem(last=False)
            self._weight -= gone

    def drop(self, key: K) -> None:
        """Forget a value, if it is there."""
        found = self._items.pop(key, None)
        if found is not None:
            self._weight -= found[1]
