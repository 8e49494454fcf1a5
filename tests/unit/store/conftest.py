"""What the tests of the SQLite store begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aegis.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path, durability="fsync", busy_s=0.2)
    yield opened
    opened.close()
