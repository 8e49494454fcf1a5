"""Running a gateway: its doors, signals and limits."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import signal
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aegis.errors import ConfigError
from aegis.server.protocol import ConnectionLimits, bind_tcp, bind_unix
from aegis.server.serve import DRAIN_S, ServeSettings, check_exposure
from support.processes import CONFIG, Process, gateway_process
from support.served import Served, served

LIMITS = ConnectionLimits(connections=12, header_bytes=4_096, arrival_seconds=1.0)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway") / "home", limits=LIMITS) as running:
        yield running


def call_until_refused(gateway: Process, acknowledged: list[Any], broken: list[Any]) -> None:
    """Decide over one connection until the gateway hangs up; an answer that began must be whole."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    while True:
        body = json.dumps({"tool": "read_file", "arguments": {}, "call_id": uuid.uuid4().hex})
        try:
            connection.request("POST", "/v1/decisions", body, {"authorization": f"Bearer {gateway.keys['bot']}"})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            return
        try:
            acknowledged.append(json.loads(response.read()))
        except (OSError, http.client.HTTPException, ValueError) as error:
            broken.append(error)
            return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_under_load_loses_nothing_acknowledged(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    acknowledged: list[Any] = []
    broken: list[Any] = []
    with gateway_process(home) as gateway:
        callers = [threading.Thread(target=call_until_refused, args=(gateway, acknowledged, broken)) for _ in range(8)]
        for caller in callers:
            caller.start()
        while len(acknowledged) < 100:
            time.sleep(0.01)
        gateway.process.send_signal(number)
        assert gateway.process.wait(20) == 0
        for caller in callers:
            caller.join(20)
    assert not broken
    assert not (home / "aegis.sock").exists()
    assert all(one["decision"] == "allow" for one in acknowledged)
    with gateway_process(home) as gateway:
        for one in acknowledged[-50:]:
            status, found = gateway.ask("GET", f"/v1/receipts/{one['receipt']['id']}", key="auditor")
            assert (status, found["leaf_hash"]) == (200, one["receipt"]["leaf_hash"])


def test_sighup_reads_the_configuration_again(tmp_path: Path) -> None:
    with gateway_process(tmp_path / "home") as gateway:
        assert gateway.decide()[1]["decision"] == "allow"
        text = CONFIG.replace("read_file: {risk: low", "read_file: {risk: critical")
        (gateway.home / "aegis.yaml").write_text(text)
        gateway.process.send_signal(signal.SIGHUP)
        decision = ""
        for _ in range(200):
            decision = gateway.decide()[1]["decision"]
            if decision == "block":
                break
            time.sleep(0.02)
        assert decision == "block"


def test_a_log_that_nobody_reads_holds_no_decision_up(tmp_path: Path) -> None:
    with gateway_process(tmp_path / "home") as gateway:
        assert gateway.process.stderr is not None
        room = fcntl.fcntl(gateway.process.stderr.fileno(), fcntl.F_SETPIPE_SZ, 4_096)
        for _ in range(room // 50):  # a line of the access log has more bytes than that
            assert gateway.ask("GET", "/v1/receipts?limit=1", key="auditor")[0] == 200
        assert gateway.decide()[1]["decision"] == "allow"
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0


def test_log_lines_are_json_without_argument_values(tmp_path: Path) -> None:
    with gateway_process(tmp_path / "home") as gateway:
        gateway.decide(arguments={"path": "zebra-crossing"}, call_id="quagga")
        gateway.ask("GET", "/v1/receipts?tool=okapi", key="auditor")
        gateway.ask("POST", "/v1/decisions", b'{"tool": "okapi", "tapir": 1}')
        gateway.ask("GET", "/v1/sessions/okapi", key="auditor")
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(20) == 0
        assert gateway.process.stderr is not None
        lines = gateway.process.stderr.read().splitlines()
    records = [json.loads(line) for line in lines]
    messages = [record["message"] for record in records]
    # Where the disk is busy with others the last commits outlast the time to drain, and that is said instead.
    assert messages[0] == "the gateway listens"
    assert messages[-1] in ("the gateway stopped", "the gateway ends with work under way")
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(record) for record in records))
    for word in ("zebra", "quagga", "okapi", "tapir", "Bearer", gateway.keys["bot"]):
        assert word not in "\n".join(lines)


