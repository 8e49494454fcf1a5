"""An export proves what missions allowed, offline; and a session or a receipt can be shown by itself."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.core.breaks import BreakKind
from aegis.core.canonical import canonical, sha256
from aegis.core.principal import Principal
from aegis.errors import InvalidCall, LogInvalid, MissionInvalid
from aegis.log.records import Records
from aegis.missions.attestation import check_attestation, check_projection, check_same_record
from aegis.missions.results import Usage, sign_result
from aegis.missions.verify import OfflineMissionRules
from support.missions import Desk, b64, desk, signer
from support.shell import aegis

AUDITOR = Principal(id="auditor-1", roles=frozenset({"auditor"}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("verification"))
    root = made.issue(budgets={"calls": 5}, delegation={"depth": 1, "subjects": ["bot"]})
    made.open(root)
    made.open(made.delegate(root, budgets={"calls": 2}, effects=["read"]), "s-child")
    for session in ("s-1", "s-child", "s-1"):
        assert made.call("list_rows", session).allowed
    assert not made.call("read_file", path="/etc/x").allowed
    made.result(made.call("list_rows"), "rows")
    yield made
    made.home.close()


def receipts(place: Desk) -> list[dict[str, Any]]:
    with place.home.store.reader() as reader:
        return [orjson.loads(entry.body) for entry in reader.entries(0, reader.head().size)]


def broken(changed: list[dict[str, Any]]) -> BreakKind | None:
    """What the rules of missions say of receipts, whose signatures are another rule's."""
    rules = OfflineMissionRules()
    try:
        for receipt in changed:
            rules.see(receipt)
    except LogInvalid as error:
        return error.broken.kind
    return None


def calls(rows: list[dict[str, Any]], session: str = "s-1") -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == "decision" and row.get("session") == session]


def test_an_honest_log_keeps_the_rules_of_its_missions(place: Desk) -> None:
    assert broken(receipts(place)) is None


def test_an_export_with_missions_verifies_at_the_command_line(place: Desk, tmp_path: Path) -> None:
    home = str(place.home.home)
    out = tmp_path / "out"
    assert aegis("log", "export", "--out", str(out), "--home", home).returncode == 0
    told = aegis("log", "verify", str(out), "--key", str(out / "keys.json"), "--json")
    assert told.returncode == 0, told.stderr
    assert "missions: whether arguments were in scope, which needs payloads" in told.stdout


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"lineage": ["x"]}, "mission_unknown"),
        ({"mission_id": "x"}, "mission_unknown"),
        ({"effects": ["exec", "read"]}, None),
        ({"agent": "other"}, "mission_exceeded"),
        ({"budget": {"cost": {"calls": 6}}}, "budget_exceeded"),
        ({"budget": {"cost": {"calls": "1"}}}, "budget_exceeded"),
        ({"budget": {"cost": ["calls"]}}, "malformed_member"),
        ({"time": "2026-02-31T00:00:00.000000Z"}, "malformed_member"),
        ({"time": "2001-01-01T00:00:00.000000Z"}, "mission_exceeded"),
    ],
)
def test_a_released_call_that_breaks_a_rule_is_found(
    place: Desk, change: dict[str, Any], kind: BreakKind | None
) -> None:
    rows = receipts(place)
    calls(rows)[0].update(change)
    assert broken(rows) == kind


def test_an_effect_or_tool_beyond_the_mission_is_found(place: Desk) -> None:
    rows = receipts(place)
    calls(rows, "s-child")[0]["effects"] = ["write"]
    assert broken(rows) == "mission_exceeded"


def test_a_missing_mission_is_found(place: Desk) -> None:
    rows = [row for row in receipts(place) if row["kind"] != "mission"]
    assert broken(rows) == "mission_unknown"


def test_a_mission_that_is_enrolled_twice_or_changed_is_found(place: Desk) -> None:
    rows = receipts(place)
    mission = next(row for row in rows if row["kind"] == "mission")
    assert broken([*rows, mission]) == "mission_invalid"
    head, body, signature = mission["mission"].split(".")
    raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).replace(b'"calls":5', b'"calls":9')
    mission["mission"] = ".".join((head, base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), signature))
    assert broken(rows) == "mission_invalid"


