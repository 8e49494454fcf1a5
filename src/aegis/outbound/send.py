"""Sending one message: what goes over the wire for each kind, and what its receiver's answer means."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec
import orjson

from aegis.core.extensions import load_extension
from aegis.core.ports import Document
from aegis.core.times import MICROS, rfc3339
from aegis.errors import AegisError, EgressRefused, ExtensionError, KeyFileError, StoreCorrupt
from aegis.keys.references import read_secret
from aegis.outbound.client import Egress
from aegis.outbound.signature import headers_for
from aegis.outbound.smtp import MailServer, send_mail
from aegis.outbound.values import EgressPolicy, Request

# One message to one receiver, as the outbox keeps it.

COLLECTION: Final = "deliveries"

State = Literal["due", "dead"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryTarget:
    """Where a message goes. `url` and `secret` may be references, which are resolved when it is sent.

    `kind` is `webhook`, `slack`, `email`, or the name of a notifier that an installed package brings. `private` names
    hosts that may have private addresses. Of mail, `url` is its server, `secret` the password,
    `sender` and `to` are addresses.
    """

    kind: str
    url: str
    secret: str = ""
    private: tuple[str, ...] = ()
    sender: str = ""
    to: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message: what happened (`event`), a line for people (`text`), a link without authority, and the data.

    Times are microseconds since the epoch. `leased_until` keeps a second process away while one sends.
    """

    id: str
    target: DeliveryTarget
    event: str
    text: str
    link: str
    data: dict[str, Any]
    created_at: int
    due_at: int
    attempts: int = 0
    leased_until: int = 0
    error: str = ""
    state: State = "due"
    version: int = 1


def to_document(message: Message) -> Document:
    """The stored form."""
    return Document(
        collection=COLLECTION,
        key=message.id,
        version=message.version,
        state=message.state,
        body=msgspec.json.encode(message),
    )


def from_document(document: Document) -> Message:
    """The message that a document holds; raises `StoreCorrupt` for anything else."""
    try:
        return msgspec.json.decode(document.body, type=Message)
    except msgspec.DecodeError as error:
        raise StoreCorrupt("the record of a message is damaged") from error


# A message as mail: its text, and the server that takes it.

MAX_SUBJECT: Final = 150
_PORTS: Final = {"smtps": 465, "smtp": 25}


