"""Mail leaves under the policy of egress: over TLS, to checked addresses, and with nothing that a server obeys."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aegis.errors import EgressFailed, EgressRefused
from aegis.outbound.client import EgressPolicy
from aegis.outbound.send import MailServer, is_address, send_mail
from support.mail_server import mail_host, real_mail_server

TEXT = b"Subject: x\r\n\r\n.hidden\r\nlast\r\n"
NAMED = EgressPolicy(private=frozenset({"127.0.0.1"}), total_seconds=60, connect_seconds=60)


def hand_over(
    port: int,
    policy: EgressPolicy = NAMED,
    *,
    to: tuple[str, ...] = ("ops@example.com",),
    tls: bool = False,
    user: str = "",
    password: str = "",
) -> int:
    server = MailServer(host="127.0.0.1", port=port, tls=tls, user=user, password=password)
    return asyncio.run(send_mail(server, "aegis@example.com", to, TEXT, policy))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "both.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture
def context(certificate: Path) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(certificate)
    return found


@pytest.fixture
def trusting(certificate: Path) -> EgressPolicy:
    """A policy that knows the server's certificate."""
    named = frozenset({"127.0.0.1"})
    return EgressPolicy(private=named, ca_file=str(certificate), total_seconds=60, connect_seconds=60)


def test_a_mail_arrives_whole_for_everybody_whom_it_is_for() -> None:
    with real_mail_server() as box:
        assert hand_over(box.port, to=("ops@example.com", "on-call@example.com")) == 250
    (taken,) = box.taken
    assert (taken.mail_from, taken.rcpt_tos) == ("aegis@example.com", ["ops@example.com", "on-call@example.com"])
    assert taken.original_content == TEXT


def test_a_password_goes_over_tls_to_a_certificate_that_holds(context: ssl.SSLContext, trusting: EgressPolicy) -> None:
    with real_mail_server(context, password="open sesame") as box:
        assert hand_over(box.port, trusting, tls=True, user="aegis", password="open sesame") == 250
        assert hand_over(box.port, trusting, tls=True, user="aegis", password="another") == 535
        assert hand_over(box.port, trusting, tls=True) == 530
        asked = len(box.signed_in)
        with pytest.raises(EgressFailed):
            hand_over(box.port, tls=True, user="aegis", password="open sesame")
        assert (len(box.taken), len(box.signed_in)) == (1, asked)
    with mail_host() as plain:
        with pytest.raises(EgressRefused):
            hand_over(plain.port, user="aegis", password="open sesame")
        assert plain.said == []


@pytest.mark.parametrize("method", ["PLAIN", "LOGIN"])
def test_either_way_of_signing_in_is_spoken(context: ssl.SSLContext, trusting: EgressPolicy, method: str) -> None:
    with real_mail_server(context, password="open sesame", auth=(method,)) as box:
        assert hand_over(box.port, trusting, tls=True, user="aegis", password="open sesame") == 250
    assert box.signed_in == [b"aegis"]


def test_a_password_stays_here_where_nobody_asks_for_it(context: ssl.SSLContext, trusting: EgressPolicy) -> None:
    with mail_host(context, EHLO=b"250 here\r\n") as host:
        assert hand_over(host.port, trusting, tls=True, user="aegis", password="open sesame") == 530
        assert [line.split()[0] for line in host.said] == ["EHLO"]


@pytest.mark.parametrize("tls", [True, False])
def test_a_private_host_that_nobody_named_is_not_spoken_to(tls: bool) -> None:
    with mail_host() as host:
        with pytest.raises(EgressRefused):
            hand_over(host.port, EgressPolicy(), tls=tls)
        assert host.said == []


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "ops",
        "a@b@c",
        "ops@example.com\r\nRCPT TO:<x@y.z>",
        "<ops@example.com>",
        "ops @example.com",
        "a" * 300 + "@x.y",
    ],
)
def test_what_is_no_plain_address_reaches_no_server(wrong: str) -> None:
    assert not is_address(wrong)
    with mail_host() as host:
        with pytest.raises(EgressRefused):
            hand_over(host.port, to=(wrong,))
        assert host.said == []


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"hello": b"554 no\r\n"}, 554),
        ({"EHLO": b"421 later\r\n"}, 421),
        ({"RCPT": b"550 nobody of that name\r\n"}, 550),
        ({"MAIL": b"452 full\r\n"}, 452),
        ({"DATA": b"451 later\r\n"}, 451),
        ({".": b"452 full\r\n"}, 452),
    ],
)
def test_the_answer_that_settles_it_is_returned(answers: dict[str, bytes], code: int) -> None:
    with mail_host(None, **answers) as host:
        assert hand_over(host.port) == code


@pytest.mark.parametrize(
    "hello",
    [b"what?\r\n", b"220-" + b"x" * 5_000 + b"\r\n", b"220-again\r\n" * 200, b""],
    ids=["no code", "long", "endless", "silent end"],
)
def test_a_server_that_is_none_is_a_failure(hello: bytes) -> None:
    with mail_host(hello=hello, EHLO=b"") as host, pytest.raises(EgressFailed):
        hand_over(host.port, EgressPolicy(private=frozenset({"127.0.0.1"}), total_seconds=2))


@pytest.mark.parametrize("answer", [b"299 odd\r\n", b"999 odd\r\n", b"220 again\r\n"])
def test_a_yes_that_nobody_asked_for_is_no_mail_that_was_taken(answer: bytes) -> None:
    with mail_host(None, MAIL=answer) as host, pytest.raises(EgressFailed):
        hand_over(host.port)
    assert host.mails == []


def test_one_receiver_whom_the_server_refuses_keeps_the_mail_from_all() -> None:
    with mail_host(None, RCPT=b"550 nobody of that name\r\n") as host:
        assert hand_over(host.port, to=("ops@example.com", "on-call@example.com")) == 550
    assert host.mails == []
