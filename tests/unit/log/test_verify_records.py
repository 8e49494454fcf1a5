"""Rules between the receipts of an export."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aegis.core.breaks import Break
from aegis.errors import LogInvalid
from support.log_defects import GOOD, SIZE, place, sealed
from support.log_exports import (
    BOT_KEY,
    GATE_KEY,
    Body,
    Export,
    Signed,
    approval,
    decision,
    receipt,
    redemption,
    result,
)


def held(*signed: Signed) -> Export:
    return sealed(decision(4, decision="require_approval", approval_id="a1"), *signed)


@pytest.mark.parametrize(
    "signed",
    [
        [approval(5, "approved"), redemption(6, approval_id="a1")],
        [approval(5, "approved"), approval(6, "approved"), redemption(7, approval_id="a1", permit_id="x")],
        [approval(5, "approved"), approval(6, "expired")],
        [approval(5, "previewed"), approval(6, "approved"), approval(7, "previewed"), redemption(8, approval_id="a1")],
        [
            approval(5, "voted"),
            approval(6, "narrowed"),
            approval(7, "passed_on"),
            approval(8, "approved"),
            redemption(9, approval_id="a1"),
        ],
        [approval(5, "denied")],
        [approval(5, "cancelled"), approval(6, "approved", of="a2")],
        [decision(5), redemption(6, permit_id="x", parent="r5"), redemption(7, permit_id="y", parent="r5")],
        [decision(5, decision="sanitize"), result(6, "r5"), redemption(7, permit_id="x", parent="r5")],
        [
            approval(5, "approved"),
            redemption(6, approval_id="a1"),
            result(7, "r4"),
            redemption(8, permit_id="x", parent="r4"),
        ],
        [decision(5), result(6, "r5"), result(7, "r5"), decision(8, parent="r5"), approval(9, "approved", parent="r4")],
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
        ("approval_reused", [approval(5, "approved"), approval(6, "voted")]),
        (
            "permit_reused",
            [decision(5), redemption(6, permit_id="x", parent="r5"), redemption(7, permit_id="x", parent="r5")],
        ),
        ("parent_missing", [redemption(5, permit_id="x")]),
        ("parent_missing", [redemption(5, permit_id="x", parent="r0")]),
        ("call_not_allowed", [result(5, "r4")]),
        ("call_not_allowed", [redemption(5, permit_id="x", parent="r4")]),
        ("call_not_allowed", [approval(5, "approved"), result(6, "r4")]),
        ("call_not_allowed", [approval(5, "denied"), result(6, "r4")]),
        ("call_not_allowed", [decision(5, decision="block"), result(6, "r5")]),
        ("call_not_allowed", [decision(5, decision="block"), redemption(6, permit_id="x", parent="r5")]),
        (
            "call_not_allowed",
            [
                decision(5, decision="require_approval", approval_id="a2"),
                approval(6, "approved"),
                redemption(7, approval_id="a1"),
                result(8, "r5"),
            ],
        ),
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
