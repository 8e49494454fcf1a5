"""The feed: bounded queues, no gap, no entry twice."""

from __future__ import annotations

import asyncio

import pytest

from aegis.errors import InvalidCall
from aegis.server import feed as feeds
from aegis.server.feed import Dropped, Feed, Subscription
from aegis.store.sqlite import MemoryStore


async def test_a_subscriber_that_does_not_read_is_dropped_without_a_gap() -> None:
    subscription: Subscription[int] = Subscription(0)
    for number in range(feeds.QUEUE_PAGES + 10):
        subscription.put([number])
    read = [(await subscription.get(1))[0] for _ in range(feeds.QUEUE_PAGES)]
    assert read == list(range(feeds.QUEUE_PAGES))
    subscription.put([999])
    with pytest.raises(Dropped):
        await subscription.get(1)


async def test_a_quiet_feed_answers_with_nothing() -> None:
    assert await Subscription[int](0).get(0.01) == []


async def test_only_so_many_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MAX_SUBSCRIBERS", 2)
    feed: Feed[int] = Feed(MemoryStore(), lambda store, entries: [entry.index for entry in entries])
    first, _ = await asyncio.gather(feed.subscribe(), feed.subscribe())
    with pytest.raises(InvalidCall) as refused:
        await feed.subscribe()
    assert refused.value.status == 429
    feed.leave(first)
    await feed.subscribe()
    await feed.close()


async def test_a_feed_that_fails_lets_its_subscribers_go() -> None:
    store = MemoryStore()

    def broken(store: object, entries: object) -> list[int]:
        raise RuntimeError("cannot be shaped")

    feed: Feed[int] = Feed(store, broken)
    subscription = await feed.subscribe()
    with pytest.raises(Dropped):
        for _ in range(100):
            await subscription.get(0.05)
    await feed.close()
