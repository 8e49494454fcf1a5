"""One command run as if nobody stood around it: its streams, signals, stops and exit code are its own.

The command shares the terminal and the process group of whoever started `aegis run`, so that the keys of a terminal
reach it without us; signals that were sent to us alone go on to it.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
# Sent to us alone, as `kill` and service managers do.
_PASSED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
# Of the terminal, which sends them to the whole group.
_HEARD: Final = (signal.SIGINT, signal.SIGQUIT)
_ALL: Final = (*_PASSED, *_HEARD)
_STOPS: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def start(command: Sequence[str], environment: Mapping[str, str], *, keep: Sequence[int] = ()) -> int:
    """Start `command`, found on the path of `environment`; gives its process id.

    Raises `FileNotFoundError` or `PermissionError` as a shell would say 127 or 126. `keep` are descriptors to hand on.
    Signals wait until `wait` can hand them on: the first process of a sandbox would lose them.
    """
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        return os.posix_spawnp(
            command[0], list(command), dict(environment), setsigdef=[*_ALL, *_STOPS], setsigmask=before
        )
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise


def wait(child: int, *, signalled: int | None = None, init: bool = False) -> int:
    """Wait until `child` ends; gives its exit code, or the number of the signal that ended it, negative.

    `signalled` is the process that hears our signals where it is another one; with `init` every process that has lost
    its parent is waited for too.
    """
    target = signalled or child

    def on_signal(number: int, _: Any) -> None:
        with suppress(ProcessLookupError):
            os.kill(target, number)

    before = {number: signal.signal(number, on_signal) for number in _PASSED}
    # A handler and not "ignore": what is ignored stays so in every program that is started from here.
    before |= {number: signal.signal(number, lambda *_: None) for number in (*_HEARD, signal.SIGTSTP)}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)
    try:
        while True:
            ended, status = os.waitpid(-1 if init else child, os.WUNTRACED)
            if ended != child:
                continue
            if os.WIFSTOPPED(status):
                # Whoever waits for us (a shell) is to see that the job stopped.
                os.kill(os.getpid(), signal.SIGSTOP)
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGCONT)
                continue
            return os.waitstatus_to_exitcode(status)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: int) -> int:
    """The exit code that stands for `code`; where a signal ended the command, end by the same one."""
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the memory of this process is of no interest
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code
