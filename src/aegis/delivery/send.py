"""Sending one message: what goes over the wire for each kind, and what its receiver's answer means."""

from __future__ import annotations

from typing import Any, Final

import orjson

from aegis.core.times import MICROS, rfc3339
from aegis.delivery.mail import mail_of, mail_server
from aegis.delivery.message import Message, Target
from aegis.delivery.signature import headers_for
from aegis.egress import Egress, EgressPolicy, Request, send_mail
from aegis.errors import AegisError, EgressRefused, KeyFileError
from aegis.keys.reference import read_secret

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
    body = orjson.dumps(_slack(message) if target.kind == "slack" else _webhook(message))
    headers = {"content-type": "application/json", "user-agent": "aegis"}
    if target.kind == "webhook":
        headers |= headers_for(_resolved(target.secret), message.id, now // MICROS, body)
    return Request(method="POST", url=_resolved(target.url), headers=headers, body=body)


def describe(target: Target) -> str:
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
