"""The option that writes golden files instead of comparing with them."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="write the golden files from what the code does now")


@pytest.fixture
def write(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written; read from a distance, as only `tests/golden` alone knows the option."""
    return bool(request.config.getoption("--write", default=False))
