"""A message as mail: its text, and the server that takes it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit

from aegis.core.times import MICROS
from aegis.delivery.message import Message
from aegis.egress import MailServer
from aegis.errors import EgressRefused

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
