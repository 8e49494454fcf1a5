"""`aegis doctor` points out what is allowed and loosens: settings, credentials, files of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from aegis.cli.doctor import Check, Found, Patient
from aegis.cli.doctor.home import keys
from aegis.cli.doctor.posture import posture
from aegis.keys.api import issue, revoke_key, store_key
from aegis.keys.keyring import Purpose, load_or_create, path_for
from aegis.store import open_store

LOOSE = """version: 1
insufficient_evidence: fail-open-with-attestation
durability: os
limits: {rate: unlimited}
registry: {allow_critical: true, max_allowed_tier: critical}
guards: {content: {mode: observe}, cedar: {mode: "off"}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    open_store("sqlite:///aegis.db", home=place).close()
    (place / "aegis.yaml").write_text("version: 1\n")
    return place


def found(home: Path, check: str, by: Check = posture) -> list[Found]:
    """What one check says, in its order."""
    patient = Patient(home=home, config=home / "aegis.yaml", url=None, api_key="")
    return [one for one in by(patient) if one.check == check]


def test_each_looser_setting_is_a_warning_of_its_own_with_the_way_back(home: Path) -> None:
    assert [one.state for one in found(home, "settings")] == ["ok"]
    (home / "aegis.yaml").write_text(LOOSE)
    warnings = found(home, "settings")
    assert {one.state for one in warnings} == {"warn"}
    assert [one.found for one in warnings] == [
        "calls that could not be evaluated run",
        "not enforced: content, cedar",
        "agents may call as often as they like",
        "critical tools may run",
        "a power cut may take the newest decisions",
    ]
    assert all(one.hint for one in warnings)


def test_a_key_that_asks_and_approves_is_pointed_out_until_it_is_revoked(home: Path) -> None:
    store = open_store("sqlite:///aegis.db", home=home)
    apart, joined = (issue(roles=("agent", other), now=1, agent="bot") for other in ("auditor", "approver"))
    with store.transaction() as transaction:
        store_key(transaction, apart)
        store_key(transaction, joined)
    (one,) = found(home, "credentials")
    assert (one.state, one.found) == ("warn", f"the key `{joined.key.id}` is agent, approver at once")
    with store.transaction() as transaction:
        revoke_key(transaction, joined.key.id, now=2)
    assert found(home, "credentials") == []
    store.close()


@pytest.mark.parametrize(("mode", "state"), [(0o644, "warn"), (0o666, "fail")])
def test_a_store_that_others_can_read_or_write_is_named(home: Path, mode: int, state: str) -> None:
    assert found(home, "store files") == []
    (home / "aegis.db").chmod(mode)
    (one,) = found(home, "store files")
    assert (one.state, one.hint) == (state, f"chmod 600 {home / 'aegis.db'}")


@pytest.mark.parametrize("purpose", ["mission", "attestation"])
def test_every_key_of_the_deployment_is_looked_at(home: Path, purpose: Purpose) -> None:
    load_or_create(home / "keys", purpose)
    assert [one.state for one in found(home, "keys", keys)] == ["ok"]
    path_for(home / "keys", purpose).chmod(0o644)
    assert [one.state for one in found(home, "keys", keys)] == ["fail"]


def test_a_configuration_that_does_not_compile_is_the_other_checks_word(home: Path) -> None:
    (home / "aegis.yaml").write_text("profil: strict\n")
    assert found(home, "settings") == []
