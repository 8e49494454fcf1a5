"""`aegis run -- COMMAND`: the command with a gateway around it, and one line at its end."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from aegis.cli.opening import operator
from aegis.cli.options import ConfigFile, Home, home_of
from aegis.cli.output import USAGE, say
from aegis.cli.remote import SOCKET
from aegis.cli.running.process import NOT_EXECUTABLE, NOT_FOUND, leave, name_of, start, wait
from aegis.errors import AegisError
from aegis.sdk.client.peer import peer_uid

if TYPE_CHECKING:
    from aegis.cli.running.hosts import Around, HostWords

STOP_S: Final = 30.0
_IS_MAC: Final = platform.system() == "Darwin"
_MARK: Final = "AEGIS_RUN"
_LOGGED: Final = 2_000  # characters of what a gateway that did not start has to say


class NoGateway(AegisError):
    """The gateway of a run did not start, or is gone; in the words that it left."""


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND ARGS...", help="what is run")],
    observe: Annotated[bool, typer.Option("--observe", help="change nothing, and say what would have been")] = False,
    strict_network: Annotated[
        bool, typer.Option("--strict-network", help="let the command reach nothing but the gateway")
    ] = False,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="decide as this agent; default: its name")] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="say nothing at the start and at the end")] = False,
    config: ConfigFile = None,
    home: Home = None,
) -> int:
    """Run COMMAND so that every tool call of it and of whatever it starts is decided first; its exit code is ours.

    The gateway that runs for the home is asked, or one is started for as long as the command runs. Nothing of the
    user's own is written. The last line, on standard error, says what was decided.
    """
    place = home_of(home)
    named = agent or os.environ.get("AEGIS_AGENT") or name_of(command)
    try:
        code, counted = _around(command, place, config, named, observe=observe, strict=strict_network, quiet=quiet)
    except NoGateway as error:
        sys.stderr.write(str(error))
        return USAGE
    if not quiet:
        sys.stderr.write(f"aegis: {_line(counted, observe=observe)}\n")
        sys.stderr.flush()
    return leave(code)


def _around(
    command: Sequence[str], home: Path, config: Path | None, agent: str, *, observe: bool, strict: bool, quiet: bool
) -> tuple[int, dict[str, Any] | None]:
    """The exit code of the command with a gateway around it, and what was counted."""
    with _folder() as folder, _gateway(home, config, folder, agent, observe=observe) as gateway:
        # Loaded while the gateway starts, which takes longer.
        from aegis.cli.running import boxed
        from aegis.cli.running.hosts import Around, tell

        opened = gateway.opened()
        known = {name: opened[name] for name in ("port", "socket", "hooks", "config", "key", "dialects")}
        around = Around(folder=folder, home=home, agent=agent, **known)
        told = tell(command, os.environ, boxed.inside(around) if strict and not _IS_MAC else around)
        if not quiet:
            mode = ", observed" if observe else ""
            sys.stderr.write(f"aegis: {agent}{mode}: decided by {', '.join(told.by)}\n")
            if told.alone:
                names = ", ".join(f"`{name}`" for name in sorted(set(told.alone)))
                sys.stderr.write(f"aegis: without the proxy of MCP, decided as calls of the host: {names}\n")
            for one in told.undecided:
                sys.stderr.write(f"aegis: not decided: {one}\n")
            sys.stderr.flush()
        code = _enclosed(told, around) if strict else _run(told)
        return code, gateway.close()


# Words after the command's name are the command's, whatever they look like.
SETTINGS: Final[dict[str, Any]] = {"context_settings": {"allow_interspersed_args": False}}


class _Gateway:
    """The process of the gateway (`aegis.cli.running`), which knows the key and counts."""

    def __init__(self, process: subprocess.Popen[str], log: Path):
        self._process = process
        self._log = log

    def opened(self) -> dict[str, Any]:
        """Wait until it serves; where it is (`RunGateway`)."""
        return self._read()

    def close(self) -> dict[str, Any] | None:
        """End the gateway; what it counted, or `None` where it is gone."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            return self._read()
        except (NoGateway, BrokenPipeError):
            return None
        finally:
            self.kill()

    def kill(self) -> None:
        """Wait for its end, and make an end after a while."""
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self) -> dict[str, Any]:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            self._process.wait(STOP_S)
            said = self._log.read_text(encoding="utf-8", errors="replace")[-_LOGGED:]
            raise NoGateway(said or "aegis: the gateway did not start\n")
        value: dict[str, Any] = json.loads(line)
        return value


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder of this run alone, which nobody else may enter; gone at its end."""
    path = Path(tempfile.mkdtemp(prefix="aegis-run-")).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _started(errors: TextIO) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "aegis.cli.running"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,  # the keys of the terminal are for the command
    )


@contextmanager
def _gateway(home: Path, config: Path | None, folder: Path, agent: str, *, observe: bool) -> Iterator[_Gateway]:
    wanted = {
        "home": str(home),
        "folder": str(folder),
        "agent": agent,
        "by": operator(),
        "config": None if config is None else str(config.expanduser().absolute()),
        "observe": observe,
        "providers": {} if _MARK in os.environ else _providers(),  # of a run inside of a run they are the outer gateway
        "found": "" if observe else _listening(home),
    }
    log = folder / "gateway.log"
    with log.open("w") as errors:
        process = _started(errors)
    try:
        if process.stdin is not None:
            process.stdin.write(json.dumps(wanted) + "\n")
            process.stdin.flush()
        yield _Gateway(process, log)
    finally:
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        process.wait(STOP_S)


def _listening(home: Path) -> str:
    """The socket of a gateway of ours that runs for the home; empty where there is none."""
    path = home / SOCKET
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return ""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            tried.connect(str(path))
            return str(path) if peer_uid(tried) in (0, os.geteuid()) else ""
    except OSError:
        return ""


# Where a provider's key stands in the environment, its address, and the one that its clients take without it.
_VENDORS: Final = (
    ("openai", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1"),
    ("anthropic", ("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL",), "https://api.anthropic.com"),
    (
        "gemini",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
        "https://generativelanguage.googleapis.com",
    ),
)


def _providers() -> dict[str, dict[str, Any]]:
    """The providers whose keys the environment holds: the gateway keeps them, and the command gets the agent's key."""
    found: dict[str, dict[str, Any]] = {}
    for dialect, keys, urls, default in _VENDORS:
        key = next((name for name in keys if os.environ.get(name)), None)
        if key is not None:
            url = next((os.environ[name] for name in urls if os.environ.get(name)), default)
            # An address that somebody wrote into their environment may be one of their own network.
            found[f"env-{dialect}"] = {
                "dialect": dialect, "url": url, "key": f"${{env:{key}}}", "private": url != default,
            }  # fmt: skip
    return found


