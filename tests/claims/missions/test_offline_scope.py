"""With the payloads an export also proves that what ran was in scope; with an issuer's key, whose mission it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from aegis.core.breaks import BreakKind
from aegis.errors import InvalidCall, LogInvalid
from aegis.keys.jws import IssuerKey
from aegis.log.export import Payloads, payload_lines, read_payloads
from aegis.missions.declare import sign_mission
from aegis.missions.verify import NOT_CHECKED_ISSUERS, OfflineMissionRules, ScopeRules, read_issuers
from support.missions import ISSUER, TOOLS, Desk, b64, declaration, desk, signer
from support.shell import aegis

ELSEWHERE = signer(7)
ISSUERS = f"missions: {{issuers: {{elsewhere: {b64(ELSEWHERE.public)}}}}}"
ROLES = TOOLS + "  keep_note: {risk: low, effects: [read], roles: {where: content}}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("scope"), ISSUERS)
    made.open(made.issue())
    made.open(made.issue(scope={"paths": ["glob:/other/**"]}), "s-other")
    assert made.call(path="/ws/a").allowed
    assert made.call("send_mail", to="ann@example.com", body="hello").allowed
    assert not made.call(path="/srv/b").allowed
    assert made.call("read_file", "s-other", path="/other/c").allowed
    foreign = declaration(mission_id="m-foreign", iss="elsewhere", exp=int(time.time()) + 600)
    issued = made.gate.issuing.issue(ISSUER, token=sign_mission(foreign, ELSEWHERE))
    made.gate.record(issued.unit)
    made.open("m-foreign", "s-foreign")
    assert made.call("read_file", "s-foreign", path="/ws/d").allowed
    yield made
    made.home.close()


def exported(place: Desk, folder: Path) -> Path:
    told = aegis("log", "export", "--out", str(folder), "--payloads", "--home", str(place.home.home))
    assert told.returncode == 0, told.stderr
    return folder


def verify(folder: Path, *options: str) -> tuple[int, Any]:
    told = aegis("log", "verify", str(folder), "--key", str(folder / "keys.json"), "--json", *options)
    return told.returncode, orjson.loads(told.stdout)


def test_an_export_with_payloads_verifies_and_says_what_is_left(place: Desk, tmp_path: Path) -> None:
    folder = exported(place, tmp_path / "out")
    assert (folder / "payloads.jsonl").stat().st_mode & 0o777 == 0o600
    code, told = verify(folder, "--payloads")
    assert code == 0, told
    assert not any("needs payloads" in line or line.startswith("payloads:") for line in told["not_covered"])
    assert any("links" in line for line in told["not_covered"])
    assert told["kinds"]["access"] == 1


def test_an_export_without_payloads_cannot_be_asked_for_scope(place: Desk, tmp_path: Path) -> None:
    folder = exported(place, tmp_path / "out")
    (folder / "payloads.jsonl").unlink()
    told = aegis("log", "verify", str(folder), "--key", str(folder / "keys.json"), "--payloads")
    assert told.returncode == 2
    assert "--payloads" in told.stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b"/ws/a", b"/ws/z"),
        lambda line: line.replace(b'"salt":"', b'"salt":"00'),
        lambda line: b"{}\n" + line,
        lambda line: line + line,
    ],
)
def test_a_changed_payload_is_found(place: Desk, tmp_path: Path, change: Any) -> None:
    folder = exported(place, tmp_path / "out")
    file = folder / "payloads.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b"/ws/a" in line)
    lines[at] = change(lines[at])
    file.write_bytes(b"".join(lines))
    code, told = verify(folder, "--payloads")
    assert (code, told["break"]) == (1, "payload_changed")


def test_the_missions_of_another_issuer_are_checked_with_its_key(place: Desk, tmp_path: Path) -> None:
    folder = exported(place, tmp_path / "out")
    file = tmp_path / "issuer.json"
    for public, code in ((ELSEWHERE.public, 0), (signer(8).public, 1)):
        key = {"kty": "OKP", "crv": "Ed25519", "kid": ELSEWHERE.kid, "x": b64(public)}
        file.write_bytes(orjson.dumps({"keys": [key]}))
        found, told = verify(folder, "--issuer", str(file))
        assert found == code, told
        assert code or NOT_CHECKED_ISSUERS not in told["not_covered"]
    assert NOT_CHECKED_ISSUERS in verify(folder)[1]["not_covered"]


@pytest.mark.parametrize(
    "document",
    [b"[]", b'{"keys": [{"kty": "RSA"}]}', b'{"keys": [{"kty":"OKP","crv":"Ed25519","kid":"k","x":"AA"}]}'],
)
def test_a_set_of_issuers_holds_ed25519_keys_alone(document: bytes) -> None:
    with pytest.raises(InvalidCall):
        read_issuers(document)


def judged(place: Desk, folder: Path, rows: list[dict[str, Any]]) -> tuple[BreakKind | None, ScopeRules]:
    """What the rules say of receipts, whose signatures are another rule's."""
    file = folder / "payloads.jsonl"
    with place.home.store.reader() as reader:
        file.write_bytes(b"".join(payload_lines(reader, reader.head().size, place.home.keyring.open_payload)))
    missions = OfflineMissionRules({ELSEWHERE.kid: IssuerKey(ELSEWHERE.public, "elsewhere")})
    scope = ScopeRules(missions, Payloads(read_payloads(file)))
    try:
        for row in rows:
            missions.see(row)
            scope.see(row)
    except LogInvalid as error:
        assert error.broken.kind != "mission_exceeded" or "scope" in error.broken.detail
        return error.broken.kind, scope
    return None, scope


def receipts(place: Desk) -> list[dict[str, Any]]:
    with place.home.store.reader() as reader:
        return [msgspec.json.decode(entry.body) for entry in reader.entries(0, reader.head().size)]


def test_a_released_call_outside_of_its_scope_is_found(place: Desk, tmp_path: Path) -> None:
    rows = receipts(place)
    assert judged(place, tmp_path, rows)[0] is None
    other = next(row for row in rows if row.get("session") == "s-other" and row["kind"] == "decision")
    call = next(row for row in rows if row.get("session") == "s-1" and row.get("decision") == "allow")
    call["mission_id"], call["lineage"] = other["mission_id"], other["lineage"]
    assert judged(place, tmp_path, rows)[0] == "mission_exceeded"


def test_a_payload_that_was_erased_is_counted_and_not_believed(tmp_path: Path) -> None:
    place = desk(tmp_path / "home")
    place.open(place.issue())
    erased = place.call(path="/ws/a")
    assert aegis("log", "erase", erased.decision_id, "--home", str(tmp_path / "home")).returncode == 0
    kind, rules = judged(place, tmp_path, receipts(place))
    assert kind is None
    assert any("1 calls" in line for line in rules.not_checked)
    place.home.close()


def test_roles_that_the_operator_declared_count_offline_as_well(tmp_path: Path) -> None:
    place = desk(tmp_path / "home", tools=ROLES)
    place.open(place.issue())
    assert place.call("keep_note", where="/srv/a line of prose").allowed
    assert judged(place, tmp_path, receipts(place))[0] is None
    place.home.close()
