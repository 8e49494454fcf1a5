"""A pytest plugin: `pytest --aegis-coverage` fails where a tool's body runs in the tests without a decision.

Every call is allowed and nothing is recorded: it is about the paths of the tools, not about a policy.
"""

from __future__ import annotations

from typing import Any

import pytest

_FOUND = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--aegis-coverage`."""
    parser.getgroup("aegis").addoption(
        "--aegis-coverage", action="store_true", help="fail where a tool's body runs without a decision of Aegis"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hook every installed framework."""
    if not config.getoption("--aegis-coverage"):
        return
    from aegis.enforce.enforcement import Enforcer
    from aegis.enforce.patching import Patches
    from aegis.sdk.coverage.firing import Allowing, hook_installed

    found: list[str] = []
    config.stash[_FOUND] = found
    patches = Patches()
    enforcer = Enforcer(Allowing(), on_uncovered=lambda tool, _session: found.append(tool))
    hook_installed(enforcer, patches, bar=False)
    config.add_cleanup(patches.undo)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the tools whose bodies ran without a decision."""
    found: list[str] = config.stash.get(_FOUND, [])
    for tool in sorted(set(found)):
        terminalreporter.write_line(f"aegis: the body of `{tool}` ran without a decision", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run where a body was uncovered."""
    found: list[str] = session.config.stash.get(_FOUND, [])
    if found and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
