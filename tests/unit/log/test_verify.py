"""Every defect of an export is found, named and placed; every test is named after the defect."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.breaks import MEANING, Break
from aegis.core.times import rfc3339
from aegis.errors import LogInvalid
from aegis.log.checkpoint import Checkpoint, sign_checkpoint
from aegis.log.merkle import EMPTY_ROOT
from aegis.log.verify import BATCH_LINES, MAX_LINE_BYTES, NOT_COVERED, NOT_COVERED_WITHOUT_SINCE
from support.log_defects import GOOD, SIZE, changed, place, sealed
from support.log_exports import (
    BOT_KEY,
    GATE_KEY,
    HEAD,
    LOG,
    LOG_KEY,
    NEXT_LOG_KEY,
    PERMIT_KEY,
    START,
    STRANGER,
    Body,
    Export,
    Sealer,
    decision,
    decisions,
    export,
    keys_file,
    note,
    result,
)


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


@pytest.mark.parametrize("version", [0, 3, True, "1", 1.0, None])
def test_unknown_version(version: object) -> None:
    assert changed(GOOD, 5, v=version).broken().kind == "unknown_version"


SECOND: list[tuple[str, Any, Any]] = [
    ("owner", "ann", 7),
    ("roles", ["agent", "auditor"], ["king"]),
    ("context", {"labels": ["public"], "untrusted": True, "task": True, "turns": 1, "calls": 2, "drift": 3}, {}),
    ("context", {"labels": [], "untrusted": False, "task": False, "turns": 0, "calls": 0}, {"labels": ["secret"]}),
    ("deferral", {"reason": "result", "resolution": "pending", "time": "2027-01-15T08:00:00.000000Z"}, {"reason": "x"}),
    ("deferral", {"reason": "turn", "resolution": "evidence", "time": "2027-01-15T08:00:00.000000Z"}, {"time": "now"}),
    ("execution", "failed", "perhaps"),
]


@pytest.mark.parametrize(("member", "value", "wrong"), SECOND)
def test_the_second_version_has_members_of_its_own_and_the_first_keeps_to_its(
    member: str, value: Any, wrong: Any
) -> None:
    assert changed(GOOD, 5, **{member: value}).broken().kind == "unknown_member"
    assert changed(GOOD, 5, v=2, **{member: value}).broken().kind == "edited"  # but for its signature it is well-formed
    assert changed(GOOD, 5, v=2, **{member: wrong}).broken().kind == "malformed_member"


def test_unknown_member() -> None:
    assert place(changed(GOOD, 5, extra="x").broken()) == ("unknown_member", 6, 5, "r5")


@pytest.mark.parametrize("member", ["log", "time", "kind", "receipt_id", "prev", "principal", "index"])
def test_missing_member(member: str) -> None:
    broken = changed(GOOD, 5, **{member: None}).broken()
    assert (broken.kind, broken.line, broken.detail) == ("missing_member", 6, f"`{member}`")


def test_missing_member_and_signature() -> None:
    assert changed(GOOD, 5, sig=None, time=None).broken().kind == "missing_member"


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
        keys_file(keys=[{**LOG_KEY.describe(), "from": -1}]),
        keys_file(keys=[{**LOG_KEY.describe(), "from": None}]),
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


def test_a_line_is_checked_in_the_same_order_here_and_beside() -> None:
    """What it is written like comes before its members, and these before its place."""
    for at in (0, 999, 1_000, 1_700):
        extra = changed(LONG, at, extra="x")
        respelled = extra.with_line(at, b" " + extra.lines[at])
        unplaced = changed(LONG, at, extra="x", index=at + 7)
        with ThreadPoolExecutor(2) as executor:
            for bad, kind in ((extra, "unknown_member"), (respelled, "not_canonical"), (unplaced, "unknown_member")):
                assert bad.broken(executor=executor) == bad.broken()
                assert (bad.broken().kind, bad.broken().line) == (kind, at + 1)


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
