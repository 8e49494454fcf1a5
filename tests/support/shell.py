"""The command line as a user has it: the installed `aegis`, in a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

AEGIS = Path(sys.executable).parent / "aegis"
_OURS = ("AEGIS_URL", "AEGIS_API_KEY", "AEGIS_CONFIG", "AEGIS_HOME", "AEGIS_AGENT")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that Aegis reads, and with `extra`."""
    return {name: value for name, value in os.environ.items() if name not in _OURS} | dict(extra or {})


@cache
def _template() -> str:
    """The socket of the one process of this worker that forks for every command; it ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="aegis-template-")
    atexit.register(folder.cleanup)
    path = str(Path(folder.name) / "s")
    loaded = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("template.py")), path],
        stdout=subprocess.PIPE, env=environment(), text=True, start_new_session=True,
    )  # fmt: skip
    atexit.register(loaded.kill)
    assert loaded.stdout is not None
    assert loaded.stdout.readline() == "ready\n"
    return path


def aegis(
    *arguments: str | Path, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One finished run of the command line, in a process of its own that is a fork of one that has loaded it."""
    words = [str(AEGIS), *map(str, arguments)]
    asked = {"argv": words, "env": environment(env), "cwd": str(cwd or Path.cwd())}
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller,
    ):
        given.write(stdin.encode())
        given.seek(0)
        caller.settimeout(120)
        caller.connect(_template())
        line = json.dumps(asked).encode() + b"\n"
        sent = socket.send_fds(caller, [line], [given.fileno(), out.fileno(), err.fileno()])
        caller.sendall(line[sent:])
        with caller.makefile() as told:
            _, status = int(told.readline()), int(told.readline())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read().decode(), err.read().decode())


# What a shell starts in place of `aegis`: it asks the template, and passes on the signals that it gets.
_STAND_IN = """#!{python} -ISs
import json, os, signal, socket, sys
caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
caller.connect({path!r})
asked = {{"argv": [{aegis!r}, *sys.argv[1:]], "env": dict(os.environ), "cwd": os.getcwd()}}
line = json.dumps(asked).encode() + b"\\n"
caller.sendall(line[socket.send_fds(caller, [line], [0, 1, 2]):])
told = caller.makefile()
run = int(told.readline())
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, lambda number, _: os.kill(run, number))
for stream in (0, 1, 2):
    os.close(stream)
status = int(told.readline())
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@cache
def stand_in() -> Path:
    """The folder of an `aegis` that runs as a fork of the template, for the `PATH` of shells."""
    path = _template()
    program = Path(path).with_name("bin") / "aegis"
    program.parent.mkdir()
    program.write_text(_STAND_IN.format(python=sys.executable, path=path, aegis=str(AEGIS)))
    program.chmod(0o755)
    return program.parent


def read_json(finished: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON value on standard output."""
    return orjson.loads(finished.stdout)


@dataclass(frozen=True, kw_only=True)
class RunningGateway:
    """A gateway in a process of its own."""

    url: str
    home: Path
    process: subprocess.Popen[str]

    def stop(self) -> int:
        """Send SIGTERM and give back the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def gateway(home: Path, *arguments: str | Path) -> Iterator[RunningGateway]:
    """`aegis serve` over `home` on a free port, from its own word that it is ready to SIGTERM."""
    with subprocess.Popen(
        [str(AEGIS), "serve", "--home", str(home), "--port", "0", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("aegis: ready at "), line
            yield RunningGateway(url=line.split()[3], home=home, process=process)
        finally:
            process.terminate()
            process.wait(30)
