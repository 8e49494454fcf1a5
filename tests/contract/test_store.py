"""What every store guarantees, over every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from aegis.core.ports import Store
from aegis.store import open_store
from aegis.store.sqlite import store as sqlite_store
from aegis.testing.stores import *  # noqa: F403 - the tests, each by its name
from aegis.testing.stores import Open
from support.postgres import Server

ENGINES = ["memory:", "sqlite:///log.db", "postgresql:"]


@pytest.fixture(params=ENGINES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[Store] = []
    server: Server | None = request.getfixturevalue("postgres_server") if request.param == "postgresql:" else None

    def open_one() -> Store:
        home = tmp_path / str(len(opened))
        url = request.param if server is None else server.database()
        store = open_store(url, home=home, durability="os", busy_s=0.2)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture(name="patient")
def patient_store(make: Open) -> Store:
    """A store whose writers wait long: what is tested is the order, not the patience."""
    store = make()
    store._busy_s = 30.0  # type: ignore[attr-defined]
    return store


@pytest.fixture(name="indexing")
def index_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[st.DataObject], None]:
    """However far the index has come: its steps are drawn as well."""

    def draw(data: st.DataObject) -> None:
        monkeypatch.setattr(sqlite_store, "INDEX_STEP", data.draw(st.integers(1, 9)))
        monkeypatch.setattr(sqlite_store, "INDEX_STEPS", data.draw(st.integers(1, 3)))

    return draw
