"""Numbers and places behind the pages, which are pure."""

from __future__ import annotations

from aegis.behaviour.baseline import baseline
from aegis.core.ports import Entry
from aegis.core.times import MICROS
from aegis.missions.lineage import HEIGHT, MOST, graph

HOUR = 3_600 * MICROS
NOW = 100 * 24 * HOUR


def entry(at: int, tool: str = "read_file", decision: str = "allow") -> Entry:
    return Entry(
        index=0, leaf_hash=b"", body=b"", receipt_id="r", time=at, kind="decision", principal="p", tool=tool,
        decision=decision,
    )  # fmt: skip


def test_an_agent_without_calls_has_no_baseline() -> None:
    assert baseline([], NOW) is None


def test_what_the_last_day_had_and_the_time_before_had_not_is_told() -> None:
    before = [entry(NOW - (100 - number) * HOUR) for number in range(70)]
    recent = [entry(NOW - HOUR, "send_email", "block") for _ in range(6)]
    found = baseline([*reversed([*before, *recent])], NOW)
    assert found is not None
    assert (found.calls, found.tools[0].tool, found.tools[0].calls) == (76, "read_file", 70)
    assert found.tools[1].refused == 100.0
    assert found.an_hour == 1
    assert found.a_busy_hour == 6
    assert [text.partition(":")[0].partition(" of its")[0] for text in found.odd] == [
        "calls that it did not make before", "100 %", "6 calls within one hour, at most 1 before",
    ]  # fmt: skip


def test_a_day_like_the_others_and_a_new_agent_are_not_odd() -> None:
    usual = [entry(NOW - number * HOUR) for number in range(1, 100)]
    new = [entry(NOW - HOUR, "send_email", "block") for _ in range(6)]
    for entries in (usual, new):
        found = baseline(entries, NOW)
        assert found is not None
        assert found.odd == ()


def test_missions_without_delegation_have_no_graph() -> None:
    assert graph([["a"], ["b"]], {}, {}, {}) is None


def test_each_mission_has_one_box_and_none_cover_each_other() -> None:
    found = graph([["a", "b", "c"], ["a", "b", "d"], ["a", "e"], ["f"]], {"a": "the root"}, {"e": "revoked"}, {})
    assert found is not None
    boxes = {box.mission: box for box in found.boxes}
    assert sorted(boxes) == list("abcdef")
    assert len(found.lines) == 4
    assert boxes["a"].label == "the root"
    assert boxes["e"].state == "revoked"
    assert (boxes["a"].y, boxes["b"].y, boxes["c"].y) == (0, 0, 0)
    assert len({(box.x, box.y) for box in found.boxes}) == 6
    assert found.height == max(box.y for box in found.boxes) + HEIGHT
    assert "the root delegated to b" in found.told


def test_a_graph_is_bounded() -> None:
    found = graph([["root", f"m{number}"] for number in range(500)], {}, {}, {})
    assert found is not None
    assert len(found.boxes) == MOST
    assert found.more == 501 - MOST
