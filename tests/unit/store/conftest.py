"""What the tests of the SQLite store begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aegis.store.sqlite import SqliteStore, redo


@pytest.fixture
def nobody_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is acknowledged stays in the redo file until something else moves it."""
    monkeypatch.setattr(redo, "LAG_S", 3_600.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path, durability="fsync", busy_s=0.2)
    yield opened
    opened.close()
