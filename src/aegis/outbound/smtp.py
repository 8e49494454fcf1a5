"""Mail out (RFC 5321): under the same policy as requests, over TLS from the first byte (RFC 8314).

There is no `STARTTLS`: what somebody puts in front of it is a known way in (CVE-2011-0411). A server without TLS is
spoken to only where the operator named its host. The protocol is `aiosmtplib`'s.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import re2

from aegis.errors import EgressError, EgressFailed, EgressRefused
from aegis.outbound.values import EgressPolicy

if TYPE_CHECKING:
    from aiosmtplib import SMTP

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
    try:  # the library is an extra, and whoever sends no mail does not wait for it
        from aiosmtplib import SMTPException, SMTPResponseException
    except ImportError as error:
        raise EgressRefused("mail needs the package `aiosmtplib`: install `aegis-guard[server]`") from error
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

    from aegis.outbound.resolver import CheckedResolver

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
