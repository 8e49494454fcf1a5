"""What the log holds of judges: a start before each run, and one end for every start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.bootstrap import Deployment
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Search
from aegis.gate.control import set_agent
from aegis.log.append import check_members
from support.judging import HEAD, call, config, opened, receipts
from support.receiver import until
from support.scripted_model import GOOD, ScriptedModel, scripted_model


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


def log(running: Deployment) -> list[tuple[str, str]]:
    """Kind and action of everything on record, in order."""
    with running.store.reader() as reader:
        rows = [(entry.index, orjson.loads(entry.body)) for entry in reader.search(Search(limit=1_000))]
    return [(body["kind"], body.get("action", "")) for _, body in sorted(rows, key=lambda row: row[0])]


def test_a_start_is_durable_before_its_judge_runs_and_an_end_is_recorded_with_the_decision(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = opened(tmp_path, config(model))
    running.gate.decide(call())  # the first call of an agent records its key as well
    commits: list[int] = []
    whole = running.ledger.commit

    def counted(units: Any, *, wait_s: float | None = None) -> Any:
        answers = whole(units, wait_s=wait_s)
        commits.append(len(units))
        return answers

    monkeypatch.setattr(running.ledger, "commit", counted)
    before = len(log(running))
    seen: list[Any] = []

    def look(_: Any) -> Any:
        commits.append(0)
        seen.extend(log(running)[before:])
        return GOOD

    model.script = look
    assert running.gate.decide(call({"n": 2})).outcome is Outcome.ALLOW
    assert (commits, seen) == ([1, 0, 1], [("judge", "started")])
    assert log(running)[before:] == [("judge", "started"), ("judge", "ended"), ("decision", "")]
    running.close()


def test_every_run_of_several_judges_ends_once(tmp_path: Path, model: ScriptedModel) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for name in "abc":
        (home / f"{name}.yaml").write_text(f"name: {name}\nmodel: {model.openai}\n")
    first = f"{{name: first, model: {model.openai}}}"
    running = opened(tmp_path, f"{HEAD}judges: [{first}, {{name: panel, judges: [a.yaml, b.yaml, c.yaml]}}]\n")
    assert running.gate.decide(call()).outcome is Outcome.ALLOW
    rows = receipts(running)
    started = [row["receipt_id"] for row in rows if row["action"] == "started"]
    assert len(started) == 4
    assert sorted(row["parent"] for row in rows if row["action"] == "ended") == sorted(started)
    assert log(running)[-2:] == [("judge", "ended"), ("decision", "")]
    running.close()


def test_a_call_that_is_decided_anew_leaves_no_run_without_its_end(tmp_path: Path, model: ScriptedModel) -> None:
    running = opened(tmp_path, config(model))
    moved: list[int] = []

    def stop_another(_: Any) -> Any:
        if not moved:
            moved.append(1)
            running.gate.record(set_agent("somebody-else", state="revoked", reason="", principal="ann"))
        return GOOD

    model.script = stop_another
    assert running.gate.decide(call(call_id="c")).outcome is Outcome.ALLOW
    assert len(model.asked) == 2
    until(lambda: len(receipts(running)) == 4)
    rows = receipts(running)
    assert {row["parent"] for row in rows if row["action"] == "ended"} == {
        row["receipt_id"] for row in rows if row["action"] == "started"
    }
    running.close()


@pytest.mark.parametrize("reported", [10**9, 10**17, 10**30])
def test_no_number_of_a_provider_makes_the_log_unverifiable(
    tmp_path: Path, model: ScriptedModel, reported: int
) -> None:
    running = opened(tmp_path, config(model))
    said = {"choices": [{"message": {"role": "assistant", "content": orjson.dumps(GOOD).decode()}}]}
    usage = f'"usage": {{"prompt_tokens": {reported}, "completion_tokens": {reported}}}'
    model.script = lambda _: orjson.dumps(said)[:-1] + f", {usage}}}".encode()
    assert running.gate.decide(call()).reason is Reason.JUDGE_FAILED  # it spent more than it may
    rows = receipts(running)
    assert [row["action"] for row in rows] == ["started", "ended"]
    for row in rows:
        check_members(row)
    running.close()
