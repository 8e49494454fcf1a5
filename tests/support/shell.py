"""The command line as a user has it: the installed `aegis`, in a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import wait as readable
from pathlib import Path
from typing import Any, Self, TextIO

import orjson

AEGIS = Path(sys.executable).parent / "aegis"
START_S = 120  # for a template to load and a run to begin, on a machine that has much else to do
FINISH_S = 400
LINE = 64  # bytes that hold a status
_OURS = ("AEGIS_URL", "AEGIS_API_KEY", "AEGIS_CONFIG", "AEGIS_HOME", "AEGIS_AGENT")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that Aegis reads, and with `extra`."""
    return {name: value for name, value in os.environ.items() if name not in _OURS} | dict(extra or {})


@cache
def _template(*modules: str) -> str:
    """The socket of the one process that forks for every run of `aegis`, or of a script over `modules`.

    It ends with the process that first asked for it.
    """
    folder = tempfile.mkdtemp(prefix="aegis-template-")
    path = str(Path(folder) / "s")
    loaded = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("template.py")), path, *modules],
        stdout=subprocess.PIPE, env=environment(), text=True, start_new_session=True,
    )  # fmt: skip
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:  # workers that were forked share it
            loaded.kill()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    assert loaded.stdout is not None
    assert loaded.stdout.readline() == "ready\n"
    return path


def load_templates() -> None:
    """Start the processes that most runs are forks of, for workers that are forked after this."""
    _template()
    mcp_python()


class Run:
    """A run of the command line beside the test: a fork of a process that has loaded it, used like a `Popen` of text.

    `stdout` and `stderr` are what is read of it, where nobody said where it writes.
    """

    def __init__(
        self,
        *arguments: str | Path,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        template: str | None = None,
    ):
        """Start it in the environment `env`, over descriptors that stay the caller's.

        Of a `template` that is named, arguments that begin with `-c` are those of Python.
        """
        words = list(map(str, arguments))
        self.args = words if words[:1] == ["-c"] else [str(AEGIS), *words]
        self.returncode: int | None = None
        self.stdin: TextIO | None = None  # of whoever made the pipe that it reads
        self.stdout: TextIO | None = None
        self.stderr: TextIO | None = None
        self._caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._caller.settimeout(START_S)
        self._caller.connect(template or _template())
        given: list[int] = []
        with ExitStack() as stack:
            if stdin is None:
                given.append(os.open(os.devnull, os.O_RDONLY))
                stack.callback(os.close, given[0])
            else:
                given.append(stdin)
            for name, stream in (("stdout", stdout), ("stderr", stderr)):
                if stream is None:
                    ours, stream = os.pipe()
                    stack.callback(os.close, stream)
                    setattr(self, name, os.fdopen(ours))
                given.append(stream)
            asked = {
                "argv": self.args,
                "env": dict(environment() if env is None else env),
                "cwd": str(cwd or Path.cwd()),
            }
            line = json.dumps(asked).encode() + b"\n"
            sent = socket.send_fds(self._caller, [line], given)
            self._caller.sendall(line[sent:])
        self.pid = self._number()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()
        self._caller.close()

    def _number(self) -> int:
        told = b""
        while not told.endswith(b"\n"):
            told += self._heard(1)
        return int(told)

    def _heard(self, most: int, how: int = 0) -> bytes:
        if not (more := self._caller.recv(most, how)):
            raise RuntimeError("the process that waits for a run was ended")
        return more

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its status, negative for a signal; raises `TimeoutExpired`.

        The status stays where it is read, so that every thread which waits hears it.
        """
        if self.returncode is None:
            if not readable([self._caller], timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._heard(LINE, socket.MSG_PEEK))
        return self.returncode

    def poll(self) -> int | None:
        """Return its status if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def aegis(
    *arguments: str | Path, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One finished run of the command line, in `env` beside what Aegis does not read of this process's environment."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        streams = given.fileno(), out.fileno(), err.fileno()
        with Run(
            *arguments, stdin=streams[0], stdout=streams[1], stderr=streams[2], env=environment(env), cwd=cwd
        ) as run:
            status = run.wait(FINISH_S)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(run.args, status, out.read().decode(), err.read().decode())


# What others start in place of a program: it asks a template, and passes on the signals that it gets.
_STAND_IN = """#!{python} -ISs
import json, os, signal, socket, sys
caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
caller.connect({path!r})
asked = {{"argv": [*{before!r}, *sys.argv[1:]], "env": dict(os.environ), "cwd": os.getcwd()}}
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
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def _stand_in(name: str, before: list[str], *modules: str) -> Path:
    path = _template(*modules)
    program = Path(path).with_name("bin") / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(_STAND_IN.format(python=sys.executable, path=path, before=before))
    program.chmod(0o755)
    return program


@cache
def stand_in() -> Path:
    """An `aegis` that runs as a fork of the template, for shells and hosts; its folder has no other program."""
    return _stand_in("aegis", [str(AEGIS)])


@cache
def python(*modules: str) -> Path:
    """A `python` for scripts, which run as forks of a process that has loaded `modules`."""
    return _stand_in("python", [], *modules)


def mcp_python() -> Path:
    """A `python` that has loaded the package of MCP, with its servers."""
    return python("mcp.server", "mcp.server.mcpserver", "mcp_types")


def aegis_python(*modules: str) -> Path:
    """A `python` that has loaded what a program with a gate or a client of ours does, and `modules`."""
    return python("aegis", "aegis.bootstrap.deployment", "aegis.sdk.client", "aegis.sdk.hooking", *modules)


def read_json(finished: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON value on standard output."""
    return orjson.loads(finished.stdout)


@dataclass(frozen=True, kw_only=True)
class RunningGateway:
    """A gateway in a process of its own."""

    url: str
    home: Path
    process: Run

    def stop(self) -> int:
        """Send SIGTERM and give back the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def gateway(home: Path, *arguments: str | Path) -> Iterator[RunningGateway]:
    """`aegis serve` over `home` on a free port, from its own word that it is ready to SIGTERM."""
    log = os.open(os.devnull, os.O_WRONLY)
    try:
        process = Run("serve", "--home", home, "--port", "0", *arguments, stderr=log)
    finally:
        os.close(log)
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("aegis: ready at "), line
            yield RunningGateway(url=line.split()[3], home=home, process=process)
        finally:
            process.terminate()
            process.wait(30)
