"""Servers that several parts of the suite share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.postgres import Server, postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One running PostgreSQL server; every test takes a place of its own in it."""
    with postgres() as server:
        yield server
