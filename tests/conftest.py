"""What several parts of the suite share: servers, and the cache of compiled rules."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from aegis.rules.cache import default_cache_folder
from support.postgres import Server, postgres

# A process that a test starts with a home of its own does not compile every rule anew.
os.environ["XDG_CACHE_HOME"] = str(default_cache_folder().parents[1])


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One running PostgreSQL server; every test takes a place of its own in it."""
    with postgres() as server:
        yield server
