"""One key, one purpose: nobody is trusted under a key that this deployment, or somebody else, has for another one."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap import open_deployment
from aegis.config.config import parse_config
from aegis.errors import ConfigError, MissionInvalid
from aegis.keys.keyring import Ed25519Signer, load, path_for
from aegis.missions.holder import Holder, holder_folder
from support.missions import Desk, b64, desk, jwk, signer

TOOL = signer(21)
ISSUER_KEY = signer(22)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Desk]:
    made = desk(
        tmp_path / "home",
        f"missions: {{tool_keys: {{x: {b64(TOOL.public)}}}, issuers: {{acme: {b64(ISSUER_KEY.public)}}}}}",
    )
    made.open(made.issue())
    made.call("list_rows")
    made.gate.attest_session("s-1")
    yield made
    made.home.close()


def holder(place: Desk) -> Ed25519Signer:
    return Holder(holder_folder(place.home.home), "bot").key


def rotated(purpose: Any) -> Callable[[Desk], Ed25519Signer]:
    """The key of a purpose that was in force before a rotation."""

    def old(place: Desk) -> Ed25519Signer:
        before = Ed25519Signer(load(path_for(place.home.home / "keys", purpose), purpose).secret, purpose)
        place.home.introductions.rotate(purpose)
        return before

    return old


OWN: dict[str, Callable[[Desk], Ed25519Signer]] = {
    "log": lambda place: place.home.keyring.log_signer(),
    "gateway": lambda place: place.home.keyring.receipt_signer(),
    "agent": lambda place: place.home.keyring.receipt_signer("bot"),
    "permit": lambda place: place.home.keyring.permit_signer(),
    "mission": lambda place: place.home.keyring.mission_signer(),
    "attestation": lambda place: place.home.keyring.attestation_signer(),
    "holder": holder,
    "retired log": rotated("log"),
    "retired permit": rotated("permit"),
    "retired receipt": rotated("receipt"),
}


@pytest.mark.claim("KEY-07")
@pytest.mark.parametrize("section", ["tool_keys", "issuers"])
@pytest.mark.parametrize("which", OWN)
def test_no_key_of_the_deployment_is_somebody_else_s(place: Desk, which: str, section: str) -> None:
    key = OWN[which](place)
    place.home.introductions.key(place.home.keyring.permit_signer())
    for spelled in (b64(key.public), base64.urlsafe_b64encode(key.public).decode()):
        text = f'version: 1\nmissions: {{{section}: {{somebody: "{spelled}"}}}}\n'
        with pytest.raises(ConfigError, match="of the deployment itself"):
            place.home.policy.check(text)
    home = place.home.home
    file = home / "aegis.yaml"
    before = file.read_text()
    place.home.close()
    file.write_text(text)
    with pytest.raises(ConfigError, match="of the deployment itself"):
        open_deployment(file, home, agent="bot")
    file.write_text(before)
    place.home = open_deployment(file, home, agent="bot")


@pytest.mark.claim("KEY-07")
def test_a_key_of_somebody_else_is_taken(place: Desk) -> None:
    place.home.policy.check(f"version: 1\nmissions: {{tool_keys: {{a: {b64(TOOL.public)}, b: {b64(TOOL.public)}}}}}\n")


@pytest.mark.claim("KEY-07")
@pytest.mark.parametrize("spelled", ["", "A" * 42, "A" * 42 + "B", "+" + b64(TOOL.public), "é" * 43, "A" * 44])
def test_a_key_has_one_spelling(spelled: str) -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        parse_config(f'version: 1\nmissions: {{tool_keys: {{x: "{spelled}"}}}}\n', file="x.yaml")


@pytest.mark.claim("KEY-08")
@pytest.mark.parametrize(
    "missions",
    [
        f"issuers: {{a: {b64(TOOL.public)}, b: {b64(TOOL.public)}}}",
        f"issuers: {{a: {b64(TOOL.public)}}}, tool_keys: {{x: {b64(TOOL.public)}}}",
    ],
)
def test_an_issuer_s_key_is_nobody_else_s(missions: str) -> None:
    with pytest.raises(ConfigError, match="as well"):
        parse_config(f"version: 1\nmissions: {{{missions}}}\n", file="x.yaml")


@pytest.mark.claim("KEY-08")
def test_a_holder_s_key_has_no_other_purpose(place: Desk) -> None:
    keyring = place.home.keyring
    for other in (keyring.log_signer(), keyring.receipt_signer("bot"), keyring.mission_signer(), TOOL, ISSUER_KEY):
        with pytest.raises(MissionInvalid) as refused:
            place.issue(cnf=jwk(other))
        assert refused.value.member == "cnf"
    place.issue(cnf=jwk(holder(place)))
