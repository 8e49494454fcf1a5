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
from pathlib import Path
from typing import Final

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
# Sent to us alone, as `kill` and service managers do.
_PASSED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
# Of the terminal, which sends them to the whole group.
_HEARD: Final = (signal.SIGINT, signal.SIGQUIT)
_ALL: Final = (*_PASSED, *_HEARD)
_AWAITED: Final = frozenset((*_ALL, signal.SIGTSTP, signal.SIGCHLD))
_STOPS: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def name_of(command: Sequence[str]) -> str:
    """The name of the program, by which its host is known and its agent is called."""
    return Path(command[0]).name


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
    # Waited for and not handled: what arrives between two instructions is found at the next turn of the loop, and
    # nothing is interrupted. The handlers stand in because a blocked signal without one may be dropped (POSIX.1).
    before = {number: signal.signal(number, lambda *_: None) for number in _AWAITED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED) - _AWAITED
    try:
        while True:
            code = _ended(child, init=init)
            if code is not None:
                return code
            number = signal.sigwait(_AWAITED)
            if number in _PASSED:
                with suppress(ProcessLookupError):
                    os.kill(signalled or child, number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(child: int, *, init: bool) -> int | None:
    """The exit code of `child` if it has ended; what else has changed since the last look is dealt with."""
    while True:
        changed, status = os.waitpid(-1 if init else child, os.WNOHANG | os.WUNTRACED)
        if changed == 0:
            return None
        if changed == child and os.WIFSTOPPED(status):
            # Whoever waits for us (a shell) is to see that the job stopped.
            os.kill(os.getpid(), signal.SIGSTOP)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)
        elif changed == child:
            return os.waitstatus_to_exitcode(status)


def leave(code: int) -> int:
    """The exit code that stands for `code`; where a signal ended the command, end by the same one."""
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the memory of this process is of no interest
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code
