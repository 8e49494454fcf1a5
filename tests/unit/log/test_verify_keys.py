"""What somebody with some of the keys can do to an export, and what a receipt may say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import orjson
import pytest

from aegis.core.receipt import MEMBERS
from aegis.core.times import rfc3339
from aegis.log.append import Members
from aegis.log.verify import MAX_WARNINGS
from support.log_defects import GOOD, place, sealed
from support.log_exports import (
    BOT_KEY,
    GATE_KEY,
    LAST_LOG_KEY,
    LOG,
    LOG_KEY,
    NEXT_BOT_KEY,
    NEXT_LOG_KEY,
    OTHER_KEY,
    PERMIT_KEY,
    START,
    STRANGER,
    THIRD_BOT_KEY,
    Body,
    Export,
    Signed,
    announce,
    decision,
    export,
    keys_file,
    note,
    receipt,
)


def test_wrong_log() -> None:
    assert place(sealed(decision(4, log="aegis/log/2")).broken()) == ("wrong_log", 5, 4, "r4")


def test_wrong_log_of_the_checkpoints() -> None:
    other = note(GOOD.lines, origin="aegis/log/2")
    assert Export(lines=GOOD.lines, checkpoint=other, keys=GOOD.keys).broken().kind == "wrong_log"
    assert GOOD.broken(since=other).kind == "wrong_log"


def test_signed_by_an_unknown_key() -> None:
    assert place(sealed(decision(4, STRANGER)).broken()) == ("unknown_key", 5, 4, "r4")


def test_signed_by_a_key_that_is_announced_later() -> None:
    late = sealed(decision(4, OTHER_KEY, agent="other"), announce(5, OTHER_KEY))
    assert place(late.broken()) == ("unknown_key", 5, 4, "r4")


def test_signed_by_the_key_of_another_agent() -> None:
    broken = sealed(announce(4, OTHER_KEY), decision(5, OTHER_KEY)).broken()
    assert place(broken) == ("key_not_valid", 6, 5, "r5")


@pytest.mark.parametrize("key", [LOG_KEY, PERMIT_KEY])
def test_signed_by_a_key_of_another_purpose(key: Any) -> None:
    assert place(sealed(decision(4, key)).broken()) == ("key_not_valid", 5, 4, "r4")


def test_signed_by_the_gateway_for_an_agent() -> None:
    assert sealed(decision(4, GATE_KEY)).verify().size == 5


def test_resigned_by_a_key_that_was_replaced() -> None:
    rotated = (announce(4, NEXT_BOT_KEY, "rotate"), decision(5, NEXT_BOT_KEY))
    assert sealed(*rotated).verify().size == 6
    assert place(sealed(*rotated, decision(6, BOT_KEY)).broken()) == ("key_not_valid", 7, 6, "r6")


def test_resigned_by_a_key_that_was_retired() -> None:
    retired = (decision(4), announce(5, BOT_KEY, "retire"))
    assert sealed(*retired).verify().size == 6
    assert place(sealed(*retired, decision(6)).broken()) == ("key_not_valid", 7, 6, "r6")


def test_resigned_past_by_a_new_key() -> None:
    # The receipt before the rotation is signed anew with the key that came later.
    assert sealed(decision(4, NEXT_BOT_KEY), announce(5, NEXT_BOT_KEY, "rotate")).broken().kind == "unknown_key"


def test_a_second_key_beside_the_first_signs_too() -> None:
    assert sealed(announce(4, NEXT_BOT_KEY), decision(5, NEXT_BOT_KEY), decision(6, BOT_KEY)).verify().size == 7


@pytest.mark.parametrize("signer", [GATE_KEY, BOT_KEY, PERMIT_KEY, STRANGER, OTHER_KEY])
def test_key_not_endorsed(signer: Any) -> None:
    body, _ = announce(4, OTHER_KEY)
    assert place(sealed((body, signer)).broken()) == ("key_not_endorsed", 5, 4, "r4")


def test_key_of_the_log_not_endorsed() -> None:
    body, _ = announce(4, NEXT_LOG_KEY, "rotate")
    assert sealed((body, NEXT_LOG_KEY)).broken().kind == "key_not_endorsed"
    assert sealed((body, GATE_KEY)).broken().kind == "key_not_endorsed"


def rotated_log() -> Export:
    body, _ = announce(6, OTHER_KEY)
    return sealed(announce(4, NEXT_LOG_KEY, "rotate"), decision(5), (body, NEXT_LOG_KEY))


def test_the_log_goes_on_under_its_next_key() -> None:
    good = rotated_log()
    signed_by_next = Export(lines=good.lines, checkpoint=good.checkpoint_at(7, NEXT_LOG_KEY), keys=good.keys)
    assert signed_by_next.verify().size == 7
    assert signed_by_next.verify(since=good.checkpoint_at(4)).since == 4
    assert signed_by_next.verify(since=good.checkpoint_at(5, NEXT_LOG_KEY)).since == 5


def test_the_replaced_key_of_the_log_endorses_and_commits_to_nothing_more() -> None:
    good = rotated_log()
    assert good.broken().kind == "checkpoint_invalid"
    newer = Export(lines=good.lines, checkpoint=good.checkpoint_at(7, NEXT_LOG_KEY), keys=good.keys)
    assert newer.broken(since=good.checkpoint_at(5)).kind == "checkpoint_invalid"
    late = sealed(announce(4, NEXT_LOG_KEY, "rotate"), announce(5, OTHER_KEY))
    assert place(late.broken()) == ("key_not_valid", 6, 5, "r5")


def test_a_key_that_the_verifier_knows_to_have_ended_ends() -> None:
    keys = orjson.dumps({"v": 1, "log": LOG, "keys": [{**LOG_KEY.describe(), "until": 2}]})
    assert place(export(keys=keys).broken()) == ("key_not_valid", 4, 3, "r3")


@pytest.mark.parametrize(
    "key",
    [
        "x",
        {},
        {**OTHER_KEY.describe(), "kid": STRANGER.kid},
        {**OTHER_KEY.describe(), "public": STRANGER.describe()["public"]},
        {**OTHER_KEY.describe(), "public": OTHER_KEY.describe()["public"][:-4]},
        {**OTHER_KEY.describe(), "public": 7},
        {**OTHER_KEY.describe(), "public": "é"},
        {**OTHER_KEY.describe(), "purpose": "payload"},
        {**STRANGER.describe(), "purpose": "payload"},
        {**OTHER_KEY.describe(), "purpose": ["log"]},
        {**OTHER_KEY.describe(), "purpose": "permit"},
        {**OTHER_KEY.describe(), "agent": ""},
        {**OTHER_KEY.describe(), "agent": 7},
        {**OTHER_KEY.describe(), "extra": "x"},
        {"kid": OTHER_KEY.kid, "purpose": "receipt"},
    ],
)
def test_malformed_key(key: object) -> None:
    broken = sealed((receipt(4, "key", action="add", key=key), LOG_KEY)).broken()
    assert (broken.kind, broken.line) == ("malformed_member", 5)


@pytest.mark.parametrize(
    "signed",
    [
        announce(4, BOT_KEY),
        announce(4, LOG_KEY),
        announce(4, BOT_KEY, "rotate"),
        announce(4, OTHER_KEY, "retire"),
        announce(4, OTHER_KEY, "steal"),
        (receipt(4, "key", key=OTHER_KEY.describe()), LOG_KEY),
        (receipt(4, "key", action="add"), LOG_KEY),
        (receipt(4, "key", action="retire", key={**BOT_KEY.describe(), "agent": "other"}), LOG_KEY),
        (receipt(4, "key", action="retire", key={**BOT_KEY.describe(), "purpose": "permit", "agent": "x"}), LOG_KEY),
    ],
)
def test_key_receipt_that_makes_no_sense(signed: Signed) -> None:
    broken = sealed(signed).broken()
    assert (broken.kind, broken.line) == ("malformed_member", 5)


def test_key_retired_twice() -> None:
    twice = sealed(announce(4, BOT_KEY, "retire"), announce(5, BOT_KEY, "retire"))
    assert place(twice.broken()) == ("malformed_member", 6, 5, "r5")


@pytest.mark.parametrize(
    "members",
    [
        {"time": "2026-01-01T00:00:00Z"},
        {"time": "2026-01-01 00:00:00.000000Z"},
        {"time": "٢026-01-01T00:00:00.000000Z"},
        {"time": 5},
        {"kind": "other"},
        {"kind": ["decision"]},
        {"receipt_id": ""},
        {"receipt_id": 7},
        {"prev": "G" * 64},
        {"prev": "A" * 64},
        {"prev": "a" * 63},
        {"prev": 7},
        {"index": -1},
        {"index": True},
        {"index": "5"},
        {"index": 2**53},
        {"log": ""},
        {"log": 7},
        {"principal": ""},
        {"agent": ""},
        {"agent": ["bot"]},
        {"parent": ""},
        {"session": 7},
        {"tool": {}},
        {"server": 7},
        {"call_commitment": "sha-256:" + "0" * 63},
        {"call_commitment": "sha-512:" + "0" * 64},
        {"payload_commitment": "sha-256:" + "G" * 64},
        {"policy_digest": 7},
        {"effects": "read"},
        {"effects": ["eat"]},
        {"effects": [["read"]]},
        {"risk": "none"},
        {"risk": 1},
        {"decision": "maybe"},
        {"decision": ["allow"]},
        {"verdict": "guilty"},
        {"reason": "because"},
        {"guards": {}},
        {"guards": ["content"]},
        {"guards": [{"guard": "g", "outcome": "allow"}]},
        {"guards": [{"guard": "g", "outcome": "allow", "rules": [], "x": 1}]},
        {"guards": [{"guard": "", "outcome": "allow", "rules": []}]},
        {"guards": [{"guard": "g", "outcome": "maybe", "rules": []}]},
        {"guards": [{"guard": "g", "outcome": ["allow"], "rules": []}]},
        {"guards": [{"guard": "g", "outcome": "allow", "rules": [1]}]},
        {"guards": [{"guard": "g", "outcome": "allow", "rules": "r"}]},
        {"settings": []},
        {"settings": {"a": 1.5}},
        {"settings": {"a": None}},
        {"settings": {"a": [{"b": 2**53}]}},
        {"settings": {"é": 1}},
        {"budget": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {}}}}}}}}}},
        {"provenance": "x"},
        {"approval_id": 7},
        {"approvers": "x"},
        {"approvers": [1]},
        {"permit_id": ""},
        {"mission_id": 7},
        {"action": ""},
        {"key": "x"},
        {"sig": "x"},
        {"sig": {}},
        {"sig": {"kid": 7}},
        {"sig": {"kid": ["x"]}},
        {"sig": {"kid": BOT_KEY.kid, "alg": "none", "value": ""}},
    ],
)
def test_malformed_member(members: Body) -> None:
    broken = sealed(decision(4, **members)).broken()
    assert (broken.kind, broken.line) == ("malformed_member", 5)
    assert next(iter(members)) in broken.detail


@pytest.mark.parametrize(
    "members",
    [
        {"session": "s", "server": "", "parent": "r0", "verdict": "compliant", "risk": "low", "mission_id": "m"},
        {"effects": ["read", "exec"], "approvers": ["a"], "settings": {"mode": "enforce", "x": [True, -1, {"y": ""}]}},
        {"guards": [{"guard": "g", "outcome": "block", "rules": ["r"]}], "budget": {"calls": 2**53 - 1}},
        {"call_commitment": "sha-256:" + "0a" * 32, "policy_digest": "sha-256:" + "f" * 64, "provenance": {}},
        {"budget": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {}}}}}}}}},
    ],
)
def test_members_that_a_receipt_may_have(members: Body) -> None:
    assert sealed(decision(4, **members)).verify().size == 5


def test_clock_that_went_back_is_a_warning() -> None:
    early = decision(5, time=rfc3339(START))
    found = sealed(decision(4), early, decision(6)).verify()
    assert [place(warning) for warning in found.warnings] == [("clock_went_back", 6, 5, "r5")]
    assert found.last_time == rfc3339(START + 6_000_000)
    many = [decision(number, time=rfc3339(START)) for number in range(5, 5 + MAX_WARNINGS + 7)]
    found = export([decision(4), *many]).verify()
    assert (len(found.warnings), found.warning_count) == (MAX_WARNINGS, MAX_WARNINGS + 7)


def test_equal_times_are_no_warning() -> None:
    assert sealed(decision(4), decision(5, time=rfc3339(START + 4_000_000))).verify().warnings == ()


def test_a_rotation_ends_every_key_of_its_owner() -> None:
    added = (announce(4, NEXT_BOT_KEY), announce(5, THIRD_BOT_KEY, "rotate"))
    assert sealed(*added, decision(6, THIRD_BOT_KEY)).verify().size == 7
    for ended in (BOT_KEY, NEXT_BOT_KEY):
        assert place(sealed(*added, decision(6, ended)).broken()) == ("key_not_valid", 7, 6, "r6")


def test_a_rotation_does_not_give_a_retired_key_back() -> None:
    late, _ = announce(7, OTHER_KEY)
    signed = (
        announce(4, NEXT_LOG_KEY),
        (announce(5, LOG_KEY, "retire")[0], NEXT_LOG_KEY),
        decision(6),
        (late, NEXT_LOG_KEY),
        (announce(8, LAST_LOG_KEY, "rotate")[0], NEXT_LOG_KEY),
    )
    good = sealed(*signed)
    newest = Export(lines=good.lines, checkpoint=good.checkpoint_at(9, LAST_LOG_KEY), keys=good.keys)
    assert newest.verify(since=good.checkpoint_at(5)).since == 5
    assert newest.verify(since=good.checkpoint_at(8, NEXT_LOG_KEY)).since == 8
    assert newest.broken(since=good.checkpoint_at(6)).kind == "checkpoint_invalid"


def test_a_rotation_does_not_lengthen_a_key_that_the_verifier_knows_to_have_ended() -> None:
    keys = orjson.dumps({"v": 1, "log": LOG, "keys": [{**LOG_KEY.describe(), "until": 4}, NEXT_LOG_KEY.describe()]})
    rotation = (announce(4, LAST_LOG_KEY, "rotate")[0], NEXT_LOG_KEY)
    good = sealed(rotation, decision(5), keys=keys)
    newest = Export(lines=good.lines, checkpoint=good.checkpoint_at(6, LAST_LOG_KEY), keys=keys)
    assert newest.verify(since=good.checkpoint_at(4)).since == 4
    assert newest.broken(since=good.checkpoint_at(5)).kind == "checkpoint_invalid"


def test_the_keys_as_the_log_tells_them_after_a_rotation_verify_it() -> None:
    # What `keys.json` says later: the first key up to the leaf that replaced it, the next one from there on.
    spans = [{**LOG_KEY.describe(), "from": 0, "until": 4}, {**NEXT_LOG_KEY.describe(), "from": 4}]
    keys = orjson.dumps({"v": 1, "log": LOG, "keys": spans})
    good = rotated_log()
    later = Export(lines=good.lines, checkpoint=good.checkpoint_at(7, NEXT_LOG_KEY), keys=keys)
    assert later.verify(since=good.checkpoint_at(4)).since == 4
    assert later.broken(since=good.checkpoint_at(3, NEXT_LOG_KEY)).kind == "checkpoint_invalid"
    assert later.broken(since=good.checkpoint_at(5)).kind == "checkpoint_invalid"


def test_a_later_key_of_the_log_endorses_nothing_before_its_time() -> None:
    spans = [{**LOG_KEY.describe(), "from": 0, "until": 6}, {**NEXT_LOG_KEY.describe(), "from": 6}]
    keys = orjson.dumps({"v": 1, "log": LOG, "keys": spans})
    body, _ = announce(4, OTHER_KEY)
    assert place(sealed((body, NEXT_LOG_KEY), keys=keys).broken()) == ("key_not_valid", 5, 4, "r4")


def test_a_rotation_to_a_key_that_the_verifier_knows_ends_the_one_before() -> None:
    keys = keys_file(LOG_KEY, NEXT_LOG_KEY)
    rotated = announce(4, NEXT_LOG_KEY, "rotate")
    late, _ = announce(5, OTHER_KEY)
    good = sealed(rotated, (late, NEXT_LOG_KEY), keys=keys)
    newest = Export(lines=good.lines, checkpoint=good.checkpoint_at(6, NEXT_LOG_KEY), keys=keys)
    assert newest.verify().size == 6
    assert good.broken().kind == "checkpoint_invalid"
    assert place(sealed(rotated, (late, LOG_KEY), keys=keys).broken()) == ("key_not_valid", 6, 5, "r5")


def test_the_verifier_knows_every_member_that_a_receipt_may_have() -> None:
    assert {field.name for field in msgspec.structs.fields(Members)} == MEMBERS


def test_a_key_of_the_log_is_announced_as_what_it_is() -> None:
    body = receipt(0, "key", action="add", key={**LOG_KEY.describe(), "purpose": "receipt"})
    broken = export(head=[(body, LOG_KEY)]).broken()
    assert (broken.kind, broken.line) == ("malformed_member", 1)


def test_a_new_key_of_the_log_commits_to_nothing_before_its_announcement() -> None:
    good = rotated_log()
    newest = Export(lines=good.lines, checkpoint=good.checkpoint_at(7, NEXT_LOG_KEY), keys=good.keys)
    assert newest.broken(since=good.checkpoint_at(4, NEXT_LOG_KEY)).kind == "checkpoint_invalid"


def test_a_key_that_the_verifier_knew_before_its_announcement_ends_like_any_other() -> None:
    keys = keys_file(LOG_KEY, NEXT_LOG_KEY)
    retired = (
        announce(4, NEXT_LOG_KEY, "rotate"),
        (announce(5, LAST_LOG_KEY)[0], NEXT_LOG_KEY),
        (announce(6, NEXT_LOG_KEY, "retire")[0], LAST_LOG_KEY),
    )
    good = sealed(*retired, keys=keys)
    assert Export(lines=good.lines, checkpoint=good.checkpoint_at(7, LAST_LOG_KEY), keys=keys).verify().size == 7
    late, _ = announce(7, OTHER_KEY)
    assert place(sealed(*retired, (late, NEXT_LOG_KEY), keys=keys).broken()) == ("key_not_valid", 8, 7, "r7")


def test_keys_that_nobody_vouches_for_are_named_the_same_beside() -> None:
    body, _ = announce(4, OTHER_KEY)
    with ThreadPoolExecutor(1) as executor:
        for signed in (decision(4, STRANGER), (body, STRANGER), (body, BOT_KEY)):
            bad = sealed(signed)
            assert bad.broken(executor=executor) == bad.broken()
