"""What policies read of a session: in Cedar, in selectors, and what a call without one misses."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.config.compile import Policy, compile_policy
from aegis.config.compile_cedar import unfilled
from aegis.config.config import parse_config
from aegis.core.combine import Combined
from aegis.detect.rules.cache import default_cache_folder
from aegis.errors import ConfigError
from aegis.policy.dataflow.reading import SessionView
from aegis.policy.dataflow.words import read_words
from aegis.policy.model import Incoming
from support.cases import AGENT

BASE = "- name: base\n  cedar: permit(principal, action, resource);\n"


def policy(policies: str, *, evidence: str = "fail-closed", more: str = "") -> Policy:
    text = f"version: 1\ninsufficient_evidence: {evidence}\nguards: {{dataflow: {{mode: off}}}}\n{more}"
    return compile_policy(parse_config(f"{text}policies:\n{policies}"), cache=default_cache_folder())


def forbid(when: str, *, outcome: str = "block") -> str:
    return (
        f"{BASE}- name: rule\n  outcome: {outcome}\n  cedar: forbid(principal, action, resource) when {{ {when} }};\n"
    )


def judged(made: Policy, view: SessionView | None, *, tool: str = "act", **arguments: Any) -> Combined:
    session = "" if view is None else view.id
    return made.evaluate(
        Incoming(
            tool=tool, server=None, principal=AGENT, agent="bot", session=session, call_id="c", now=0,
            arguments=arguments, context=view, charge=False,
        )
    ).combined  # fmt: skip


def view(**members: Any) -> SessionView:
    return SessionView(id="s-1", **members)


TRUE_OF = [
    ('context.session.id == "s-1"', view()),
    ('context.session.labels.contains("confidential")', view(labels=frozenset({"confidential", "public"}))),
    ('context.session.sources.contains("mail/read_inbox")', view(sources=frozenset({"mail/read_inbox"}))),
    ('context.session.effects.contains("external_send")', view(effects=frozenset({"external_send"}))),
    ('context.session.tools.contains("send")', view(tools=frozenset({"send"}))),
    ("context.session.untrusted", view(untrusted=True)),
    ("context.session.task", view(words=read_words(["pay"]))),
    ("context.session.calls >= 3", view(calls=3)),
    ("context.session.denials > 0", view(denials=1)),
    ("context.session.turns == 2", view(turns=2)),
    ("context.session.drift >= 60", view(words=read_words(["pay"]), drift=60)),
    ("context.session.labels.isEmpty()", view()),
    ("!(context has session && context.session has drift)", view()),
]


@pytest.mark.parametrize(("when", "seen"), TRUE_OF, ids=[when for when, _ in TRUE_OF])
def test_a_policy_reads_every_field(when: str, seen: SessionView) -> None:
    found = judged(policy(forbid(when)), seen)
    assert (found.outcome.word, found.reason.word) == ("block", "policy_denied")
    assert judged(policy(forbid(f"!({when})")), seen).outcome.word == "allow"


MISSED = [
    ('context.session.labels.contains("confidential")', None, "session:labels"),
    ("context.session.drift > 5", None, "session:drift"),
    ("context.session.drift > 5", view(), "session:drift"),
]


@pytest.mark.parametrize(("when", "seen", "named"), MISSED)
@pytest.mark.parametrize(
    ("evidence", "outcome", "reason"),
    [
        ("fail-closed", "block", "insufficient_evidence"),
        ("require-approval", "require_approval", "insufficient_evidence"),
        ("defer", "require_approval", "deferred"),
        ("fail-open-with-attestation", "allow", "none"),
    ],
)
def test_what_a_session_cannot_fill_is_missing_evidence(
    when: str, seen: SessionView | None, named: str, evidence: str, outcome: str, reason: str
) -> None:
    found = judged(policy(forbid(when), evidence=evidence), seen)
    assert (found.outcome.word, found.missing, found.verdict.word) == (outcome, (named,), "insufficient_evidence")
    assert found.reason.word in {reason, "insufficient_evidence" if outcome == "allow" else reason}
    assert found.awaits == ((named,) if evidence == "defer" else ())


def test_a_field_that_does_not_matter_is_not_missed() -> None:
    made = policy(forbid('context.tool == "send" && context.session.untrusted'))
    assert judged(made, None).outcome.word == "allow"
    assert judged(made, None, tool="send").missing == ("session:untrusted",)
    permits = policy(
        f"{BASE}- name: more\n  cedar: permit(principal, action, resource) when {{ context.session.task }};"
    )
    assert judged(permits, None).outcome.word == "allow"
    alone = policy("- name: only\n  cedar: permit(principal, action, resource) when { context.session.task };")
    assert judged(alone, None).missing == ("session:task",)
    assert judged(alone, view()).reason.word == "policy_denied"
    both = policy(forbid("context.session.untrusted") + "- name: no\n  cedar: forbid(principal, action, resource);")
    assert judged(both, None).reason.word == "policy_denied"


@pytest.mark.parametrize(
    ("outcome", "decision", "reason", "verdict"),
    [
        ("block", "block", "policy_denied", "violation"),
        ("require_approval", "require_approval", "approval_required", "compliant"),
        ("defer", "require_approval", "deferred", "insufficient_evidence"),
    ],
)
def test_a_forbid_demands_what_its_policy_says(outcome: str, decision: str, reason: str, verdict: str) -> None:
    made = policy(forbid("context.session.untrusted", outcome=outcome))
    found = judged(made, view(untrusted=True))
    assert (found.outcome.word, found.reason.word, found.verdict.word) == (decision, reason, verdict)
    assert [finding.rule for finding in found.findings] == ["rule"]
    assert found.awaits == (("session:untrusted",) if outcome == "defer" else ())
    assert judged(made, view()).outcome.word == "allow"


def test_what_nothing_permits_is_denied_though_a_policy_would_hold_it() -> None:
    text = "- name: rule\n  outcome: defer\n  cedar: forbid(principal, action, resource);\n"
    assert judged(policy(text), view()).reason.word == "policy_denied"
    one = "- name: one\n  outcome: defer\n  cedar: |\n    permit(principal, action, resource);\n"
    found = judged(
        policy(one + "    forbid(principal, action, resource) when { context.session.calls < 1 };\n"), view()
    )
    assert (found.outcome.word, found.awaits) == ("require_approval", ("session:calls",))


def test_a_policy_that_asks_people_is_named_before_one_that_waits() -> None:
    made = policy(
        forbid("context.session.untrusted", outcome="defer")
        + "- name: people\n  outcome: require_approval\n  cedar: forbid(principal, action, resource);\n"
    )
    found = judged(made, view(untrusted=True))
    assert (found.reason.word, found.awaits) == ("approval_required", ())


SELECTED = [
    ("labels: [confidential, restricted]", view(labels=frozenset({"restricted"})), True),
    ("labels: [confidential]", view(labels=frozenset({"public"})), False),
    ("untrusted: true", view(untrusted=True), True),
    ("untrusted: false", view(untrusted=True), False),
    ('sources: "mail/*"', view(sources=frozenset({"mail/read"})), True),
    ("calls: 2", view(calls=2), True),
    ("calls: 3", view(calls=2), False),
    ("drift: 10", view(drift=10, words=read_words(["a"])), True),
    ('id: "s-*", denials: 1', view(denials=1), True),
    ('id: "t-*", denials: 1', view(denials=1), False),
]


@pytest.mark.parametrize(("select", "seen", "meets"), SELECTED, ids=[select for select, _, _ in SELECTED])
def test_a_selector_chooses_sessions(select: str, seen: SessionView, meets: bool) -> None:
    made = policy(f"- name: rule\n  select: {{session: {{{select}}}}}\n  deny: {{}}\n")
    assert judged(made, seen).outcome.word == ("block" if meets else "allow")
    assert judged(made, None).reason.word == "insufficient_evidence"


def test_a_selector_misses_a_session_only_where_its_policy_would_speak() -> None:
    made = policy("- name: rule\n  select: {tool: pay, session: {untrusted: true}}\n  deny: {required: [to]}\n")
    assert judged(made, None).outcome.word == "allow"
    assert judged(made, None, tool="pay").outcome.word == "allow"
    assert judged(made, None, tool="pay", to="x").missing == ("session:untrusted",)


def test_a_schema_that_defers_waits_for_other_arguments() -> None:
    text = "- name: rule\n  outcome: defer\n  schema: {properties: {cents: {maximum: 5}}}\n"
    found = judged(policy(text), None, cents=6)
    assert (found.reason.word, found.awaits) == ("deferred", ("evidence:/cents",))


WRONG = [
    ("context.session.lables.isEmpty()", "has no field `lables`", "did you mean `labels`?"),
    ('context.session == "s-1"', "is a record", "context.session.id"),
    ('context["session"] != "s-1"', "is a record", "context.session.id"),
    ('["a"].contains(context.session)', "is a record", "context.session.id"),
    ("context.session.calls == true && context.session.calls.contains(1)", "does not validate", ""),
    ("context has session && context.session has mood", "is never true", ""),
]


@pytest.mark.parametrize(("when", "message", "hint"), WRONG, ids=[when for when, _, _ in WRONG])
def test_what_a_session_does_not_have_is_found_when_it_is_compiled(when: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        policy(forbid(when))
    problem = next(one for one in raised.value.problems if message in one.message)
    assert (problem.pointer, problem.file, problem.line) == ("/policies/1/cedar", "aegis.yaml", 9)
    assert hint in problem.hint


@pytest.mark.parametrize("select", ["{lables: [public]}", "{labels: [secret]}", "{calls: 0}", "{}"])
def test_a_selector_that_says_nothing_is_refused(select: str) -> None:
    with pytest.raises(ConfigError):
        policy(f"- name: rule\n  select: {{session: {select}}}\n  deny: {{}}\n")


@pytest.mark.parametrize("when", ['labels.contains("secret")', 'effects.containsAny(["reed"])'])
def test_a_word_that_a_set_never_holds_is_refused(when: str) -> None:
    with pytest.raises(ConfigError, match="never holds"):
        policy(forbid(f"context.session.{when}"))


UNFILLED = [
    (forbid('context.session.labels.contains("public")'), "labels what is read here as `public`"),
    (forbid('context.session.sources.contains("read_inbx")'), "did you mean `read_inbox`?"),
    (forbid('context.session.tools.containsAny(["send", "read_inbox"])'), "no tool `send`"),
    ("- name: rule\n  select: {session: {labels: [public]}}\n  deny: {}\n", "`public`"),
    (forbid("context.session.untrusted").removeprefix(BASE), "every call is"),
]


@pytest.mark.parametrize(("policies", "message"), UNFILLED)
def test_what_nothing_fills_is_warned_of(policies: str, message: str) -> None:
    config = parse_config(f"version: 1\ntools: {{read_inbox: {{risk: low}}}}\npolicies:\n{policies}")
    found = unfilled(config)
    assert [one.line > 0 and message in f"{one.message} {one.hint}" for one in found] == [True]
    assert unfilled(parse_config(f"version: 1\npolicies:\n{forbid('context.session.untrusted')}")) == []
