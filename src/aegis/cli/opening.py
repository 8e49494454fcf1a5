"""A home opened for one command, and closed however the command ends."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aegis.cli.options import home_of
from aegis.cli.remote import Anywhere, Gateway, body_of, value_of
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.bootstrap import Deployment, State
    from aegis.log.writer import Unit
    from aegis.proxies.mcp.judge import Resolve, Said
    from aegis.server.app import App


# The gateway's own HTTP API, asked inside this process over the state of a home.
#
# A command that works without a running gateway keeps every rule of the API that way: the same credentials, the
# same checks, the same receipts.


class InsideRequest(Protocol):
    """Answers one request of the HTTP API."""

    def ask(self, method: str, target: str, key: str, body: Any = None) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Inside:
    """The API over an opened deployment."""

    app: App

    def ask(self, method: str, target: str, key: str, body: Any = None) -> Any:
        """The JSON answer to one request; raises `InvalidCall` with the API's own words for a 4xx."""
        media, data = body_of(body)
        status, answered = asyncio.run(_exchange(self.app, method, target, key, media, data or b""))
        return value_of(status, answered)


@contextmanager
def api(url: str | None, home: Path | None, config: Path | None) -> Iterator[InsideRequest]:
    """The gateway at `url`, or the API over `home` where no gateway is named."""
    if url is not None:
        yield Gateway(url=url)
        return
    from aegis.bootstrap import open_deployment
    from aegis.server.app import create_app

    deployment = open_deployment(config, home_of(home))
    try:
        yield Inside(app=create_app(deployment))
    finally:
        deployment.close()


def resolver(deployment: Deployment, key: str) -> Resolve:
    """Answers approvals of an opened deployment with the key of an approver, by the rules of the API."""
    from aegis.server.app import create_app

    app = create_app(deployment)

    async def resolve(said: Said) -> None:
        media, data = body_of(said.to_wire())
        status, answered = await _exchange(app, "POST", f"/v1/approvals/{said.approval}", key, media, data or b"")
        value_of(status, answered)

    return resolve


async def _exchange(app: App, method: str, target: str, key: str, media: str, body: bytes) -> tuple[int, bytes]:
    """One request through the application (ASGI 3.0, HTTP connection scope)."""
    path, _, query = target.partition("?")
    headers = [(b"host", b"localhost"), (b"content-length", b"%d" % len(body))]
    if body:
        headers.append((b"content-type", media.encode("ascii")))
    if key:
        headers.append((b"authorization", f"Bearer {key}".encode("ascii", "replace")))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": headers,
        "client": None,
        "server": ("localhost", 80),
    }
    answered = bytearray()
    status = 500
    sent = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()  # whoever asks is there until the answer is
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            answered.extend(message.get("body", b""))

    await app(scope, receive, send)
    return status, bytes(answered)


@contextmanager
def opened(home: Path | None, config: Path | None, accept_rollback: str | None = None) -> Iterator[State]:
    """The state in `home`, made where there is none; `accept_rollback` is why a log that went back is right."""
    from aegis.bootstrap import open_state

    state = open_state(config, home_of(home), accept_rollback=accept_rollback)
    try:
        yield state
    finally:
        state.close()


@contextmanager
def existing(home: Path | None, config: Path | None, accept_rollback: str | None = None) -> Iterator[State]:
    """The state in `home`; raises `InvalidCall` where nothing was ever kept there."""
    with opened(_known(home), config, accept_rollback) as state:
        yield state


@contextmanager
def deployed(home: Path | None) -> Iterator[Deployment]:
    """The deployment in `home` with every feature; raises `InvalidCall` where nothing was ever kept there."""
    from aegis.bootstrap import open_deployment

    deployment = open_deployment(None, _known(home))
    try:
        yield deployment
    finally:
        deployment.close()


def _known(home: Path | None) -> Path:
    place = home_of(home)
    if not (place / "keys").is_dir():
        from aegis.config.document import nearest

        hint = "`aegis init` makes one; --home names another"
        homes = {str(key.parent) for key in place.parent.glob("*/keys")} | {
            str(key.parent) for key in place.parent.glob(".*/keys")
        }
        meant = nearest(str(place), homes) if homes else ""
        raise InvalidCall(
            f"there is no home at `{place}`",
            code="not_found",
            hint=f"{meant} {hint}" if meant.startswith("did") else hint,
        )
    return place


def operator() -> str:
    """Whom the log names for a change that was made at this command line: the owner of the home."""
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name, as containers have them
        return "operator"


def recorded(place: Anywhere, unit: Callable[[str], Unit]) -> dict[str, Any]:
    """Record in a home what `unit` makes for its owner; the reference of the receipt."""
    from aegis.core.receipt import receipt_ref

    with existing(place.home, place.config) as state:
        return receipt_ref(state.ledger.append(unit(operator()))[0])
