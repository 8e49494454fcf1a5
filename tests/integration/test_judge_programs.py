"""Judges that are programs: real runs of pytest and ast-grep in the sandbox, and a plan that destroys a database."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.bootstrap import Deployment
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Search
from aegis.sandbox.view import read_folder
from support.deployments import deployment
from support.scripted_model import GOOD, scripted_model
from support.shell import aegis

PROGRAMS = sorted({os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)})
SAY = """
import json, os, sys
def say(score, why, **more):
    data = {"score": score, "confidence": 1.0, "reasoning": why, "signals": [], "metadata": {}, **more}
    os.write(int(os.environ["AEGIS_RESULT_FD"]), json.dumps(data).encode())
payload = json.load(sys.stdin)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


def judged_by(tmp_path: Path, workspace: Path, program: str, *, limits: str = "{}") -> Deployment:
    home = tmp_path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "check.py").write_text(SAY + program)
    (home / "check.yaml").write_text(
        f"name: check\ncommand: [{sys.executable}, -B, check.py]\nprograms: {json.dumps(PROGRAMS)}\nlimits: {limits}\n"
    )
    text = f"version: 1\nlimits: {{rate: unlimited}}\npreviews: {{workspace: {workspace}}}\n"
    return deployment(home, text + "judges: [{name: check, judge: check.yaml}]\n")


def decide(running: Deployment, **arguments: Any) -> Decision:
    return running.gate.decide(ToolCall(tool="apply", arguments=arguments))


def cause(running: Deployment) -> str:
    with running.store.reader() as reader:
        row = orjson.loads(reader.search(Search(kind="decision", limit=1))[0].body)
    return str(row["judge"]["cause"])


def test_a_judge_runs_the_test_suite(tmp_path: Path, workspace: Path) -> None:
    program = """
import os, subprocess
command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins of the clone lie outside of what the sandbox shows
run = subprocess.run(command, capture_output=True, text=True)
say(1.0 if run.returncode == 0 else 0.0, run.stdout.strip().splitlines()[-1])
"""
    (workspace / "test_it.py").write_text("def test_it():\n    assert 1 + 1 == 2\n")
    running = judged_by(tmp_path, workspace, program, limits="{processes: 128}")
    before = read_folder(str(workspace)).digest
    assert decide(running).outcome is Outcome.ALLOW, cause(running)
    (workspace / "test_it.py").write_text("def test_it():\n    assert 1 + 1 == 3\n")
    rejected = decide(running)
    assert rejected.reason is Reason.JUDGE_REJECTED
    assert "1 failed" in rejected.message
    (workspace / "test_it.py").write_text("def test_it():\n    assert 1 + 1 == 2\n")
    assert read_folder(str(workspace)).digest == before
    running.close()