def test_a_second_gateway_of_a_home_leaves_the_socket_alone_and_a_dead_ones_is_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway_process(home) as gateway:
        before = (home / "aegis.sock").stat().st_ino
        with gateway_process(home) as second:
            assert second.decide()[0] == 200
            assert (home / "aegis.sock").stat().st_ino == before
        assert (home / "aegis.sock").stat().st_ino == before
        assert gateway.decide()[0] == 200
        gateway.process.kill()
        gateway.process.wait()
    assert (home / "aegis.sock").exists()
    with gateway_process(home) as gateway:
        assert gateway.decide()[0] == 200


def test_a_taken_port_is_said_in_words(tmp_path: Path, gateway: Served) -> None:
    with pytest.raises(ConfigError, match="is taken"):
        bind_tcp("127.0.0.1", gateway.port)


def test_what_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "aegis.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="no socket"):
        bind_unix(path)
    assert path.read_text() == "precious"
    with pytest.raises(ConfigError, match="over 104 bytes"):
        bind_unix(tmp_path / ("a" * 120))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.com", "127.0.0.1.example.com"])
def test_an_exposed_address_needs_tls_a_proxy_or_a_dangerous_word(host: str) -> None:
    plain = ServeSettings(host=host)
    with pytest.raises(ConfigError, match="unencrypted"):
        check_exposure(plain)
    check_exposure(replace(plain, insecure_plain_http=True))
    check_exposure(replace(plain, tls_certificate=Path("cert.pem")))
    assert [str(network) for network in check_exposure(replace(plain, trusted_proxies=("10.0.0.0/24",)))] == [
        "10.0.0.0/24"
    ]
    with pytest.raises(ConfigError):
        check_exposure(replace(plain, trusted_proxies=("everybody",)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_needs_nothing(host: str) -> None:
    assert check_exposure(ServeSettings(host=host)) == ()


def test_a_peer_that_is_no_trusted_proxy_is_hung_up_on(tmp_path: Path) -> None:
    with served(tmp_path / "home", settings=ServeSettings(trusted_proxies=("192.0.2.0/24",))) as gateway:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            gateway.decide()
        unix = http.client.HTTPConnection("gateway")
        unix.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.sock.connect(str(gateway.unix))
        unix.request("GET", "/healthz")
        assert unix.getresponse().status == 200
        unix.close()


def error_of(data: bytes) -> tuple[int, str]:
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_headers_over_the_limit_are_431(gateway: Served) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
    assert error_of(gateway.raw(head + b"X-Long: " + b"a" * 5_000 + b"\r\n\r\n")) == (431, "too_large")
    assert error_of(gateway.raw(head + b"".join(b"X-%d: 1\r\n" % n for n in range(150)) + b"\r\n")) == (
        431,
        "too_large",
    )
    assert error_of(gateway.raw(b"GET /" + b"a" * 5_000 + b" HTTP/1.1\r\n\r\n")) == (431, "too_large")


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"HELLO / SMTP\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"]
)
def test_what_is_not_http_is_400(gateway: Served, data: bytes) -> None:
    assert error_of(gateway.raw(data)) == (400, "bad_request")


def test_a_request_that_does_not_arrive_is_given_up(gateway: Served) -> None:
    assert error_of(gateway.raw(b"")) == (408, "timeout")
    assert error_of(gateway.raw(b"GET /healthz HTTP/1.1\r\nHost:")) == (408, "timeout")
    head = gateway.head("/v1/decisions", content_length="50") + b"\r\n"
    assert error_of(gateway.raw(head + b'{"tool"')) == (408, "timeout")