def test_a_result_of_a_call_that_was_not_allowed_is_found(place: Desk) -> None:
    def found(decision: str) -> BreakKind | None:
        rows = receipts(place)
        ran = next(row for row in rows if row["kind"] == "result")["parent"]
        next(row for row in rows if row["receipt_id"] == ran)["decision"] = decision
        records = Records()
        try:
            for row in rows:
                records.see(row)
        except LogInvalid as error:
            return error.broken.kind
        return None

    assert found("allow") is None
    assert found("block") == "call_not_allowed"
    assert found("require_approval") == "call_not_allowed"


def test_a_call_after_revocation_is_found(place: Desk) -> None:
    rows = receipts(place)
    call = calls(rows)[-1]
    stop = {"kind": "revocation", "mission_id": call["mission_id"], "action": "revoke"}
    assert (
        broken([*rows[: rows.index(calls(rows)[0])], stop, *rows[rows.index(calls(rows)[0]) :]]) == "mission_exceeded"
    )


def test_a_mission_that_moves_after_it_was_revoked_is_found(place: Desk) -> None:
    rows = receipts(place)
    mission = next(row for row in rows if row["kind"] == "mission")["mission_id"]
    moves = [{"kind": "revocation", "mission_id": mission, "action": one} for one in ("suspend", "resume", "revoke")]
    assert broken([*rows, *moves]) is None
    for action in ("resume", "suspend", "revoke"):
        assert broken([*rows, *moves, {**moves[0], "action": action}]) == "mission_exceeded"


def test_a_result_that_gives_back_more_than_its_call_reserved_is_found(tmp_path: Path) -> None:
    key = signer(6)
    place = desk(
        tmp_path / "home",
        f"missions: {{quotes: [{{tool: ask_model, money: {{EUR: 60}}}}], tool_keys: {{ask_model: {b64(key.public)}}}}}",
    )
    place.open(place.issue(budgets={"money": {"EUR": 100}}))
    for prompt in ("a", "b", "c"):
        asked = place.call("ask_model", prompt=prompt)
        assert asked.allowed
        usage = Usage(money={"EUR": 20})
        digest = sha256(canonical(prompt))
        proof = sign_result(key, decision_id=asked.decision_id, result_digest=digest, usage=usage)
        assert place.result(asked, prompt, provenance=proof).allowed
    rows = receipts(place)
    place.home.close()
    assert broken(rows) is None
    results = [row for row in rows if row["kind"] == "result"]
    assert results[0]["budget"] == {"refund": {"money.EUR": 40}}
    assert broken([*rows, results[0]]) == "budget_exceeded"
    results[0]["budget"]["refund"]["money.EUR"] = 60
    assert broken(rows) is None
    for wrong in (61, "40"):
        results[0]["budget"]["refund"]["money.EUR"] = wrong
        assert broken(rows) == "budget_exceeded"


@pytest.mark.parametrize("action", ["suspend", "revoke"])
def test_a_delegation_below_a_mission_that_was_stopped_is_found(place: Desk, action: str) -> None:
    rows = receipts(place)
    root, child = [row for row in rows if row["kind"] == "mission"]
    stop = {"kind": "revocation", "mission_id": root["mission_id"], "action": action}
    at = rows.index(child)
    assert broken([*rows[:at], stop, *rows[at:]]) == "mission_exceeded"
    resumed = {**stop, "action": "resume"}
    assert broken([*rows[:at], {**stop, "action": "suspend"}, resumed, *rows[at:]]) is None


def trusted(place: Desk) -> Any:
    key = place.home.keyring.attestation_signer()
    return {key.kid: key.public}.get


def test_a_session_attestation_verifies_by_itself(place: Desk) -> None:
    summary = check_attestation(place.gate.attest_session("s-1"), trusted(place))
    assert summary["receipts"]["decision.allow"] == 3
    assert summary["verdicts"]["violation"] == 1
    assert summary["budget"][0] == {"ceilings": {"calls": 5}, "used": {"calls": 4}}
    with place.home.store.reader() as reader:
        assert reader.entry(summary["size"] - 1) is not None


def test_a_changed_session_attestation_is_refused(place: Desk) -> None:
    head, body, signature = place.gate.attest_session("s-1").split(".")
    raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).replace(b'"violation":1', b'"violation":0')
    with pytest.raises(MissionInvalid):
        check_attestation(
            ".".join((head, base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), signature)), trusted(place)
        )
    with pytest.raises(InvalidCall):
        place.gate.attest_session("nobody")


