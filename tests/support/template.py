"""A process that has loaded much once, and forks for every run of it: `python template.py SOCKET [MODULE ...]`.

Without a module it is the command line that is loaded, for runs of `aegis` and workers of gateways; with some of them
it is those, for runs of Python scripts. A client connects, sends one line of JSON (`argv`, `env`, `cwd`) with the
descriptors of its standard streams, and reads two lines: the process id of the run, and its exit status, negative for a
signal. Until it hangs up, the process id is that of the run and of no other, however long ago it ended; a run that is
under way then is killed.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

PIECE = 1 << 16
WORKER = "from aegis.policy.worker import main; main()"
GATEWAY = "from aegis.cli.running.gateway import main; main()"
_policy: Any = None  # whoever compiles the same rules has them compiled


def _load(path: str) -> None:
    """Load what nearly every command loads: the command line, what opens a home or serves it, the compiled rules.

    The worker that a gateway starts and the gateway of an `aegis run` are runs over the same socket: those that they
    start themselves load all of it again.
    """
    import aegis.bootstrap.deployment  # most commands open one
    import aegis.cli.running.gateway
    import aegis.server.app
    import aegis.server.deciders
    import aegis.server.processes
    import aegis.server.serve  # noqa: F401
    from aegis.cli.run import build
    from aegis.cli.running import command
    from aegis.config.compile import compile_policy
    from aegis.config.config import load_config
    from aegis.detect.analyse import preload
    from aegis.detect.rules.cache import default_cache_folder
    from aegis.gate.workers import _Worker

    sys.path.append(str(Path(__file__).parents[1]))
    from support.shell import Run

    def start(kind: type[_Worker]) -> _Worker:
        ours, theirs = Pipe()
        with theirs, Path(os.devnull).open("w") as null:
            run = Run(
                "-c", WORKER, "0", stdin=theirs.fileno(), stdout=null.fileno(), stderr=null.fileno(), template=path
            )
        return kind(run, ours)  # type: ignore[arg-type]

    def gateway(errors: TextIO) -> Run:
        theirs, ours = os.pipe()
        try:
            run = Run("-c", GATEWAY, stdin=theirs, stderr=errors.fileno(), env=os.environ, template=path)
        finally:
            os.close(theirs)
        run.stdin = os.fdopen(ours, "w")
        return run

    _Worker.start = classmethod(start)  # type: ignore[method-assign, assignment]
    command._started = gateway  # type: ignore[assignment]
    build()
    preload()
    global _policy
    _policy = compile_policy(load_config(), cache=default_cache_folder())


def _asked(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The request of a client, and its standard streams."""
    data, streams, _, _ = socket.recv_fds(caller, PIECE, 3)
    while not data.endswith(b"\n"):
        more = caller.recv(PIECE)
        if not more:
            sys.exit(1)
        data += more
    return json.loads(data), streams


def _ended(child: int, caller: socket.socket) -> int:
    """Wait for a run, whose process id stays its own, and give its status; it is killed where the client hangs up."""
    heard, hears = os.pipe()
    os.set_blocking(hears, False)
    signal.set_wakeup_fd(hears)
    signal.signal(signal.SIGCHLD, lambda number, _: None)
    watched: list[Any] = [heard, caller]
    while (ended := os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        ready, _, _ = select.select(watched, [], [])
        if caller in ready:
            os.kill(child, signal.SIGKILL)
            watched.remove(caller)
        if heard in ready:
            os.read(heard, PIECE)
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _is_run(caller: socket.socket) -> bool:
    """Become the process of one run; or, in the one that waits for it, tell how it ended and end."""
    asked, streams = _asked(caller)
    child = os.fork()
    if child:
        for stream in streams:  # whoever reads what the run writes reads to its end
            os.close(stream)
        with suppress(OSError):  # the client hung up
            caller.sendall(b"%d\n" % child)
            caller.sendall(b"%d\n" % _ended(child, caller))
            caller.recv(1)
        os.waitpid(child, 0)
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


def serve(path: str, modules: Sequence[str]) -> None:
    """Fork for every client; returns in the process of each run."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(path)
    door.listen(64)
    for module in modules:
        import_module(module)
    if not modules:
        _load(path)
    tasks = Path("/proc/self/task")
    assert not tasks.is_dir() or len(list(tasks.iterdir())) == 1, "a process with threads cannot be forked"
    gc.freeze()  # what is loaded stays: no fork walks it at its end
    print("ready", flush=True)
    while True:
        caller, _ = door.accept()
        if os.fork() == 0:
            door.close()
            if _is_run(caller):
                return
        caller.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _script() -> None:
    """Run what `python` with these arguments runs: a file, `-c` with a text, or with `-` standard input."""
    first = sys.argv[0]
    is_file = first not in ("-", "-c")
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [str(Path(first).parent) if is_file else "", *filter(None, others)]
    if is_file:
        runpy.run_path(first, run_name="__main__")
        return
    text = sys.stdin.read() if first == "-" else sys.argv.pop(1)
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), vars(module))


if __name__ == "__main__":
    given = sys.argv[2:]
    serve(sys.argv[1], given)
    try:
        if given or sys.argv[0] == "-c":
            _script()
            sys.exit()
        from aegis.cli import main

        main()
    except SystemExit as end:
        # Taking apart all that was loaded costs more than most runs: it is left to the system.
        if isinstance(end.code, int | None) and threading.active_count() == 1:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code or 0)
        raise
