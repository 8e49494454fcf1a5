"""Keys on disk: one purpose each, readable by their owner alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aegis.core.receipt import GATEWAY_SIGNER, LOG_SIGNER, agent_signer
from aegis.errors import KeyFileError, StoreCorrupt
from aegis.keys.keyring import Keyring, load, path_for
from support.threads import together


def test_a_key_survives_a_restart(tmp_path: Path) -> None:
    assert Keyring(tmp_path).log_signer().kid == Keyring(tmp_path).log_signer().kid


def test_every_purpose_and_every_agent_has_a_key_of_its_own(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    names = (LOG_SIGNER, GATEWAY_SIGNER, agent_signer("a"), agent_signer("b"))
    kids = {ring.signer_for(name).kid for name in names} | {ring.permit_signer().kid}
    assert len(kids) == 5


def test_an_agent_called_gateway_does_not_get_the_gateways_key(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    assert ring.signer_for(agent_signer("gateway")).kid != ring.signer_for(GATEWAY_SIGNER).kid


def test_files_are_private_and_an_agents_name_is_no_path(tmp_path: Path) -> None:
    Keyring(tmp_path).receipt_signer("../../etc/passwd")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 1
    assert files[0].parent == tmp_path / "agents"
    assert files[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    Keyring(tmp_path).log_signer()
    path_for(tmp_path, "log").chmod(mode)
    with pytest.raises(KeyFileError, match="others"):
        Keyring(tmp_path).log_signer()


def test_a_key_of_another_purpose_is_refused(tmp_path: Path) -> None:
    Keyring(tmp_path).log_signer()
    path_for(tmp_path, "log").rename(path_for(tmp_path, "permit"))
    with pytest.raises(KeyFileError, match="something else"):
        Keyring(tmp_path).permit_signer()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"secret":"%%","purpose":"log","agent":""}', b"\xff"])
def test_a_damaged_key_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = path_for(tmp_path, "log")
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError):
        load(path, "log")


def test_a_link_in_place_of_a_key_is_refused(tmp_path: Path) -> None:
    Keyring(tmp_path / "real").log_signer()
    path_for(tmp_path, "log").symlink_to(path_for(tmp_path / "real", "log"))
    with pytest.raises(KeyFileError):
        Keyring(tmp_path).log_signer()


def test_rotation_replaces_the_key_and_keeps_its_purpose(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    before = ring.receipt_signer("bot").kid
    after = ring.rotate("receipt", "bot")
    assert after.kid != before
    assert Keyring(tmp_path).receipt_signer("bot").kid == after.kid


def test_racing_threads_agree_on_one_key(tmp_path: Path) -> None:
    kids: list[str] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        kids.append(Keyring(tmp_path).receipt_signer("bot").kid)

    together(8, work)
    assert len(set(kids)) == 1


def test_a_signature_verifies_under_the_described_key(tmp_path: Path) -> None:
    signer = Keyring(tmp_path).receipt_signer("bot")
    Ed25519PublicKey.from_public_bytes(signer.public).verify(signer.sign(b"message"), b"message")
    assert signer.describe()["agent"] == "bot"


def test_a_sealed_payload_opens_and_every_change_is_noticed(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    key, body = ring.seal(b"payload")
    assert b"payload" not in body
    assert ring.open_payload(key, body) == b"payload"
    for changed in ((key, body[:-1] + bytes([body[-1] ^ 1])), (key[:-1] + bytes([key[-1] ^ 1]), body), (b"", body)):
        with pytest.raises(StoreCorrupt):
            ring.open_payload(*changed)
    with pytest.raises(StoreCorrupt):
        Keyring(tmp_path / "other").open_payload(key, body)


def test_a_signer_shows_no_secret(tmp_path: Path) -> None:
    signer = Keyring(tmp_path).log_signer()
    assert "_key" not in repr(signer)
    assert "secret" not in repr(load(path_for(tmp_path, "log"), "log"))
