"""Every defect of an export is found, named and placed; every test is named after the defect."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.audit.breaks import MEANING, Break
from aegis.audit.checkpoint import Checkpoint, sign_checkpoint
from aegis.audit.merkle import EMPTY_ROOT
from aegis.audit.split import BATCH_LINES, MAX_LINE_BYTES
from aegis.audit.verify import MAX_WARNINGS, NOT_COVERED, NOT_COVERED_WITHOUT_SINCE
from aegis.core.canonical import canonical_record
from aegis.core.times import rfc3339
from aegis.errors import LogInvalid
from support.log_exports import (
    BOT_KEY,
    GATE_KEY,
    HEAD,
    LOG,
    LOG_KEY,
    NEXT_BOT_KEY,
    NEXT_LOG_KEY,
    OTHER_KEY,
    PERMIT_KEY,
    START,
    STRANGER,
    Body,
    Export,
    Sealer,
    Signed,
    announce,
    approval,
    decision,
    decisions,
    export,
    keys_file,
    note,
    receipt,
    redemption,
    result,
)

# Four keys, three decisions signed alone, a group of four, a result.
GOOD = export(*([item] for item in decisions(3)), decisions(4, start=7), [result(11, "r5")])
SIZE = 12


def changed(good: Export, at: int, **members: Any) -> Export:
    """The export with members of one line replaced, in canonical bytes; `None` takes a member out."""
    body = {**orjson.loads(good.lines[at]), **members}
    return good.with_line(at, canonical_record({name: value for name, value in body.items() if value is not None}))


def place(broken: Break) -> tuple[str, int, int, str]:
    return broken.kind, broken.line, broken.index, broken.receipt_id


def test_a_good_export_verifies_and_says_what_it_does_not_cover() -> None:
    found = GOOD.verify()
    assert (found.log, found.size, found.since, found.warnings) == (LOG, SIZE, None, ())
    assert found.kinds == {"decision": 7, "key": 4, "result": 1}
    assert (found.first_time, found.last_time) == (rfc3339(START), rfc3339(START + 11_000_000))
    assert found.not_covered == (*NOT_COVERED, NOT_COVERED_WITHOUT_SINCE)
    assert GOOD.verify(since=GOOD.checkpoint).not_covered == NOT_COVERED


@pytest.mark.parametrize("block", [1, 7, 100, 10_000])
def test_how_a_file_is_read_does_not_matter(block: int) -> None:
    assert GOOD.verify(block=block) == GOOD.verify()


@pytest.mark.parametrize("size", range(SIZE + 1))
def test_a_log_that_grew_from_the_retained_checkpoint_verifies(size: int) -> None:
    assert GOOD.verify(since=GOOD.checkpoint_at(size)).since == size


def test_an_empty_log_verifies() -> None:
    empty = Export(lines=(), checkpoint=note(()), keys=keys_file())
    assert (empty.verify().size, empty.verify().root) == (0, EMPTY_ROOT)
    assert empty.verify(since=note(())).since == 0


# What somebody without keys can do to a file.


@pytest.mark.parametrize("at", [4, 8])
@pytest.mark.parametrize(
    "members",
    [{"tool": "other"}, {"index": 1}, {"session": "s"}, {"tool": None}, {"receipt_id": "x"}, {"principal": "q"}],
)
def test_edited(at: int, members: Body) -> None:
    broken = changed(GOOD, at, **members).broken()
    assert (broken.kind, broken.line) == ("edited", at + 1)


def test_edited_chain() -> None:
    assert place(changed(GOOD, 5, prev="0" * 64).broken()) == ("chain_broken", 6, 5, "r5")
    assert place(changed(GOOD, 0, prev="0" * 64).broken()) == ("chain_broken", 1, 0, "r0")
    assert place(changed(GOOD, 5, prev="").broken()) == ("chain_broken", 6, 5, "r5")


def test_edited_last_line() -> None:
    assert changed(GOOD, SIZE - 1, reason="conflict").broken().kind == "edited"


def test_signature_of_another_receipt() -> None:
    sig = orjson.loads(GOOD.lines[4])["sig"]
    assert place(changed(GOOD, 5, sig=sig).broken()) == ("edited", 6, 5, "r5")


@pytest.mark.parametrize("at", [0, 4, 6, 7, 8])
def test_deleted(at: int) -> None:
    broken = GOOD.with_lines(line for number, line in enumerate(GOOD.lines) if number != at).broken()
    following = orjson.loads(GOOD.lines[at + 1])
    assert place(broken) == ("deleted", at + 1, at + 1, following["receipt_id"])


@pytest.mark.parametrize("at", [4, 6, 8])
def test_reordered(at: int) -> None:
    lines = list(GOOD.lines)
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    broken = GOOD.with_lines(lines).broken()
    assert (broken.kind, broken.line, broken.index) == ("reordered", at + 1, at + 1)


def test_reordered_across_batches() -> None:
    long = export(decisions(60), *([item] for item in decisions(20, start=64)))
    lines = [*long.lines[:5], *long.lines[6:], long.lines[5]]
    assert long.with_lines(lines).broken().kind == "reordered"
    assert long.with_lines(lines[:-1]).broken().kind == "deleted"


def test_deleted_before_a_line_that_cannot_be_read() -> None:
    lines = [*GOOD.lines[:5], *GOOD.lines[6:8], b"no json", b"[]"]
    broken = GOOD.with_lines(lines).broken()
    assert (broken.kind, broken.line) == ("deleted", 6)


@pytest.mark.parametrize(("at", "to"), [(4, 5), (4, 9), (8, 9), (0, 12)])
def test_duplicated(at: int, to: int) -> None:
    lines = [*GOOD.lines[:to], GOOD.lines[at], *GOOD.lines[to:]]
    broken = GOOD.with_lines(lines).broken()
    assert (broken.kind, broken.line, broken.index) == ("duplicated", to + 1, at)


@pytest.mark.parametrize("kept", range(SIZE))
def test_cut_tail_against_the_checkpoint(kept: int) -> None:
    broken = GOOD.with_lines(GOOD.lines[:kept]).broken()
    assert (broken.kind, broken.detail) == ("tail_cut", f"{SIZE - kept} receipts are missing")


def test_cut_tail_against_the_retained_checkpoint() -> None:
    short = Export(lines=GOOD.lines[:9], checkpoint=GOOD.checkpoint_at(9), keys=GOOD.keys)
    assert short.verify().size == 9
    assert short.broken(since=GOOD.checkpoint).kind == "tail_cut"


def test_lines_after_the_checkpoint() -> None:
    short = Export(lines=GOOD.lines, checkpoint=GOOD.checkpoint_at(9), keys=GOOD.keys)
    assert place(short.broken()) == ("uncovered", 10, 9, "r9")


@pytest.mark.parametrize(
    "line",
    [
        GOOD.lines[5].replace(b":", b": ", 1),
        GOOD.lines[5] + b" ",
        GOOD.lines[5] + b"\r",
        GOOD.lines[5].replace(b'"v":1}', b'"v":1,"v":1}'),
        GOOD.lines[5].replace(b'"bot"', b'"b\\u006ft"'),
        b"{" + GOOD.lines[5][1:-1].split(b",", 1)[1] + b"," + GOOD.lines[5][1:-1].split(b",", 1)[0] + b"}",
        b"\xef\xbb\xbf" + GOOD.lines[5],
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
        b"[" * 500 + b"]" * 500,
        b'{"v":' + b"[" * 500 + b"]" * 500 + b"}",
        b"\xff\xfe",
    ],
)
def test_not_canonical(line: bytes) -> None:
    assert line != GOOD.lines[5]
    broken = GOOD.with_line(5, line).broken()
    assert (broken.kind, broken.line) == ("not_canonical", 6)


def test_last_line_without_its_end() -> None:
    with pytest.raises(LogInvalid) as caught:
        Unended(GOOD.lines, GOOD.checkpoint, GOOD.keys).verify()
    assert (caught.value.broken.kind, caught.value.broken.line) == ("not_canonical", SIZE)


class Unended(Export):
    @property
    def data(self) -> bytes:
        return super().data[:-1]


@pytest.mark.parametrize("at", [0, 5, SIZE])
def test_line_without_end(at: int) -> None:
    lines = [*GOOD.lines[:at], b"x" * (MAX_LINE_BYTES + 1)]
    broken = GOOD.with_lines(lines).broken(block=4_096)
    assert (broken.kind, broken.line) == ("not_canonical", at + 1)


def test_missing_signature() -> None:
    assert place(changed(GOOD, 5, sig=None).broken()) == ("missing_signature", 6, 5, "r5")


@pytest.mark.parametrize("version", [0, 2, True, "1", 1.0, None])
def test_unknown_version(version: object) -> None:
    assert changed(GOOD, 5, v=version).broken().kind == "unknown_version"


def test_unknown_member() -> None:
    assert place(changed(GOOD, 5, extra="x").broken()) == ("unknown_member", 6, 5, "r5")


@pytest.mark.parametrize("member", ["log", "time", "kind", "receipt_id", "prev", "principal", "index"])
def test_missing_member(member: str) -> None:
    broken = changed(GOOD, 5, **{member: None}).broken()
    assert (broken.kind, broken.line, broken.detail) == ("missing_member", 6, f"`{member}`")


def test_missing_member_and_signature() -> None:
    assert changed(GOOD, 5, sig=None, time=None).broken().kind == "missing_member"


# What somebody with some of the keys can do.


def sealed(*signed: Signed, keys: bytes | None = None) -> Export:
    """An export in which everything is chained, signed and committed to, whatever it says."""
    return export(*([item] for item in signed), keys=keys)


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
    assert place(export(keys=keys).broken()) == ("key_not_valid", 3, 2, "r2")


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


# What the holder of every key can do: only checkpoints that somebody kept tell.


def test_fork_against_the_checkpoint() -> None:
    other = export(*([item] for item in decisions(3)), decisions(4, start=7), [result(11, "r6")])
    assert other.verify().size == SIZE
    broken = Export(lines=other.lines, checkpoint=GOOD.checkpoint, keys=GOOD.keys).broken()
    assert (broken.kind, broken.line) == ("fork", 0)


@pytest.mark.parametrize("kept", [5, 8, SIZE])
def test_fork_against_the_retained_checkpoint(kept: int) -> None:
    other = export([decision(4, tool="other")], *([item] for item in decisions(9, start=5)))
    assert other.verify().size == 14
    assert place(other.broken(since=GOOD.checkpoint_at(kept))) == ("fork", kept, kept - 1, f"r{kept - 1}")
    assert other.verify(since=GOOD.checkpoint_at(4)).since == 4


def test_fork_at_the_root_of_nothing() -> None:
    forged = sign_checkpoint(Checkpoint(origin=LOG, size=0, root=b"\1" * 32), LOG_KEY)
    assert GOOD.broken(since=forged).kind == "fork"


def test_two_receipts_for_one_index() -> None:
    sealer = Sealer(lines=list(GOOD.lines[:6]))
    sealer.add([decision(60)])
    lines = [*GOOD.lines[:8], sealer.lines[6], *GOOD.lines[8:]]
    assert place(GOOD.with_lines(lines).broken()) == ("fork", 9, 6, "r60")


def test_receipt_of_another_fork_in_place() -> None:
    sealer = Sealer(lines=list(GOOD.lines[:6]))
    sealer.add([decision(60)])
    assert place(GOOD.with_line(6, sealer.lines[6]).broken()) == ("chain_broken", 8, 7, "r7")


# Checkpoints and keys.


def test_checkpoint_signed_by_another_key() -> None:
    for key in (STRANGER, GATE_KEY, PERMIT_KEY):
        forged = Export(lines=GOOD.lines, checkpoint=GOOD.checkpoint_at(SIZE, key), keys=GOOD.keys)
        assert forged.broken().kind == "checkpoint_invalid"
        assert GOOD.broken(since=GOOD.checkpoint_at(5, key)).kind == "checkpoint_invalid"


def test_checkpoint_that_is_none() -> None:
    assert Export(lines=GOOD.lines, checkpoint=b"", keys=GOOD.keys).broken().kind == "checkpoint_invalid"
    assert GOOD.broken(since=b"x").kind == "checkpoint_invalid"


@pytest.mark.parametrize(
    "keys",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        keys_file(log=""),
        keys_file(v=2),
        keys_file(v=True),
        keys_file(v="1"),
        keys_file(log=7),  # type: ignore[arg-type]
        keys_file(keys={}),
        keys_file(keys=[]),
        keys_file(keys=["x"]),
        keys_file(keys=[{}]),
        keys_file(keys=[{**LOG_KEY.describe(), "purpose": 7}]),
        keys_file(keys=[{**LOG_KEY.describe(), "kid": GATE_KEY.kid}]),
        keys_file(keys=[{**LOG_KEY.describe(), "public": "AAAA"}]),
        keys_file(keys=[{**LOG_KEY.describe(), "public": LOG_KEY.describe()["public"] + "\n"}]),
        keys_file(keys=[{**LOG_KEY.describe(), "until": -1}]),
        keys_file(keys=[{**LOG_KEY.describe(), "until": "9"}]),
        keys_file(keys=[{**LOG_KEY.describe(), "until": True}]),
        keys_file(GATE_KEY, BOT_KEY, PERMIT_KEY),
        keys_file().replace(b'"v":1', b'"v":1,"v":1'),
    ],
)
def test_keys_invalid(keys: bytes) -> None:
    assert Export(lines=GOOD.lines, checkpoint=GOOD.checkpoint, keys=keys).broken().kind == "keys_invalid"


def test_receipt_keys_in_the_file_are_not_believed() -> None:
    keys = keys_file(LOG_KEY, STRANGER)
    assert sealed(decision(4, STRANGER), keys=keys).broken().kind == "unknown_key"


def test_keys_of_another_log() -> None:
    assert (
        Export(lines=GOOD.lines, checkpoint=GOOD.checkpoint, keys=keys_file(log="other")).broken().kind == "wrong_log"
    )
    other = Export(lines=GOOD.lines, checkpoint=GOOD.checkpoint, keys=keys_file(NEXT_LOG_KEY))
    assert place(other.broken()) == ("key_not_endorsed", 1, 0, "r0")


# Rules between receipts.


def held(*signed: Signed) -> Export:
    return sealed(decision(4, decision="require_approval", approval_id="a1"), *signed)


@pytest.mark.parametrize(
    "signed",
    [
        [approval(5, "approved"), redemption(6, approval_id="a1")],
        [approval(5, "approved"), approval(6, "approved"), redemption(7, approval_id="a1", permit_id="x")],
        [approval(5, "approved"), approval(6, "expired")],
        [approval(5, "denied")],
        [approval(5, "cancelled"), approval(6, "approved", of="a2")],
        [redemption(5, permit_id="x"), redemption(6, permit_id="y")],
        [result(5, "r4"), result(6, "r4"), decision(7, parent="r4"), approval(8, "approved", parent="r4")],
    ],
)
def test_records_in_order(signed: Sequence[Signed]) -> None:
    assert held(*signed).verify().size == 5 + len(signed)


@pytest.mark.parametrize(
    ("kind", "signed"),
    [
        ("approval_missing", [redemption(5, approval_id="a1")]),
        ("approval_missing", [approval(5, "approved", of="a2"), redemption(6, approval_id="a1")]),
        ("approval_missing", [approval(5, "denied"), redemption(6, approval_id="a1")]),
        ("approval_missing", [approval(5, "approved"), approval(6, "expired"), redemption(7, approval_id="a1")]),
        ("approval_missing", [approval(5, "approved"), approval(6, "cancelled"), redemption(7, approval_id="a1")]),
        ("approval_missing", [redemption(5)]),
        (
            "approval_reused",
            [approval(5, "approved"), redemption(6, approval_id="a1"), redemption(7, approval_id="a1")],
        ),
        ("approval_reused", [approval(5, "approved"), redemption(6, approval_id="a1"), approval(7, "approved")]),
        ("approval_reused", [approval(5, "denied"), approval(6, "approved")]),
        ("permit_reused", [redemption(5, permit_id="x"), redemption(6, permit_id="x")]),
        ("parent_missing", [result(5, "r9")]),
        ("parent_missing", [result(5, "r5")]),
        ("parent_missing", [result(5, "r0")]),
        ("parent_missing", [(receipt(5, "result", agent="bot"), BOT_KEY)]),
        ("parent_missing", [decision(5, parent="r5")]),
        ("parent_missing", [decision(5, parent="r6"), decision(6)]),
        ("duplicated", [decision(5, receipt_id="r4")]),
        ("malformed_member", [approval(5, "opened")]),
        ("malformed_member", [approval(5, "redeemed")]),
        ("malformed_member", [(receipt(5, "approval", approval_id="a1"), GATE_KEY)]),
        ("malformed_member", [(receipt(5, "approval", action="approved"), GATE_KEY)]),
    ],
)
def test_records_out_of_order(kind: str, signed: Sequence[Signed]) -> None:
    broken = held(*signed).broken()
    if kind == "parent_missing":
        assert (broken.kind, broken.line) == (kind, 6)
    else:
        assert (broken.kind, broken.line) == (kind, 5 + len(signed))


class NoTool:
    """A rule of somebody else's."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def see(self, receipt: Body) -> None:
        self.seen.append(receipt["receipt_id"])
        if receipt.get("tool") == "forbidden":
            raise LogInvalid(Break(kind="parent_missing", detail="by rule"))


