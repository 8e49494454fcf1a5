"""Mail out (RFC 5321): under the same policy as requests, over TLS from the first byte (RFC 8314).

There is no `STARTTLS`: what somebody puts in front of it is a known way in (CVE-2011-0411). A server without TLS is
spoken to only where the operator named its host.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import re2

from aegis.egress.values import EgressPolicy
from aegis.errors import EgressError, EgressFailed, EgressRefused

MAX_LINE: Final = 1_000  # bytes of one line of an answer (RFC 5321, 4.5.3.1.5 allows 512)
MAX_LINES: Final = 100  # lines of one answer: a server must not keep us reading
MAX_RECIPIENTS: Final = 20
_ADDRESS: Final = re2.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*")
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
    try:
        async with asyncio.timeout(policy.total_seconds):
            reader, writer = await _connected(server, policy)
            try:
                return await _handed_over(reader, writer, server, sender, recipients, data)
            finally:
                writer.close()
                with suppress(OSError):  # it was taken or not already; how the connection ends changes nothing
                    await writer.wait_closed()
    except EgressError:
        raise
    except TimeoutError as error:
        raise EgressFailed(f"`{server.host}` did not answer in time") from error
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise EgressFailed(f"`{server.host}` could not be spoken to: {type(error).__name__}") from error


async def _connected(server: MailServer, policy: EgressPolicy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to an address that was checked; TLS is checked against the name."""
    from aegis.egress.resolver import CheckedResolver

    found = await CheckedResolver(policy).resolve(server.host, server.port, socket.AF_UNSPEC)
    if not found:
        raise EgressFailed(f"`{server.host}` has no address")
    context = ssl.create_default_context(cafile=policy.ca_file) if server.tls else None
    async with asyncio.timeout(policy.connect_seconds):
        return await asyncio.open_connection(
            found[0]["host"],
            server.port,
            ssl=context,
            server_hostname=server.host if server.tls else None,
            limit=MAX_LINE,
        )


async def _handed_over(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    server: MailServer,
    sender: str,
    recipients: tuple[str, ...],
    data: bytes,
) -> int:
    async def said(line: str) -> int:
        writer.write(line.encode("ascii") + b"\r\n")
        await writer.drain()
        return await _answer(reader)

    code = await _answer(reader)
    if code != 220:
        return code
    code = await said("EHLO aegis.invalid")
    if code != 250:
        return code
    if server.user:
        secret = base64.b64encode(f"\0{server.user}\0{server.password}".encode()).decode()
        code = await said(f"AUTH PLAIN {secret}")
        if code != 235:
            return code if code >= 400 else _NO_AUTH
    for line, wanted in (
        (f"MAIL FROM:<{sender}>", 250),
        *((f"RCPT TO:<{recipient}>", 250) for recipient in recipients),
        ("DATA", 354),
    ):
        code = await said(line)
        if code != wanted:
            return code
    # RFC 5321, 4.5.2: a line that begins with a dot gets another one; lines end by CRLF alone.
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    writer.write(b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines) + b"\r\n.\r\n")
    await writer.drain()
    code = await _answer(reader)
    writer.write(b"QUIT\r\n")
    return code


async def _answer(reader: asyncio.StreamReader) -> int:
    """The code of one answer, of however many lines."""
    for _ in range(MAX_LINES):
        line = await reader.readuntil(b"\n")
        code, more = line[:3], line[3:4] == b"-"
        if not code.isdigit():
            raise EgressFailed("the mail server says what is no answer")
        if not more:
            return int(code)
    raise EgressFailed("the mail server does not come to an end")
