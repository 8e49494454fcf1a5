"""The relay of `aegis run`: its threads leave signals to the process that hands them on."""

from __future__ import annotations

import signal
from pathlib import Path

from aegis.cli.running.relay import Relay

TASKS = Path("/proc/self/task")


def test_no_thread_of_a_relay_takes_a_signal() -> None:
    before = {task.name for task in TASKS.iterdir()}
    relay = Relay("/nowhere")
    relay.start()
    (added,) = [task for task in TASKS.iterdir() if task.name not in before]
    blocked = next(line for line in (added / "status").read_text().splitlines() if line.startswith("SigBlk:"))
    relay.close()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        assert int(blocked.split()[1], 16) >> (number - 1) & 1
        assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
