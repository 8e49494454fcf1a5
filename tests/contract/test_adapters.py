"""What every adapter must do, over every path of the real packages against a provider on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from aegis.cli.demo.provider import Call, Turn
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.errors import InvalidCall
from aegis.sdk.client import Client
from contract import anthropic_paths, openai_paths
from support.decider import ScriptedDecider, allowed, blocked, changed, digest_of, held, sanitized, withheld
from support.worlds import MAIL, READ, Path, World, hooked, scripted, world

MANUAL = {**openai_paths.MANUAL, **anthropic_paths.MANUAL}
RUNNERS = {**openai_paths.RUNNERS, **anthropic_paths.RUNNERS}
PATHS = {**MANUAL, **RUNNERS}

every_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
every_manual_path = pytest.mark.parametrize("path", MANUAL.values(), ids=MANUAL.keys())
every_runner = pytest.mark.parametrize("path", RUNNERS.values(), ids=RUNNERS.keys())

BOTH = Turn(text="let me", calls=(MAIL, READ))
DONE = Turn(text="done")


def ran(world: World) -> list[str]:
    return [tool for tool, _ in world.ran]


@every_path
def test_allowed_calls_run_once_with_what_was_decided(path: Path) -> None:
    decider = scripted()
    with hooked(decider), world(BOTH, DONE) as agent:
        assert path(agent, ["go"]) == "done"
        assert ran(agent) == ["send_email", "read_file"]
        assert not any(name.startswith("x-aegis") for asked in agent.asked for name in asked.headers)
    assert [call.call_id for call in decider.decided] == ["call_mail_0123456789", "call_read_0123456789"]
    for call, (tool, arguments) in zip(decider.decided, agent.ran, strict=True):
        assert (call.tool, call.arguments) == (tool, arguments)


@every_path
def test_a_blocked_call_never_runs_and_the_rest_of_the_turn_goes_on(path: Path) -> None:
    with hooked(scripted(send_email=blocked)), world(BOTH, DONE) as agent:
        assert path(agent, ["go"]) == "done"
        assert ran(agent) == ["read_file"]
        results = agent.results_sent(1)
    assert "`send_email` was not run" in results["call_mail_0123456789"]
    assert "policy_denied" in results["call_mail_0123456789"]
    assert results["call_read_0123456789"] == "text"


@every_path
def test_the_model_sees_its_own_turn_as_it_was(path: Path) -> None:
    with hooked(scripted(send_email=blocked)), world(BOTH, DONE) as agent:
        path(agent, ["go"])
        # A provider that keeps the conversation is sent nothing that it has.
        if not {"previous_response_id", "thread"} & agent.asked[1].body.keys():
            assert agent.calls_sent(1) == ["call_mail_0123456789", "call_read_0123456789"]


@every_manual_path
def test_a_turn_with_no_call_left_ends_as_text_and_the_model_learns_why_later(path: Path) -> None:
    with hooked(scripted(send_email=blocked)), world(Turn(text="let me", calls=(MAIL,)), DONE) as agent:
        assert path(agent, ["go", "and now?"]) == "done"
        assert ran(agent) == []
        assert "`send_email` was not run" in agent.results_sent(1)["call_mail_0123456789"]


@every_manual_path
def test_the_text_says_why_nothing_was_done(path: Path) -> None:
    with hooked(scripted(send_email=blocked)), world(Turn(calls=(MAIL,))) as agent:
        assert "`send_email` was not run" in path(agent, ["go"])


@every_runner
def test_a_runner_goes_on_after_a_refusal(path: Path) -> None:
    with hooked(scripted(send_email=blocked)), world(Turn(calls=(MAIL,)), DONE) as agent:
        assert path(agent, ["go"]) == "done"
        assert ran(agent) == []
        assert "`send_email` was not run" in agent.results_sent(1)["call_mail_0123456789"]


@every_path
def test_sanitised_arguments_are_what_runs(path: Path) -> None:
    rule = sanitized(to="safe@example.com", subject="checked")
    decider = scripted(send_email=rule)
    with hooked(decider), world(BOTH, DONE) as agent:
        assert path(agent, ["go"]) == "done"
    assert agent.ran[0] == ("send_email", {"to": "safe@example.com", "subject": "checked"})
    # The record digests what ran.
    decision = rule(decider.decided[0])
    assert decision.call_digest == digest_of(decider.decided[0], agent.ran[0][1])


@every_path
def test_a_held_call_waits_and_runs_once_after_its_approval(path: Path) -> None:
    decider = ScriptedDecider(rules={"send_email": held}, resolve=allowed)
    with hooked(decider), world(BOTH, DONE) as agent:
        assert path(agent, ["go"]) == "done"
        assert ran(agent) == ["send_email", "read_file"]
    assert [call.call_id for call in decider.waited] == ["call_mail_0123456789"]


@every_path
def test_a_denied_call_does_not_run(path: Path) -> None:
    with hooked(ScriptedDecider(rules={"send_email": held}, resolve=blocked)), world(BOTH, DONE) as agent:
        path(agent, ["go"])
        assert ran(agent) == ["read_file"]


@every_path
def test_an_approval_of_other_arguments_does_not_count(path: Path) -> None:
    def other(call: ToolCall) -> Decision:
        return allowed(ToolCall(tool=call.tool, arguments={"to": "evil@example.com"}, call_id=call.call_id))

    with hooked(ScriptedDecider(rules={"send_email": held}, resolve=other)), world(BOTH, DONE) as agent:
        path(agent, ["go"])
        assert ran(agent) == ["read_file"]


@every_path
def test_a_held_call_is_refused_at_once_where_the_host_does_not_wait(path: Path) -> None:
    decider = ScriptedDecider(rules={"send_email": held}, resolve=allowed)
    with hooked(decider, on_approval="block"), world(BOTH, DONE) as agent:
        path(agent, ["go"])
        assert ran(agent) == ["read_file"]
    assert decider.waited == []


BROKEN = Call(tool="send_email", arguments='{"to": "a@exam', id="call_mail_0123456789")
# Whole messages of Anthropic hold parsed input, which cannot be broken.
SPELLED = {name: path for name, path in PATHS.items() if "openai" in name or "stream" in name or "eager" in name}


@pytest.mark.parametrize("path", SPELLED.values(), ids=SPELLED.keys())
def test_arguments_that_cannot_be_read_are_refused_with_a_reason(path: Path) -> None:
    decider = scripted()
    with hooked(decider), world(Turn(calls=(BROKEN, READ)), DONE) as agent:
        assert path(agent, ["go"]) == "done"
        assert ran(agent) == ["read_file"]
        assert "cannot be read" in agent.results_sent(1)["call_mail_0123456789"]
    assert [call.tool for call in decider.decided] == ["read_file"]


def _raises(error: Exception) -> Callable[[ToolCall], Decision]:
    def rule(call: ToolCall) -> Decision:
        raise error

    return rule


FAULTS: dict[str, Callable[[ToolCall], Any]] = {
    "an error of the decider": _raises(RuntimeError("gone")),
    "misuse": _raises(InvalidCall("no right", status=403)),
    "nothing": lambda call: None,
    "a decision about another call": lambda call: allowed(ToolCall(tool="other", arguments={}, call_id=call.call_id)),
    "changed arguments that were not recorded": lambda call: sanitized(to="x")(
        ToolCall(tool="other", arguments=call.arguments, call_id=call.call_id)
    ),
}


@every_path
@pytest.mark.parametrize("fault", FAULTS)
def test_a_decider_that_fails_lets_nothing_run(path: Path, fault: str) -> None:
    with hooked(scripted(send_email=FAULTS[fault])), world(BOTH, DONE) as agent:
        path(agent, ["go"])
        assert ran(agent) == ["read_file"]


@every_path
def test_without_a_gateway_nothing_runs(path: Path) -> None:
    with hooked(Client("http://127.0.0.1:9", timeout=0.5)), world(BOTH, DONE, DONE) as agent:
        path(agent, ["go"])
        assert ran(agent) == []


@every_path
def test_results_are_observed_before_the_model_sees_them(path: Path) -> None:
    decider = scripted()
    decider.inspect = lambda value: changed("[masked]") if value == "text" else withheld(value)
    with hooked(decider), world(BOTH, DONE) as agent:
        path(agent, ["go"])
        results = agent.results_sent(1)
    assert results["call_read_0123456789"] == "[masked]"
    assert "withheld" in results["call_mail_0123456789"]
    assert "sent" not in json.dumps(agent.asked[1].body["messages" if "messages" in agent.asked[1].body else "input"])
    assert sorted(result.decision_id for result in decider.observed) == [
        "d-call_mail_0123456789",
        "d-call_read_0123456789",
    ]


@every_manual_path
def test_a_conversation_that_goes_on_asks_nothing_twice(path: Path) -> None:
    decider = scripted(send_email=blocked)
    with hooked(decider), world(BOTH, DONE, DONE) as agent:
        path(agent, ["go", "and now?", "and then?"])
        assert len(agent.asked) == 4
    assert [call.call_id for call in decider.decided] == ["call_mail_0123456789", "call_read_0123456789"]
    assert len(decider.observed) == 1


@every_path
def test_ids_that_a_server_counts_anew_are_new_calls(path: Path) -> None:
    decider = scripted()
    with hooked(decider):
        for _ in range(2):
            with world(Turn(calls=(READ,)), DONE) as agent:
                # Another provider, but the same answer ids: what differs is the conversation.
                agent.provider._count += len(decider.decided) * 10
                assert path(agent, ["go"]) == "done"
                assert ran(agent) == ["read_file"]
    assert len({call.call_id for call in decider.decided}) == 2


@every_path
def test_without_hooks_calls_run_as_ever(path: Path) -> None:
    decider = scripted(send_email=blocked)
    with hooked(decider):
        pass
    with world(BOTH, DONE) as agent:
        assert path(agent, ["go"]) == "done"
        assert ran(agent) == ["send_email", "read_file"]
        assert not any(name.startswith("x-aegis") for name in agent.asked[0].headers)
    assert decider.decided == []
