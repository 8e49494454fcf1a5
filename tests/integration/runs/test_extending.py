"""Parts of other packages (guards, routers, providers, tools, finalizers, graphs), and graphs of one's own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.core.principal import Principal
from aegis.errors import ConfigError
from aegis.runs.explain import ExplainedStep, steps_of
from aegis.runs.nodes import BuildGraph
from aegis.runs.service import open_runs
from aegis.runs.state import RunAnswer, RunRequest
from support.deployments import deployment
from support.run_parts import LEDGER, registered, shortening
from support.run_world import Provider, config, provider, say

BOT = Principal(id="bot", roles=frozenset({"agent"}), agent="bot")
PARROT = "{provider: parrot, model: polly, region: eu, price: {input: 0, output: 0}}"


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_TEST_KEY", "sk-test-of-runs")
    monkeypatch.setattr("aegis.runs.providers.entry_points", registered)
    LEDGER.clear()


async def run(
    folder: Path,
    text: str = "hello",
    *,
    route: str = "models: [main]",
    options: str = "{}",
    graphs: dict[str, BuildGraph] | None = None,
) -> tuple[RunAnswer, list[ExplainedStep], Provider]:
    """One run over a route: its answer, what the log tells of it, and the provider that may have been asked."""
    with provider() as model:
        model.script = [say("fine")]
        written = config(model.url, ["true"], routes=f"{{default: {{{route}}}}}", options=options)
        written = written.replace("  models:\n", f"  models:\n    near: {PARROT}\n")
        written = written.replace("tools:\n", 'tools:\n  "shelf/fetch_note": {risk: low, effects: [read]}\n', 1)
        place = deployment(folder / "home", written)
        try:
            async with open_runs(place, graphs) as runs:
                answer = await runs.start(BOT, RunRequest(messages=({"role": "user", "content": text},)))
            with place.store.reader() as reader:
                return answer, list(steps_of(reader, answer.run_id)), model
        finally:
            place.close()


@pytest.mark.parametrize(("text", "said", "asked"), [("hello", "fine", 1), ("HELLO", "", 0)])
async def test_a_guard_of_another_package_is_like_a_built_in_one(
    tmp_path: Path, text: str, said: str, asked: int
) -> None:
    answer, steps, model = await run(tmp_path, text, route="models: [main], ingress: [no-shouting]")
    assert (answer.output, len(model.seen)) == (said, asked)
    assert answer.events[0]["guard"] == "no-shouting"
    assert ("ingress", "no-shouting") in [(step.stage, step.guard) for step in steps]
    if not said:
        assert (answer.status, answer.message) == ("refused", "please do not shout")


async def test_model_tools_and_router_of_another_package_are_like_built_in_ones(tmp_path: Path) -> None:
    route = "models: [main, near], servers: [shelf], router: cheapest"
    answer, steps, model = await run(tmp_path, route=route)
    assert (answer.status, answer.model, model.seen) == ("completed", "near", [])
    assert answer.output == 'polly heard {"note":"of notes/a.txt"}'
    told = [(step.stage, step.subject, step.guard, step.outcome) for step in steps]
    assert ("route", "", "cheapest", "allow") in told
    assert ("turn", "", "near", "allow") in told
    assert ("decision", "fetch_note") in {(stage, subject) for stage, subject, _, _ in told}
    assert ("result", "fetch_note") in {(stage, subject) for stage, subject, _, _ in told}


async def test_a_provider_of_another_package_that_raises_is_followed_by_the_next(tmp_path: Path) -> None:
    answer, _, model = await run(tmp_path, route="models: [near, main]", options="{parrot: {broken: true}}")
    assert (answer.output, answer.model, len(model.seen)) == ("fine", "main", 1)
    assert [event["outcome"] for event in answer.events if event["stage"] == "model"] == ["block", "allow"]


async def test_a_router_that_names_what_is_no_candidate_refuses_the_run(tmp_path: Path) -> None:
    answer, steps, model = await run(tmp_path, route="models: [main], router: inventing")
    assert (answer.status, answer.reason, model.seen) == ("refused", "policy_denied", [])
    assert ("route", "inventing", "block") in [(step.stage, step.guard, step.outcome) for step in steps]


async def test_a_model_sees_only_runs_whose_labels_it_names(tmp_path: Path) -> None:
    labels = "labels: {classification: [public]}"
    for name, text, status in (("a", "hello", "completed"), ("b", "pay with 4539 1488 0343 6467", "refused")):
        (tmp_path / name).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(__name__ + ".PARROT", PARROT.replace("region: eu", f"region: eu, {labels}"))
            route = "models: [near], ingress: [classify]"
            answer, steps, _ = await run(tmp_path / name, text, route=route)
        assert answer.status == status
        assert steps[-1].outcome == ("allow" if status == "completed" else "block")
    answer, _, _ = await run(tmp_path, route="models: [near]")
    assert answer.status == "completed"  # without the demand anybody may be shown it


async def test_finalizers_see_every_end_and_may_withhold_the_answer(tmp_path: Path) -> None:
    for name, text, withheld in (("a", "hello", "other"), ("b", "hello", "fine"), ("c", "HELLO", "other")):
        (tmp_path / name).mkdir()
        route = "models: [main], ingress: [no-shouting], finalize: [ledger]"
        answer, steps, _ = await run(
            tmp_path / name, text, route=route, options=f"{{ledger: {{withheld: {withheld}}}}}"
        )
        assert (answer.status == "completed", answer.to_wire()["output"]) == (
            name == "a",
            "fine" if name == "a" else None,
        )
        assert (steps[-2].stage, steps[-2].guard, steps[-1].stage) == ("finalize", "ledger", "end")
        assert steps[-1].reason == ("none" if name == "a" else "policy_denied")
    assert LEDGER == [("completed", "none", "fine"), ("completed", "none", "fine"), ("refused", "policy_denied", "")]


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("models: [main], egress: [nobody]", "there is no guard `nobody`"),
        ("models: [main], egress: [unmade]", "the guard `unmade`: .*cannot be loaded"),
        ("models: [main], egress: [no-shouting]", "serves ingress, not egress"),
        ("models: [main], router: nobody", "there is no router `nobody`"),
        ("models: [main], graph: nobody", "there is no graph `nobody`"),
        ("models: [main], servers: [nobody]", "there is no server `nobody`"),
    ],
)
async def test_a_part_that_is_not_there_is_refused_at_the_start(tmp_path: Path, route: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await run(tmp_path, route=route)


@pytest.mark.parametrize("graphs", [None, {"default": shortening}])
async def test_a_route_can_have_a_graph_of_its_own(tmp_path: Path, graphs: Any) -> None:
    route = "models: [main]" if graphs else "models: [main], graph: shortening"
    answer, steps, _ = await run(tmp_path, route=route, graphs=graphs)
    assert (answer.status, answer.output) == ("completed", "fi")
    assert "shorten" in [event["stage"] for event in answer.events]
    assert steps[-1].stage == "end"
