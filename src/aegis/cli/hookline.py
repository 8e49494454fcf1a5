"""`aegis hook` as a gateway of the same home answers it: one exchange over its socket, with hardly anything loaded.

Where no gateway listens, or where it decides by another configuration, the hook decides by itself. Where the command
line says anything but where to decide, all of it is loaded (`aegis.cli.hook`). Once a gateway answered, and where
`--door` names the socket of the one that has to, everything but its whole answer is exit 2 with the reason on standard
error.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aegis.proxies.hooks.door import LENGTH, MAX_ANSWER, MAX_EVENT, MAX_HELLO, SOCKET, framed, message, read_object
from aegis.sdk.client.peer import peer_uid

DEFAULT_AGENT: Final = "coding-agent"
MARGIN_S: Final = 5.0  # what is left of the host's patience for saying no
DEFAULT_TIMEOUT_S: Final = 55.0
BLOCK: Final = 2
_OPTIONS: Final = {"--home": "AEGIS_HOME", "--config": "AEGIS_CONFIG", "--agent": "AEGIS_AGENT"}
_NUMBERS: Final = ("--timeout", "--wait")
_DOOR: Final = "--door"  # the socket of the gateway around this host (`aegis run`): it decides, or nobody
_CHUNK: Final = 1_048_576


class _Failed(Exception):
    """The exchange broke off; says why."""


def answered(argv: Sequence[str]) -> int | None:
    """The exit code for the words after `aegis hook`, or `None` where no gateway answers for them."""
    given = _options(argv)
    if given is None or ("AEGIS_URL" in os.environ and _DOOR not in given):
        return None
    deadline = time.monotonic() + float(given.get("--timeout", DEFAULT_TIMEOUT_S))
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        home = Path(given.get("--home", "~/.aegis")).expanduser().absolute()
        try:
            door.settimeout(_left(deadline))
            door.connect(given.get(_DOOR) or str(home / SOCKET))
        except (FileNotFoundError, ConnectionRefusedError):
            if _DOOR in given:
                return _refused("the gateway of this run is gone, so the call was not made")
            return None  # nobody listens
        try:
            return _exchange(door, home, given, deadline)
        except TimeoutError:
            reason = "it was not answered in time"
        except Exception as error:
            reason = str(error) or type(error).__name__
        return _refused(f"the gateway did not check the call, so it was not made: {reason}")
    except Exception as error:  # any other exit code than this one would let the call pass
        return _refused(f"the gateway cannot be asked, so the call was not made: {error}")
    finally:
        door.close()


def inside(argv: Sequence[str]) -> int | None:
    """The exit code where the hook decides by itself, without the rest of the command line being loaded.

    `None` for anything that another reader has to make sense of.
    """
    given = _options(argv)
    if given is None or "AEGIS_URL" in os.environ:
        return None
    timeout = float(given.get("--timeout", DEFAULT_TIMEOUT_S))
    if timeout < 1:
        return None
    # Looking for plug-ins of pydantic reads a file of every installed package, and would have them see the settings.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from aegis.cli.hookwork import run_hook

        return run_hook(
            config=Path(given["--config"]) if "--config" in given else None,
            home=Path(given.get("--home", "~/.aegis")).expanduser().absolute(),
            agent=given.get("--agent") or DEFAULT_AGENT,
            url=None,
            api_key="",
            timeout=timeout,
            margin=MARGIN_S,
            wait=float(given["--wait"]) if "--wait" in given else None,
        )
    except Exception as error:  # any other exit code than this one would let the call pass
        return _refused(f"the call could not be checked, so it was not made: {type(error).__name__}")


def _exchange(door: socket.socket, home: Path, given: dict[str, str], deadline: float) -> int | None:
    # (1) Whoever holds the socket could let everything through: it is this user, or root.
    if peer_uid(door) not in (0, os.geteuid()):
        raise _Failed("its socket is held by another user")
    # (2) Is it the gateway of this configuration?
    hello = {
        "config": _config(given, home),
        "agent": given.get("--agent") or DEFAULT_AGENT,
        "folders": [str(Path.home()), str(Path.cwd())],
    }
    door.sendall(message(hello))
    greeted = read_object(_message(door, MAX_HELLO, deadline))
    if greeted == {"mine": False} and _DOOR not in given:
        return None
    if greeted != {"mine": True}:
        raise _Failed("it is not understood")
    # (3) The event, as the host wrote it; what is too long is the gateway's to refuse.
    event = _event(deadline)
    patience = max(0.0, _left(deadline) - MARGIN_S)
    wait = min(patience, float(given.get("--wait", patience)))
    door.sendall(message({"wait": wait}) + framed(event))
    # (4) Only a whole answer counts.
    answer = read_object(_message(door, MAX_ANSWER, deadline))
    code, out, err = answer["code"], answer["out"], answer["err"]
    if type(code) is not int or code not in (0, BLOCK) or not isinstance(out, str) or not isinstance(err, str):
        raise _Failed("it is not understood")
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    sys.stderr.flush()
    return code


def _options(argv: Sequence[str]) -> dict[str, str] | None:
    """The options that say where to decide; `None` for anything that another reader has to make sense of."""
    found: dict[str, str] = {
        name: os.environ[variable] for name, variable in _OPTIONS.items() if os.environ.get(variable)
    }
    words = iter(argv)
    for word in words:
        name, has_value, value = word.partition("=")
        if name not in _OPTIONS and name not in _NUMBERS and name != _DOOR:
            return None
        if not has_value:
            value = next(words, "")
        if not value or value.startswith("-"):
            return None
        if name in _NUMBERS and not value.replace(".", "", 1).isdecimal():
            return None
        found[name] = value
    return found


def _config(given: dict[str, str], home: Path) -> str | None:
    """The configuration that this hook decides by, found as the embedded gate finds it; `None` is the built-in one."""
    own = home / "aegis.yaml"
    named = Path(given["--config"]) if "--config" in given else own if own.exists() else None
    return None if named is None else str(named.expanduser().resolve())


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _message(door: socket.socket, most: int, deadline: float) -> bytes:
    length = int.from_bytes(_bytes(door, LENGTH, deadline), "big")
    if length > most:
        raise _Failed("its answer is too long")
    return _bytes(door, length, deadline)


def _bytes(door: socket.socket, count: int, deadline: float) -> bytes:
    taken = bytearray()
    while len(taken) < count:
        door.settimeout(_left(deadline))
        chunk = door.recv(min(_CHUNK, count - len(taken)))
        if not chunk:
            raise _Failed("it broke off")
        taken += chunk
    return bytes(taken)


def _event(deadline: float) -> bytes:
    """Everything on standard input, up to one byte more than an event may have."""
    descriptor = sys.stdin.fileno()
    taken = bytearray()
    while len(taken) <= MAX_EVENT:
        ready, _, _ = select.select([descriptor], [], [], _left(deadline))
        chunk = os.read(descriptor, _CHUNK) if ready else b""
        if not chunk:
            break
        taken += chunk
    return bytes(taken)


def _refused(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    return BLOCK
