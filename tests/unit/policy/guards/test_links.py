"""Links that lead out of where agents work: on a real file system, through a configuration as an operator has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.config.compile import compile_policy
from aegis.config.config import parse_config
from aegis.core.finding import Report
from aegis.core.outcome import Outcome
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.guards.outflow import MOST_PATHS
from aegis.policy.model import Incoming
from support.cases import AGENT


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with a file, links inside of it, and links out of it to a folder, a file and themselves."""
    outside, inside = tmp_path / "outside", tmp_path / "work"
    for folder in (outside, inside / "src"):
        folder.mkdir(parents=True)
    (outside / "notes.txt").write_text("x")
    (inside / "src" / "main.txt").write_text("x")
    (inside / "latest").symlink_to("src")
    (inside / "vendor").symlink_to(outside)
    (inside / "readme.txt").symlink_to(outside / "notes.txt")
    (inside / "round").symlink_to("round")
    return inside


def judged(place: Path, tool: str, arguments: dict[str, Any], more: str = "") -> Report:
    config = parse_config(f"guards: {{content: {{workspaces: [{place}{more}]}}}}\n")
    policy = compile_policy(config, cache=default_cache_folder())
    evaluation = policy.evaluate(
        Incoming(
            tool=tool, server=None, arguments=arguments, principal=AGENT, agent="bot", session="", call_id="", now=0
        )
    )
    return next(report for report in evaluation.combined.reports if report.guard == "content")


@pytest.mark.claim("DET-14")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "vendor/notes.txt"}),
        ("read_file", {"path": "./src/../vendor/notes.txt"}),
        ("read_file", {"path": "vendor/not/there/yet.txt"}),
        ("write_file", {"path": "readme.txt", "content": "hello"}),
        ("list", {"paths": ["src", "vendor"]}),
        ("read_file", {"path": "round/x"}),
        ("read_file", {"path": "{place}/vendor/notes.txt"}),
        ("bash", {"command": "head -n 3 vendor/notes.txt"}),
        ("bash", {"command": "echo hello > vendor/new.txt"}),
        ("read_file", {"path": "a/" * 70 + "x"}),
    ],
)
def test_a_path_through_a_link_that_leaves_the_workspace_is_blocked(
    place: Path, tool: str, arguments: dict[str, Any]
) -> None:
    filled = {
        name: value.replace("{place}", str(place)) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    report = judged(place, tool, filled)
    assert report.outcome is Outcome.BLOCK
    assert {finding.rule for finding in report.findings if finding.outcome is Outcome.BLOCK} == {"path-link"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "src/main.txt"}),
        ("read_file", {"path": "latest/main.txt"}),
        ("write_file", {"path": "src/new/deep.txt", "content": "hello"}),
        ("bash", {"command": "head -n 3 latest/main.txt"}),
        ("read_file", {"path": "/usr/share/doc/readme"}),
        ("send_email", {"body": "see vendor/notes.txt"}),
    ],
)
def test_what_stays_inside_or_never_read_as_inside_passes(place: Path, tool: str, arguments: dict[str, Any]) -> None:
    assert judged(place, tool, arguments).outcome is Outcome.ALLOW


def test_a_link_may_lead_into_another_folder_of_the_operator(place: Path) -> None:
    report = judged(place, "read_file", {"path": "vendor/notes.txt"}, f", {place.parent / 'outside'}")
    assert report.outcome is Outcome.ALLOW


def test_without_such_a_folder_nothing_is_looked_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aegis.config.compile._follow", lambda path: pytest.fail(f"followed {path}"))
    policy = compile_policy(parse_config("version: 1\n"), cache=default_cache_folder())
    incoming = Incoming(
        tool="read_file", server=None, arguments={"path": str(place / "vendor" / "notes.txt")}, principal=AGENT,
        agent="bot", session="", call_id="", now=0,
    )  # fmt: skip
    assert policy.evaluate(incoming).combined.outcome is Outcome.ALLOW


@pytest.mark.claim("DET-14")
def test_more_paths_than_are_followed_refuse_the_call(place: Path) -> None:
    report = judged(place, "list", {"paths": [f"src/file-{number}" for number in range(MOST_PATHS + 1)]})
    assert report.outcome is Outcome.BLOCK
    assert [finding.rule for finding in report.findings if finding.outcome is Outcome.BLOCK] == ["limit-links"]