def test_rules_of_others_see_every_receipt_in_order() -> None:
    rule = NoTool()
    GOOD.verify(rules=[rule])
    assert rule.seen == [f"r{number}" for number in range(SIZE)]
    broken = sealed(decision(4, tool="forbidden")).broken(rules=[NoTool()])
    assert (*place(broken), broken.detail) == ("parent_missing", 5, 4, "r4", "by rule")


# Many lines, and checks beside.


LONG = export(*(decisions(50, start=start) for start in range(4, 2_604, 50)), [decision(2_604)])


def test_many_batches() -> None:
    told: list[int] = []
    assert len(LONG.lines) > 2 * BATCH_LINES
    assert LONG.verify(progress=told.append).size == len(LONG.lines)
    assert told == [1_000, 2_000, 2_605]
    assert LONG.verify(since=LONG.checkpoint_at(1_500)).since == 1_500


@pytest.mark.parametrize(
    ("at", "kind"), [(0, "edited"), (999, "edited"), (1_000, "edited"), (1_999, "edited"), (2_604, "edited")]
)
def test_an_executor_changes_nothing(at: int, kind: str) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert LONG.verify(executor=executor) == LONG.verify()
        bad = changed(LONG, at, principal="q")
        assert bad.broken(executor=executor) == bad.broken()
        assert bad.broken().kind == kind
        # The first defect wins, whoever finds it: a gap stands behind an edit, and before one.
        behind = bad.with_lines([*bad.lines[:-2], *bad.lines[-1:]]) if at < 2_600 else bad
        assert behind.broken(executor=executor) == behind.broken() == bad.broken()
        before = bad.with_lines([*bad.lines[:4], *bad.lines[5:]]) if at > 10 else bad
        assert before.broken(executor=executor) == before.broken()
        assert before.broken().kind == ("deleted" if at > 10 else kind)