def mail_server(url: str, password: str) -> MailServer:
    """The server of an address such as `smtps://user@mail.example.com`; raises `EgressRefused` for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        raise EgressRefused("the address of a mail server begins with `smtps://`") from error
    if not parts.hostname or parts.password is not None or parts.path not in ("", "/") or parts.query:
        raise EgressRefused("the address of a mail server is `smtps://USER@HOST:PORT`, without its password")
    user = unquote(parts.username or "")
    return MailServer(host=parts.hostname, port=port, tls=parts.scheme == "smtps", user=user, password=password)


def mail_of(message: Message) -> bytes:
    """The message in ASCII; names of ours that hold controls or line ends become plain text."""
    from email.headerregistry import Address  # whoever sends no mail does not wait for these
    from email.message import EmailMessage
    from email.policy import SMTP
    from email.utils import format_datetime

    mail = EmailMessage(policy=SMTP)
    plain = "".join(char if char.isprintable() else " " for char in message.text)
    mail["From"] = Address(addr_spec=message.target.sender)
    mail["To"] = [Address(addr_spec=one) for one in message.target.to]
    mail["Subject"] = f"Aegis: {plain[:MAX_SUBJECT]}"
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.created_at // MICROS, UTC))
    mail["Message-ID"] = f"<{message.id}@aegis.invalid>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's holiday answers it
    mail.set_content("\n\n".join(filter(None, (plain, message.link))) + "\n", cte="base64")
    return mail.as_bytes()


_OWN: Final = ("webhook", "slack")
TIMEOUT_S: Final = 10.0  # a receiver has this long to take a message
MAX_ANSWER: Final = 65_536  # bytes of an answer that are read; nothing in it is believed
_LATER: Final = frozenset({408, 425, 429})


class NotTaken(AegisError):
    """A message was not taken; `final` says that trying again is of no use. The text holds no path and no value."""

    def __init__(self, message: str, *, final: bool):
        super().__init__(message)
        self.final = final


class Clients:
    """One client for each set of hosts that are allowed on private addresses, for one event loop."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, ...], Egress] = {}

    def allowing(self, private: tuple[str, ...]) -> Egress:
        """The client for a target that allows these hosts."""
        client = self._clients.get(private)
        if client is None:
            client = self._clients[private] = Egress(_policy(private))
        return client

    async def aclose(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            await client.aclose()


def _policy(private: tuple[str, ...]) -> EgressPolicy:
    return EgressPolicy(private=frozenset(private), total_seconds=TIMEOUT_S, max_bytes=MAX_ANSWER, max_connections=16)


async def send(message: Message, clients: Clients, now: int) -> None:
    """Hand a message to its receiver; raises `NotTaken` for everything but its plain yes."""
    try:
        if message.target.kind == "email":
            status = await _mailed(message)
        else:
            request = request_of(message, now)
            status = (await clients.allowing(message.target.private).send(request)).status
    except KeyFileError as error:  # it may be there again later: a file being rotated, a process restarted
        raise NotTaken("a secret of this notifier cannot be read", final=False) from error
    except EgressRefused as error:
        raise NotTaken(str(error), final=True) from error
    except AegisError as error:
        raise NotTaken(str(error), final=False) from error
    if not 200 <= status < 300:  # a redirect is no yes, and is not followed
        # Of mail, 4yz is a no for now and 5yz one for good (RFC 5321, 4.2.1); of HTTP it is the other way round.
        later = status < 500 if message.target.kind == "email" else status >= 500 or status in _LATER
        raise NotTaken(f"the receiver answered with status {status}", final=not later)


async def _mailed(message: Message) -> int:
    """The code with which the server of mail settled the message."""
    target = message.target
    server = mail_server(_resolved(target.url), _resolved(target.secret))
    return await send_mail(server, target.sender, target.to, mail_of(message), _policy(target.private))


def request_of(message: Message, now: int) -> Request:
    """The request that carries a message; raises `KeyFileError` where a reference leads nowhere."""
    target = message.target
    if target.kind not in _OWN:
        return _outside_request(message)
    body = orjson.dumps(_slack(message) if target.kind == "slack" else _webhook(message))
    headers = {"content-type": "application/json", "user-agent": "aegis"}
    if target.kind == "webhook":
        headers |= headers_for(_resolved(target.secret), message.id, now // MICROS, body)
    return Request(method="POST", url=_resolved(target.url), headers=headers, body=body)


def _outside_request(message: Message) -> Request:
    """The request that a notifier of an installed package makes of a message; it is sent like any other."""
    target = message.target
    try:
        notifier = load_extension("notifier", target.kind)
    except ExtensionError as error:  # a package can be there again later
        raise NotTaken(str(error), final=False) from error
    url, secret = _resolved(target.url), _resolved(target.secret)
    called = f"the notifier `{target.kind}` of the package `{notifier.package}`"
    try:
        request = notifier.make(message, url, secret)
    except Exception as error:  # its text can hold a credential
        raise NotTaken(f"{called} failed: {type(error).__name__}", final=False) from error
    if not isinstance(request, Request):
        raise NotTaken(f"{called} gave no `Request`", final=True)
    return request


def describe(target: DeliveryTarget) -> str:
    """A target for people: its kind and its host, of mail its receivers; the path of its URL is its credential."""
    if target.to:
        return f"{target.kind} to {', '.join(target.to)}"
    if target.url.startswith(("${", "file:")):
        return f"{target.kind} at `{target.url}`"
    host = target.url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f"{target.kind} at `{host}`"


def _resolved(text: str) -> str:
    return read_secret(text).reveal() if text.startswith(("${env:", "file:")) else text


def _webhook(message: Message) -> dict[str, Any]:
    return {"type": message.event, "timestamp": rfc3339(message.created_at), "data": message.data}


def _slack(message: Message) -> dict[str, Any]:
    """Text with everything escaped that Slack would read as markup; names of ours can hold anything."""
    text = escape(message.text)
    blocks: list[dict[str, Any]] = [{"type": "section", "text": {"type": "mrkdwn", "text": text[:3_000]}}]
    if message.link:
        button = {"type": "button", "text": {"type": "plain_text", "text": "Look at it"}, "url": message.link}
        blocks.append({"type": "actions", "elements": [button]})
    return {"text": text[:3_000], "blocks": blocks}


def escape(text: str) -> str:
    """Text without Slack's markup: <https://docs.slack.dev/messaging/formatting-message-text>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
