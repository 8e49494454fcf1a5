"""What several parts of the suite share: servers, and the cache of compiled rules."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aegis.detect.rules.cache import default_cache_folder
from support.beside import pytest_addoption, pytest_configure
from support.postgres import Server, postgres
from support.shell import load_templates

__all__ = ["pytest_addoption", "pytest_configure"]

if TYPE_CHECKING:
    from support.served import Served

# A process that a test starts with a home of its own does not compile every rule anew.
os.environ["XDG_CACHE_HOME"] = str(default_cache_folder().parents[1])

# Every client that a test makes reads whom it believes, and the usual list takes longer than most tests. Nothing here
# leaves the machine: one authority that ended long ago is believed, unless a test names another.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "nobody.pem")

# Hundreds of processes are started, and each would compile every module anew where the machine keeps none of them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests interrupt programs that they start: a suite that runs in the background would have them all ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


MANY = 1_000  # tests, among which are some that start programs

# Thousands of tests that were collected are there to stay: looking among them for garbage took a tenth of the time.
gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare what was collected from every search for garbage, and load once what many workers start."""
    if session.config.getoption("--beside") > 1 and len(session.items) > MANY:
        load_templates()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One running PostgreSQL server; every test takes a place of its own in it."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One gateway with the usual configuration, for tests that ask it and leave it as it is.

    Its log holds what other tests asked: a test that counts, lists, stops agents or changes settings has its own.
    """
    from support.served import served

    with served(tmp_path_factory.mktemp("shared") / "home") as running:
        yield running