def test_a_break_in_the_file_itself_comes_after_those_of_its_lines() -> None:
    bad = changed(LONG, 2_000, principal="q").with_lines([*LONG.lines[:2_500], b"x" * (MAX_LINE_BYTES + 1)])
    with ThreadPoolExecutor(2) as executor:
        assert bad.broken(executor=executor) == bad.broken()
        bad = changed(bad, 2_400, principal="q")
        assert (bad.broken(executor=executor).kind, bad.broken(executor=executor).line) == ("edited", 2_401)
        assert bad.broken() == bad.broken(executor=executor)


def test_processes_may_do_the_checks() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert LONG.verify(executor=executor).size == len(LONG.lines)
        bad = changed(LONG, 1_700, principal="q")
        assert place(bad.broken(executor=executor)) == ("edited", 1_701, 1_700, "r1700")


@settings(max_examples=400, deadline=None)
@given(st.integers(0, (len(GOOD.data) + len(GOOD.checkpoint)) * 8 - 1))
def test_any_flipped_bit_of_an_export_fails(bit: int) -> None:
    files = bytearray(GOOD.data + GOOD.checkpoint)
    files[bit // 8] ^= 1 << bit % 8
    at = len(GOOD.data)
    flipped = Flipped(data=bytes(files[:at]), checkpoint=bytes(files[at:]))
    assert flipped.broken().kind in MEANING


class Flipped(Export):
    def __init__(self, *, data: bytes, checkpoint: bytes):
        super().__init__(lines=(), checkpoint=checkpoint, keys=GOOD.keys)
        object.__setattr__(self, "flipped", data)

    @property
    def data(self) -> bytes:
        flipped: bytes = self.__dict__["flipped"]
        return flipped


def test_every_kind_of_break_has_a_meaning_and_a_place_in_words() -> None:
    broken = Break(kind="edited", detail="`x`", line=3, index=2, receipt_id="r")
    assert str(broken) == f"edited at line 3, index 2, receipt `r`: {MEANING['edited']} (`x`)"
    assert str(Break(kind="fork")) == f"fork: {MEANING['fork']}"
    assert str(LogInvalid(broken)) == str(broken)


def test_head_is_what_the_tests_think_it_is() -> None:
    assert [body["key"]["purpose"] for body, _ in HEAD] == ["log", "receipt", "receipt", "permit"]
