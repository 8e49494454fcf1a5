"""Sending one message: over HTTP, signed where it is a webhook, or as mail; and what its receiver's answer means."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec
import orjson
from msgspec import Struct

from aegis.core.extensions import load_extension
from aegis.core.json import decode, parse
from aegis.core.patterns import Lazy
from aegis.core.ports import Document
from aegis.core.times import MICROS, rfc3339
from aegis.errors import (
    AegisError,
    EgressError,
    EgressFailed,
    EgressRefused,
    ExtensionError,
    InvalidCall,
    KeyFileError,
    StoreCorrupt,
)
from aegis.keys.references import read_secret
from aegis.outbound.client import Egress, EgressPolicy, Request
from aegis.outbound.slack import slack_body

if TYPE_CHECKING:
    from aiosmtplib import SMTP


# Signing and verifying webhooks as Standard Webhooks 1.0 has it: HMAC-SHA-256 over id, time and body.
#
# <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>

TOLERANCE_S: Final = 300
_ENCODED: Final = "whsec_"


def headers_for(secret: str, message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers that sign `body` as the message `message_id` sent at `seconds` since the epoch."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": "v1," + _sign(secret, message_id, str(seconds), body),
    }


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance: int = TOLERANCE_S, now: float | None = None
) -> Any:
    """The parsed body of a webhook that this deployment signed, for receivers.

    Args:
        secret: the shared secret.
        headers: the request's headers, in any case.
        body: the raw body.
        tolerance: seconds that the message may be old; keep the `webhook-id` that long to know a repetition.
        now: seconds since the epoch; by default this machine's clock.

    Raises `InvalidCall` (401) where the signature does not hold or the time is over.
    """
    found = {name.lower(): value for name, value in headers.items()}
    message_id, stamp = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    if not message_id or not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise InvalidCall("the webhook is not signed", code="unsigned", status=401)
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance:
        raise InvalidCall("the webhook is too old, or from the future", code="stale", status=401)
    wanted = _sign(secret, message_id, stamp, body)
    given = [one.partition(",") for one in found.get("webhook-signature", "").split()]
    if not any(version == "v1" and hmac.compare_digest(value.encode(), wanted.encode()) for version, _, value in given):
        raise InvalidCall("the signature of the webhook does not hold", code="bad_signature", status=401)
    return parse(body)


def _sign(secret: str, message_id: str, stamp: str, body: bytes) -> str:
    key = secret.encode()
    if secret.startswith(_ENCODED):
        try:
            key = base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidCall("the secret of the webhook is not base64 behind `whsec_`", code="secret") from error
    signed = f"{message_id}.{stamp}.".encode() + body
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


# Mail out (RFC 5321): under the same policy as requests, over TLS from the first byte (RFC 8314).
#
# There is no `STARTTLS`: what somebody puts in front of it is a known way in (CVE-2011-0411). A server without TLS
# is spoken to only where the operator named its host. The protocol is `aiosmtplib`'s.

MAX_RECIPIENTS: Final = 20
_ADDRESS: Final = Lazy(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*")
_NO_AUTH: Final = 530  # RFC 4954, 6: what a server says where it wants a name


@dataclass(frozen=True, kw_only=True, slots=True)
class MailServer:
    """Where mail is handed over; `tls` from the first byte. A `user` signs in with the password."""

    host: str
    port: int
    tls: bool
    user: str = ""
    password: str = field(default="", repr=False)


def is_address(text: str) -> bool:
    """Whether this is a plain address of mail, which holds nothing that a server would read as a command."""
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


async def send_mail(
    server: MailServer, sender: str, recipients: tuple[str, ...], data: bytes, policy: EgressPolicy
) -> int:
    """Hand a message to its server, and return the code of the answer that settled it: 250 where it was taken.

    `data` is a message in ASCII with its headers (RFC 5322). Raises `EgressRefused` where the policy or an address
    forbids it, `EgressFailed` where the server cannot be spoken to.
    """
    if not recipients or len(recipients) > MAX_RECIPIENTS or not all(map(is_address, (sender, *recipients))):
        raise EgressRefused("mail goes from one plain address to at most 20 others")
    if not server.tls and not policy.names(server.host, server.port):
        raise EgressRefused(f"`{server.host}` would be spoken to without TLS; use `smtps`, or allow a private host")
    if server.user and not server.tls:
        raise EgressRefused("a password is not sent without TLS; use `smtps`")
    try:  # the library is an extra, and whoever sends no mail does not wait for it
        from aiosmtplib import SMTPException, SMTPResponseException
    except ImportError as error:
        raise EgressRefused('mail needs the package `aiosmtplib`: pip install "aegis-guard[server]"') from error
    try:
        async with asyncio.timeout(policy.total_seconds):
            client = await _client(server, policy)
            try:
                return await _handed_over(client, server, sender, recipients, data)
            finally:
                client.close()
    except EgressError:
        raise
    except SMTPResponseException as error:
        if not 300 <= error.code <= 599:  # a yes where none was asked for would count as a mail that was taken
            raise EgressFailed(f"`{server.host}` says what is no answer") from error
        return error.code
    except TimeoutError as error:
        raise EgressFailed(f"`{server.host}` did not answer in time") from error
    except (OSError, ValueError, SMTPException) as error:
        raise EgressFailed(f"`{server.host}` could not be spoken to: {type(error).__name__}") from error


async def _client(server: MailServer, policy: EgressPolicy) -> SMTP:
    """A client over a connection to an address that was checked; TLS is checked against the name."""
    from aiosmtplib import SMTP

    from aegis.outbound.client import CheckedResolver

    found = await CheckedResolver(policy).resolve(server.host, server.port, socket.AF_UNSPEC)
    if not found:
        raise EgressFailed(f"`{server.host}` has no address")
    connection = socket.socket(found[0]["family"], socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(policy.connect_seconds):
            await asyncio.get_running_loop().sock_connect(connection, (found[0]["host"], server.port))
        client = SMTP(
            hostname=server.host,
            sock=connection,
            use_tls=server.tls,
            start_tls=False,
            tls_context=ssl.create_default_context(cafile=policy.ca_file) if server.tls else None,
            local_hostname="aegis.invalid",
            timeout=policy.total_seconds,
        )
        await client.connect()
    except BaseException:
        connection.close()
        raise
    return client


async def _handed_over(client: SMTP, server: MailServer, sender: str, recipients: tuple[str, ...], data: bytes) -> int:
    """The code of the last answer; every other one than the wanted raises, so that all recipients get it or none."""
    await client.ehlo()
    if server.user:
        if not client.supports_extension("auth"):
            return _NO_AUTH
        await client.login(server.user, server.password)
    await client.mail(sender)
    for recipient in recipients:
        await client.rcpt(recipient)
    return (await client.data(data)).code


# One message to one receiver, as the outbox keeps it.

COLLECTION: Final = "deliveries"

State = Literal["due", "dead"]


class DeliveryTarget(Struct, frozen=True, kw_only=True):
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


class Message(Struct, frozen=True, kw_only=True):
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
        return decode(document.body, Message)
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


def _slack(message: Message) -> dict[str, Any]:
    secret = _resolved(message.target.secret) if "bound" in message.data else ""
    return slack_body(message.text, message.link, message.data, secret)


def _webhook(message: Message) -> dict[str, Any]:
    return {"type": message.event, "timestamp": rfc3339(message.created_at), "data": message.data}