def test_only_so_many_connections_are_held_and_those_that_ask_nothing_make_room(gateway: Served) -> None:
    """Whoever opens connections and asks nothing, or sends slowly, keeps nobody out; whoever is answered stays."""
    address = ("127.0.0.1", gateway.port)
    body = gateway.head("/v1/decisions", content_length="50") + b'\r\n{"tool"'
    held = [socket.create_connection(address, timeout=60) for _ in range(LIMITS.connections)]
    try:
        for connection in held[: LIMITS.connections // 2]:
            connection.sendall(body)
        for _ in range(3):
            assert gateway.decide().status == 200
        ended = error_of(b"".join(iter(partial(held[0].recv, 65_536), b"")))
        assert ended in ((503, "unavailable"), (408, "timeout"))  # it made room, or its time was over before
    finally:
        for connection in held:
            connection.close()
    key = gateway.credentials.text("auditor")
    watch = f"GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    watching = [socket.create_connection(address, timeout=60) for _ in range(LIMITS.connections)]
    try:
        for connection in watching:
            connection.sendall(watch)
        for connection in watching:
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert error_of(gateway.raw(b"")) == (503, "unavailable")
    finally:
        for connection in watching:
            connection.close()
    for _ in range(100):
        with_room = gateway.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        if with_room.startswith(b"HTTP/1.1 200"):
            return
        time.sleep(0.02)
    pytest.fail("the connections were not given back")


def test_pipelined_requests_are_answered_in_order(gateway: Served) -> None:
    def sent(call_id: bytes, **headers: str) -> bytes:
        body = b'{"tool":"read_file","arguments":{},"call_id":"%s"}' % call_id
        return gateway.head("/v1/decisions", content_length=str(len(body)), **headers) + b"\r\n" + body

    answer = gateway.raw(sent(b"p1") + sent(b"p2") + sent(b"p3", connection="close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b'"call_id":"p1"') < answer.index(b'"call_id":"p2"') < answer.index(b'"call_id":"p3"')


def test_many_pipelined_requests_are_not_taken_for_one_long_one(gateway: Served) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer = gateway.raw(one * 400 + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 401


def test_headers_that_never_end_are_431(gateway: Served) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        received = b""
        with contextlib.suppress(OSError):  # hung up on while it still sends
            for number in range(200):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"a" * 100))
                time.sleep(0.001)
        with contextlib.suppress(OSError):
            received = connection.recv(65_536)
    assert not received or error_of(received) == (431, "too_large")
    assert gateway.decide().status == 200


def test_a_client_that_hangs_up_early_disturbs_nobody(gateway: Served) -> None:
    data = gateway.head("/v1/decisions", content_length="400") + b"\r\n" + b"{" * 60
    for cut in (20, 60, len(data) - 100, len(data)):
        with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
            connection.sendall(data[:cut])
    assert gateway.decide().status == 200


def test_tls_serves_the_same(tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    settings = ServeSettings(tls_certificate=certificate, tls_key=key)
    with served(tmp_path / "home", settings=settings) as gateway:
        context = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("localhost", gateway.port, context=context, timeout=20)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            gateway.decide()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate for `localhost` that vouches for itself."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(secret, hashes.SHA256())
    )
    key, public = folder / "key.pem", folder / "certificate.pem"
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(secret.private_bytes(*form))
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return key, public


@contextlib.contextmanager
def endless(way: str) -> Iterator[int]:
    """The port of a receiver that takes a connection and never comes to the end of an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def hold(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                if way == "drips":
                    connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not ended.wait(0.2):
                    if way == "drips":
                        connection.sendall(b"x-more: yes\r\n")

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=hold, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        ended.set()


def hung(port: int) -> str:
    return (
        "version: 1\nlimits: {rate: unlimited}\napprovals:\n  notify:\n"
        f"    - {{kind: slack, url: 'http://127.0.0.1:{port}/', private: ['127.0.0.1:{port}']}}\n"
        "tools: {send_email: {risk: high, irreversible: true}}\n"
    )


@pytest.mark.claim("FLT-17")
@pytest.mark.parametrize("way", ["hangs", "drips"])
def test_a_stop_waits_for_no_receiver_longer_than_the_drain(tmp_path: Path, way: str) -> None:
    with endless(way) as port, gateway_process(tmp_path / "home", hung(port)) as gateway:
        for number in range(20):
            assert gateway.decide("send_email", call_id=f"c-{number}")[0] == 202
        with socket.create_connection(("127.0.0.1", gateway.port)) as waiting:
            waiting.sendall(f"GET /v1/events HTTP/1.1\r\nHost: x\r\n{bearer(gateway)}\r\n\r\n".encode())
            assert waiting.recv(100)  # a reader that never goes away
            gateway.process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            assert gateway.process.wait(30) == 0
            assert time.monotonic() - started < DRAIN_S + 2
        assert not (gateway.home / "aegis.sock").exists()


@pytest.mark.claim("FLT-17")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    with endless("drips") as port, gateway_process(home, hung(port)) as gateway:
        held = gateway.decide("send_email", call_id="c-1")[1]
        with socket.create_connection(("127.0.0.1", gateway.port)) as slow:
            slow.sendall(f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\n{bearer(gateway)}\r\n".encode())
            gateway.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)  # the first signal is under way
            assert gateway.process.poll() is None
            gateway.process.send_signal(number)
            started = time.monotonic()
            assert gateway.process.wait(30) == 0
            assert time.monotonic() - started < DRAIN_S / 2
        assert not (home / "aegis.sock").exists()
    with gateway_process(home, hung(port)) as gateway:
        assert gateway.ask("GET", held["approval"]["url"])[1]["state"] == "pending"


def bearer(gateway: Process) -> str:
    return f"Authorization: Bearer {gateway.keys['auditor']}"
