"""`aegis hook` where no gateway answers it: a decision of its own, by a child that cannot fail open."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aegis.proxies.hooks.judge import supervised

if TYPE_CHECKING:
    from aegis.bootstrap.deployment import DeployedGate
    from aegis.proxies.hooks.judge import HookAnswer
    from aegis.sdk.client import Client


def run_hook(
    *,
    config: Path | None,
    home: Path,
    agent: str,
    url: str | None,
    api_key: str,
    timeout: float,
    margin: float,
    wait: float | None,
) -> int:
    """Judge the event on standard input within `timeout` seconds; the exit code: 0 lets the host go on, 2 blocks.

    The last `margin` of them are left for saying no. A held call waits for a person for `wait` seconds, or for what
    the time-out leaves.
    """
    answered_by = time.monotonic() + timeout

    def work() -> HookAnswer:
        from aegis.proxies.hooks.door import MAX_EVENT
        from aegis.proxies.hooks.event import read_event
        from aegis.proxies.hooks.judge import HookJudge as Judge
        from aegis.proxies.hooks.judge import HookState

        event = read_event(sys.stdin.buffer.read(MAX_EVENT + 1))
        decider = _decider(config, home, agent, url, api_key)
        try:
            latest = answered_by - margin
            wait_until = latest if wait is None else min(time.monotonic() + wait, latest)
            return Judge(decider, HookState(home), wait_until=wait_until, host=decider).answer(event)
        finally:
            decider.close()

    answer = supervised(work, seconds=timeout)
    sys.stdout.write(answer.out)
    sys.stdout.flush()
    sys.stderr.write(answer.err)
    sys.stderr.flush()
    return answer.code


def _decider(config: Path | None, home: Path, agent: str, url: str | None, api_key: str) -> Client | DeployedGate:
    if url is not None:
        from aegis.sdk.client import Client

        return Client(url, api_key)
    from aegis.bootstrap import open_deployment
    from aegis.proxies.hooks.install import files_with_hook

    # An agent that could rewrite its host's settings could take its hook away.
    settings = files_with_hook(Path.home(), Path.cwd())
    return open_deployment(config, home, agent=agent, protected=settings).gate
