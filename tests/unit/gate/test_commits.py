"""An event loop is never held up twice by a slow store, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from aegis.core.ports import Store, Transaction
from aegis.core.receipt import Draft
from aegis.errors import StoreUnavailable
from aegis.gate import commits
from aegis.gate.commits import Commits
from aegis.gate.events import new_id
from aegis.keys.keyring import Keyring
from aegis.log.writer import Ledger, Unit
from aegis.store import open_store


class Disk:
    """A store whose commits take as long as the test says, and on which thread they ran."""

    is_remote = False

    def __init__(self, store: Store):
        self.store = store
        self.open = threading.Event()
        self.open.set()
        self.delay = 0.0
        self.threads: list[str] = []

    def transaction(self, *, wait_s: float | None = None) -> AbstractContextManager[Transaction]:
        return self._transaction(wait_s)

    @contextmanager
    def _transaction(self, wait_s: float | None) -> Iterator[Transaction]:
        self.threads.append(threading.current_thread().name)
        time.sleep(self.delay)
        self.open.wait()
        with self.store.transaction(wait_s=wait_s) as transaction:
            yield transaction


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(open_store("memory:", home=tmp_path, durability="os"))


@pytest.fixture
def work(disk: Disk, tmp_path: Path) -> Commits:
    ring = Keyring(tmp_path / "keys")
    ledger = Ledger(
        store=disk,  # type: ignore[arg-type]  # only `transaction` is used
        log="aegis/log/test",
        signer_for=ring.signer_for,
        seal=ring.seal,
        clock=lambda: 1,
    )
    commits = Commits(ledger)
    commits.expect_no_interruptions()
    return commits


def unit() -> Unit:
    return Unit(drafts=(Draft(members={"kind": "alarm", "receipt_id": new_id(), "principal": "p"}),))


async def test_the_units_of_one_tick_share_one_commit(work: Commits, disk: Disk) -> None:
    answers = await asyncio.gather(*(work.append(unit()) for _ in range(20)))
    assert len(disk.threads) == 1
    assert sorted(answer[0].index for answer in answers) == list(range(20))


async def test_after_a_slow_commit_a_thread_takes_over_until_commits_are_quick_again(work: Commits, disk: Disk) -> None:
    disk.delay = commits.SLOW_S * 2
    await work.append(unit())
    await work.append(unit())
    disk.delay = 0.0
    await work.append(unit())
    await work.append(unit())
    names = ["aegis-commit" if name == "aegis-commit" else "loop" for name in disk.threads]
    assert names == ["loop", "aegis-commit", "aegis-commit", "loop"]
    work.close()


async def test_a_store_that_hangs_refuses_and_leaves_the_loop_running(
    work: Commits, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "COMMIT_WAIT_S", 0.2)
    disk.delay = commits.SLOW_S * 2
    await work.append(unit())
    disk.open.clear()
    with pytest.raises(StoreUnavailable):
        await work.append(unit())
    disk.open.set()
    disk.delay = 0.0
    assert await work.append(unit())
    work.close()


async def test_a_caller_that_goes_away_disturbs_nobody(work: Commits) -> None:
    gone = asyncio.ensure_future(work.append(unit()))
    stays = asyncio.ensure_future(work.append(unit()))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays)[0].index in {0, 1}
    assert work.depth == 0


async def test_a_loop_does_not_wait_for_another_writer(disk: Disk, work: Commits) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with disk.store.transaction():
            held.set()
            done.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    waiting = asyncio.ensure_future(work.append(unit()))
    turns = 0
    while "aegis-commit" not in disk.threads:
        await asyncio.sleep(0.001)
        turns += 1
    assert not waiting.done()
    done.set()
    assert await waiting
    other.join()
    assert turns < 1_000
    work.close()