def _run(told: HostWords, info: tuple[int, int] | None = None) -> int:
    """The exit code of the command, as a shell tells it where it cannot be started.

    `info` is the pipe by which bubblewrap tells whom signals are for.
    """
    try:
        child = start(told.command, told.environment | {_MARK: "1"}, keep=info[1:] if info else ())
    except FileNotFoundError:
        say(f"there is no program `{told.command[0]}`", code="not_found")
        return NOT_FOUND
    except PermissionError:
        say(f"`{told.command[0]}` cannot be run", code="not_executable")
        return NOT_EXECUTABLE
    if info is None:
        return wait(child)
    from aegis.cli.running import boxed

    os.close(info[1])
    return wait(child, signalled=boxed.first_inside(info[0]))


def _enclosed(told: HostWords, around: Around) -> int:
    from aegis.cli.running import boxed

    if _IS_MAC:
        return _run(boxed.fenced(told, around))
    info = os.pipe()
    return _run(boxed.enclosed(told, around, info[1]), info)


def _line(counted: dict[str, Any] | None, *, observe: bool) -> str:
    if counted is None:
        return "the gateway ended before the command, so nothing was counted; no call ran undecided after that"
    calls = sum(counted["decisions"].values())
    words = _words(counted["decisions"])
    if observe:
        words += f"; would have been {_words(counted['would'])}"
    return f"{calls} call{'' if calls == 1 else 's'}: {words}; log {counted['log']}"


def _words(decisions: dict[str, int]) -> str:
    spelled = (("allow", "allowed"), ("sanitize", "changed"), ("require_approval", "held"), ("block", "blocked"))
    return ", ".join(f"{decisions[name]} {word}" for name, word in spelled)
