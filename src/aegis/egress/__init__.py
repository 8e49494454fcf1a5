"""The one way out: every request that Aegis itself sends to a network goes through `Egress`,
and every mail through `send_mail`.

It connects to the very address that it checked, follows no redirect, reads no proxy from the environment, keeps no
cookies, and caps time and bytes. Private, loopback and link-local addresses are refused unless the operator names
the host. An import contract keeps other HTTP clients out of the package.
"""

from aegis.egress.client import Egress, Streamed
from aegis.egress.smtp import MailServer, is_address, send_mail
from aegis.egress.values import EgressPolicy, Request, Response

__all__ = ["Egress", "EgressPolicy", "MailServer", "Request", "Response", "Streamed", "is_address", "send_mail"]
