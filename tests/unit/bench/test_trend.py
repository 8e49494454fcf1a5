"""The trend: what is compared, when it is worse, and what is drawn."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import trend

RECORDED = {"a command": 10.0, "a mail": 4.0}
KIND = {"machine": "x86_64", "python": "3.11"}


def test_works_are_compared_with_the_first_of_the_same_slice() -> None:
    spent = count(0, 1_000)  # every look at the clock is a microsecond later: all works take as long
    found = trend.ratios({"bare": lambda: None, "one": lambda: None}, slices=5, clock=lambda: next(spent))
    assert found == {"one": 1.0}


def test_worse_is_what_is_worse_by_a_fifth_in_every_run() -> None:
    slow = {"a command": 12.1, "a mail": 4.0}
    assert trend.worse([slow, slow, slow], RECORDED) == [
        "a command: 12.10 times a bare signed append where 10.00 is recorded"
    ]
    assert trend.worse([slow, {"a command": 11.9, "a mail": 9.0}, slow], RECORDED) == []
    assert trend.worse([{"a command": 1.0, "a mail": 1.0, "new": 99.0}], RECORDED) == []


def test_runs_are_compared_with_the_last_one_of_the_same_kind_of_machine() -> None:
    history = [
        {"machine": KIND, "ratios": {"a command": 9.0}},
        {"machine": KIND, "ratios": RECORDED},
        {"machine": {**KIND, "python": "3.14"}, "ratios": {"a command": 5.0}},
    ]
    assert trend.last_of(history, KIND) == RECORDED
    assert trend.last_of(history, {**KIND, "machine": "arm64"}) == {}


def test_a_run_is_a_line_of_the_history_with_its_baselines(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    results = {
        "in_process": {"fsync_over_raw": 2.6, "decide_os": {"p50": 150.0}, "sign": {"p50": 25.0}},
        "http": {
            "bare_server_sequential": {"p50_ms": 0.1},
            "sequential": {"p50_ms": 0.5},
            "bare_server_32": {"per_second": 40_000},
            "connections_32": {"per_second": 5_000},
        },
    }
    trend.append(results, runs=[{"a command": 9.0}, {"a command": 30.0}, {"a command": 10.0}], file=file)
    trend.append(runs=[RECORDED], file=file)
    first, second = trend.read_history(file)
    assert first["ratios"] == {"a command": 10.0}
    assert list(first["baselines"].values()) == [2.6, 6.0, 5.0, 8.0]
    assert first["machine"] == trend.machine() and first["commit"] and first["time"]
    assert "baselines" not in second
    assert len(ElementTree.fromstring(trend.chart([first, second]))) > 10


def test_the_history_of_this_repository_can_be_read_and_is_what_is_drawn() -> None:
    history = trend.read_history()
    assert history
    assert set(history[-1]["ratios"]) == set(trend.CALLS)
    assert trend.CHART.read_text() == trend.chart(history)
    assert json.dumps(history[-1])
