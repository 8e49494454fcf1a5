"""`aegis bench injected`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.shell import aegis, read_json

RUN = (
    "bench",
    "injected",
    "--suite",
    "clinic",
    "--prompt",
    "shown",
    "--when",
    "late",
    "--variant",
    "bare",
    "--jobs",
    "1",
)


def configured(folder: Path, **said: Any) -> str:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({"version": 1, **said}), encoding="utf-8")
    return str(path)


def rows(answer: dict[str, Any], variant: str, policy: str) -> dict[str, Any]:
    (row,) = [one for one in answer["rows"] if one["variant"] == variant and one["policy"] == policy]
    return dict(row)


@pytest.mark.claim("BEN-01")
def test_a_policy_that_holds_payments_stands_between_the_baselines(tmp_path: Path) -> None:
    policy = {"name": "people-pay", "select": {"tool": "pay_bill"}, "outcome": "require_approval",
              "deny": {"required": ["account"]}}  # fmt: skip
    picture = tmp_path / "out.svg"
    done = aegis(
        *RUN,
        "--json",
        "--config",
        configured(tmp_path, policies=[policy], guards={"dataflow": {"mode": "off"}}),
        "--picture",
        str(picture),
    )
    answer = read_json(done)
    assert answer["policy"] == "own.yaml"
    assert rows(answer, "", "allow everything")["utility"]["share"] == 1
    held = rows(answer, "", "hold everything")
    assert (held["utility"]["share"], held["stopped"]["share"]) == (0, 1)
    clean, bare = rows(answer, "", "own.yaml"), rows(answer, "bare", "own.yaml")
    assert 0 < clean["utility"]["share"] < 1
    assert 0 < clean["holds"] < held["holds"]
    assert 0 < bare["stopped"]["share"] < 1
    assert bare["hard"]["share"] > bare["stopped"]["share"]
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert "11 of 66 cases" not in done.stdout  # progress is no part of what a script reads


def test_what_is_required_and_not_met_ends_with_one(tmp_path: Path) -> None:
    details = tmp_path / "details.jsonl"
    met = aegis(*RUN, "--profile", "standard", "--require", "utility=0.1,holds=3", "holds.bare=3")
    assert met.returncode == 0, met.stderr
    missed = aegis(
        *RUN,
        "--profile",
        "observe",
        "--require",
        "stopped.bare=97%",
        "--require",
        "utility=100%",
        "--details",
        str(details),
    )
    assert missed.returncode == 1
    assert "`stopped.bare` is 0, and 0.97 is asked" in missed.stderr
    assert "`utility`" not in missed.stderr
    told = [json.loads(line) for line in details.read_text(encoding="utf-8").splitlines()]
    assert {one["wrong"] for one in told} == {"missed"}


def test_what_cannot_be_measured_is_said(tmp_path: Path) -> None:
    for said, more in (
        ("there is no suite", ("--suite", "nowhere")),
        ("is no variant", ("--suite", "clinic", "--variant", "sung")),
        ("is `shown`, `hidden` or `both`", ("--suite", "clinic", "--prompt", "maybe")),
        ("exclude each other", ("--profile", "strict", "--config", configured(tmp_path))),
        ("holds no suite", ("--own", str(tmp_path / "nothing"))),
        ("is nothing that the bench measures", ("--require", "charm=1")),
        ("is no requirement", ("--require", "utility")),
        ("not between 0 and 1", ("--require", "stopped.bare=97")),
    ):
        refused = aegis("bench", "injected", *more)
        assert refused.returncode == 2
        assert said in refused.stderr
    unmeasured = aegis(*RUN, "--require", "nowhere:utility=1")
    assert unmeasured.returncode == 2
    assert "nothing was measured" in unmeasured.stderr