def test_one_receipt_has_two_views_of_the_same_record(place: Desk) -> None:
    refused = place.call("read_file", path="/etc/x")
    public = check_projection(place.gate.project(refused.decision_id), trusted(place))
    audit = check_projection(place.gate.project(refused.decision_id, "audit", principal=AUDITOR), trusted(place))
    check_same_record(public, audit)
    assert public["receipt"]["reason"] == "scope_violation" or public["receipt"]["reason"] == "attack_detected"
    assert "guards" not in public["receipt"] and "guards" in audit["receipt"]
    assert refused.receipt is not None and public["leaf_hash"] == refused.receipt.leaf_hash


def test_the_audit_view_needs_the_right(place: Desk) -> None:
    decision = place.call("list_rows", "s-child")
    with pytest.raises(InvalidCall) as forbidden:
        place.gate.project(decision.decision_id, "audit")
    assert forbidden.value.status == 403


def test_views_of_different_records_are_told_apart(place: Desk) -> None:
    one, other = receipts(place)[-1]["receipt_id"], receipts(place)[-2]["receipt_id"]
    views = [check_projection(place.gate.project(name, principal=AUDITOR), trusted(place)) for name in (one, other)]
    with pytest.raises(MissionInvalid):
        check_same_record(*views)


def test_missions_are_issued_shown_delegated_and_revoked_at_the_command_line(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    file = tmp_path / "mission.json"
    claims = {
        "sub": "bot", "purpose": "read reports", "exp": 4_000_000_000, "tools": {"allow": ["read_file"]},
        "effects": ["read"], "scope": {"paths": ["glob:/ws/**"]}, "delegation": {"depth": 1, "subjects": ["bot"]},
    }  # fmt: skip
    file.write_bytes(orjson.dumps(claims))
    too_long = aegis("missions", "issue", str(file), "--home", home)
    assert too_long.returncode != 0 and "exp" in too_long.stderr
    claims["exp"] = int(time.time()) + 600
    file.write_bytes(orjson.dumps(claims))
    issued = aegis("missions", "issue", str(file), "--home", home)
    assert issued.returncode == 0, issued.stderr
    mission = issued.stdout.strip()
    shown = orjson.loads(aegis("missions", "show", mission, "--home", home, "--json").stdout)
    assert (shown["state"], shown["sub"]) == ("active", "bot")
    file.write_bytes(orjson.dumps({**claims, "tools": {"allow": ["*"]}, "delegation": {}}))
    wider = aegis("missions", "delegate", mission, str(file), "--request", "r", "--home", home)
    assert wider.returncode != 0 and "tools" in wider.stderr
    assert aegis("missions", "revoke", mission, "--home", home).returncode == 0
    assert "revoked" in aegis("missions", "list", "--home", home).stdout


def test_attestations_and_both_views_are_checked_offline_at_the_command_line(place: Desk, tmp_path: Path) -> None:
    home = str(place.home.home)
    receipt = place.call("read_file", path="/srv/x").decision_id
    files = {}
    for name, command in {
        "session": ("attest", "s-1"),
        "public": ("project", receipt),
        "audit": ("project", receipt, "--view", "audit"),
        "other": ("project", place.call("list_rows", "s-child").decision_id),
    }.items():
        told = aegis("log", *command, "--home", home)
        assert told.returncode == 0, told.stderr
        files[name] = tmp_path / name
        files[name].write_text(told.stdout)
    assert aegis("log", "export", "--out", str(tmp_path / "out"), "--home", home).returncode == 0
    key = ("--key", str(tmp_path / "out" / "keys.json"))

    def check(*names: str) -> Any:
        return aegis("log", "check", *(str(files[name]) for name in names), *key, "--json")

    summary = orjson.loads(check("session").stdout)["claims"][0]
    assert (summary["session"], summary["budget"][0]["ceilings"]) == ("s-1", {"calls": 5})
    assert check("public", "audit").returncode == 0
    assert check("other", "audit").returncode == 1
    assert check("session", "audit").returncode == 1
    head, body, signature = files["public"].read_text().strip().split(".")
    files["public"].write_text(".".join((head, body[:-4] + "AAAA", signature)))
    assert check("public").returncode == 1