def test_a_model_searches_code_with_ast_grep(tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (workspace / "app.py").write_text("import shutil\n\ndef clean(path):\n    shutil.copy(path, 'x')\n")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with scripted_model() as model:
        (home / "look.yaml").write_text(f"name: look\nmodel: {model.openai}\ntools: {{ast_grep.search: true}}\n")
        search = ("ast_grep.search", {"pattern": "shutil.copy($A, $B)", "language": "python"})
        model.script = lambda asked: GOOD if len(asked["messages"]) > 2 else [search]
        text = f"version: 1\nlimits: {{rate: unlimited}}\npreviews: {{workspace: {workspace}}}\n"
        running = deployment(home, text + "judges: [{name: look, judge: look.yaml}]\n")
        assert decide(running).outcome is Outcome.ALLOW
        assert "app.py" in model.last()
        running.close()


PLAN = """
import subprocess
run = subprocess.run(["/bin/sh", "./terraform", "plan", "-json"], capture_output=True, text=True)
gone = [line["resource"] for line in map(json.loads, run.stdout.splitlines()) if line["action"] == "delete"]
say(0.0 if any("database" in one for one in gone) else 1.0, f"the plan destroys {', '.join(gone) or 'nothing'}")
"""


def test_a_plan_that_destroys_a_database_is_rejected_before_it_is_applied(tmp_path: Path, workspace: Path) -> None:
    terraform = workspace / "terraform"
    terraform.write_text('#!/bin/sh\ncat plan.jsonl\n[ "$1" = apply ] && touch applied\nexit 0\n')
    plan = workspace / "plan.jsonl"
    plan.write_text('{"action": "create", "resource": "aws_instance.web"}\n')
    running = judged_by(tmp_path, workspace, PLAN)
    assert decide(running, command="terraform apply").outcome is Outcome.ALLOW
    plan.write_text('{"action": "delete", "resource": "aws_rds_cluster.database"}\n')
    rejected = decide(running, command="terraform apply")
    assert rejected.reason is Reason.JUDGE_REJECTED
    assert "aws_rds_cluster.database" in rejected.message
    assert not (workspace / "applied").exists()
    running.close()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("say(0.9, 'fine')", "passed"),
        ("say(0.2, 'no')", "score"),
        ("sys.exit(0)", "malformed"),
        ("say(0.9, 'fine'); sys.exit(3)", "failed"),
        ("say(0.9, 'a'); say(0.9, 'b')", "malformed"),
        ("print(json.dumps({'score': 1}))", "malformed"),
        (
            "fd = int(os.environ['AEGIS_RESULT_FD']); os.fork() or (os.write(fd, b'{}'), os._exit(0)); os.wait(); "
            "say(0.9, 'fine')",
            "forged",
        ),
        ("import time; time.sleep(60)", "timeout"),
        ("open('/etc/shadow'); say(1, '')", "failed"),
        ("open('stolen', 'w'); say(1, '')", "failed"),
        ("import socket; socket.create_connection(('1.1.1.1', 53), 2); say(1, '')", "failed"),
    ],
)
def test_whatever_a_program_does_has_its_cause(tmp_path: Path, workspace: Path, program: str, expected: str) -> None:
    limits = "{timeout: 1s}" if expected == "timeout" else "{}"
    running = judged_by(tmp_path, workspace, program, limits=limits)
    assert (decide(running).outcome is Outcome.ALLOW) is (expected == "passed")
    assert cause(running) == expected
    running.close()


def test_a_program_gets_the_whole_payload(tmp_path: Path, workspace: Path) -> None:
    program = "say(1.0 if payload['proposed_tool_call']['arguments'] == {'a': 1} else 0.0, 'x')"
    running = judged_by(tmp_path, workspace, program)
    assert decide(running, a=1).outcome is Outcome.ALLOW
    assert decide(running, a=2).outcome is Outcome.BLOCK
    running.close()


def test_a_configuration_that_names_no_judge_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "aegis.yaml"
    for entry, part in (
        ("{name: a, judge: missing.yaml}", "there is no judge `missing.yaml`"),
        ("{name: a, type: oracle, command: ['true']}", "`type`"),
        ("{name: a}", "exactly one of"),
        ("{name: a, judges: [x.yaml, y.yaml], command: ['true']}", "exactly one of"),
    ):
        file.write_text(f"version: 1\njudges: [{entry}]\n")
        checked = aegis("config", "check", file)
        assert checked.returncode == 2
        assert part in checked.stderr
        assert f"{file}:2" in checked.stderr
    file.write_text("version: 1\ntools: {rm: {effects: [write], skip_judge: true}}\n")
    assert "does not go without a judge" in aegis("config", "check", file).stderr


def test_labelled_calls_calibrate_a_judge_and_are_replayed_offline(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cases = [
        {"tool": "t", "arguments": {"n": n}, "label": "allow" if n % 2 else "reject", "task": "odd numbers"}
        for n in range(8)
    ]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cases))
    (tmp_path / "check.py").write_text(
        SAY + "n = payload['proposed_tool_call']['arguments']['n']\nsay(0.9 if n % 2 or n == 0 else 0.1, 'x')"
    )
    (tmp_path / "judge.yaml").write_text(
        f"name: parity\ncommand: [{sys.executable}, -B, check.py]\nprograms: {json.dumps(PROGRAMS)}\n"
    )
    run = aegis(
        "judge", "eval", tmp_path / "cases.jsonl", "--judge", tmp_path / "judge.yaml", "--home", home, "--json",
        "--record", tmp_path / "runs.jsonl", "--svg", tmp_path / "curve.svg",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    half = next(one for one in figures["thresholds"] if one["threshold"] == 0.5)
    assert (half["agreement"], half["precision"], half["recall"]) == (0.875, 1.0, 0.75)
    assert {(one["score"], one["cases"]) for one in figures["reliability"]} == {(0.1, 3), (0.9, 5)}
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    (tmp_path / "check.py").unlink()
    again = aegis("judge", "eval", tmp_path / "cases.jsonl", "--replay", tmp_path / "runs.jsonl", "--json")
    assert json.loads(again.stdout)["thresholds"] == figures["thresholds"]
