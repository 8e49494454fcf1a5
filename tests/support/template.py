"""A process that has loaded the command line once, and forks for every run of it: `python template.py SOCKET`.

A client connects, sends one line of JSON (`argv`, `env`, `cwd`) with the descriptors of its standard streams, and reads
two lines: the process id of the run, and its exit status, negative for a signal.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

PIECE = 1 << 16


def _load() -> None:
    """Load what nearly every command loads: the command line, what opens a home, and the compiled rules."""
    import aegis.bootstrap.deployment  # noqa: F401  most commands open one
    from aegis.cli.run import build
    from aegis.config.compile import compile_policy
    from aegis.config.config import load_config
    from aegis.detect.rules.cache import default_cache_folder

    build()
    compile_policy(load_config(), cache=default_cache_folder())


def _asked(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The request of a client, and its standard streams."""
    data, streams, _, _ = socket.recv_fds(caller, PIECE, 3)
    while not data.endswith(b"\n"):
        more = caller.recv(PIECE)
        if not more:
            sys.exit(1)
        data += more
    return json.loads(data), streams


def _is_command(caller: socket.socket) -> bool:
    """Become the process of one command; or, in the one that waits for it, tell how it ended and end."""
    asked, streams = _asked(caller)
    child = os.fork()
    if child:
        caller.sendall(b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        caller.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    caller.close()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv[:] = asked["argv"]
    return True


def serve(path: str) -> None:
    """Fork for every client; returns in the process of each command."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(path)
    door.listen(64)
    _load()
    tasks = Path("/proc/self/task")
    assert not tasks.is_dir() or len(list(tasks.iterdir())) == 1, "a process with threads cannot be forked"
    gc.freeze()  # what is loaded stays: no fork walks it at its end
    print("ready", flush=True)
    while True:
        caller, _ = door.accept()
        if os.fork() == 0:
            door.close()
            if _is_command(caller):
                return
        caller.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    serve(sys.argv[1])
    from aegis.cli import main

    try:
        main()
    except SystemExit as end:
        # Taking apart all that was loaded costs more than most commands: it is left to the system.
        if isinstance(end.code, int | None) and threading.active_count() == 1:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code or 0)
        raise
