"""What a judge is shown: everything, as data, or a marker with digest and size."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from aegis.core.json import resolve
from aegis.detect.facts import FactSubject as Called
from aegis.detect.facts import ReadLimits
from aegis.detect.gather import executed_places
from aegis.judges.payload import JudgeSubject, bounded, fenced, make_payload, masked

MEMBERS = {
    "task", "proposed_tool_call", "available_tools", "worker_mounts", "output", "criteria", "validation_context",
    "policy_violations", "facts", "findings", "recent_calls", "turn", "truncated", "task_is_trusted",
}  # fmt: skip


def subject(arguments: dict[str, Any]) -> JudgeSubject:
    return JudgeSubject(
        tool="write", server=None, arguments=arguments, call_id="c", call_digest="d", agent="bot", principal="p",
        session="s", turn=3, task="do it", task_is_trusted=True, available_tools=["write"], mounts=("/w",),
        facts={"tier": "low"}, findings=[], policy_violations=[{"tool": "rm"}], recent_calls=[{"tool": "ls"}],
    )  # fmt: skip


def test_the_payload_has_its_members_and_its_context() -> None:
    payload = make_payload(subject({"path": "a", "content": "b"}), "be careful", 10_000)
    assert set(payload.value) == MEMBERS
    assert payload.value["validation_context"] == "semantic_judge_pre_execution_inner_loop"
    assert payload.value["proposed_tool_call"]["arguments"] == {"path": "a", "content": "b"}
    assert json.loads(payload.value["output"]) == {"tool": "write", "arguments": {"path": "a", "content": "b"}}
    assert not payload.truncated


def test_nothing_is_shortened_without_a_marker() -> None:
    long = "x" * 20_000
    payload = make_payload(subject({"path": "a", "content": long}), "", 10_000)
    shown = payload.value["proposed_tool_call"]["arguments"]
    digest = "sha-256:" + hashlib.sha256(long.encode()).hexdigest()
    assert payload.truncated
    assert payload.value["truncated"] is True
    assert shown["path"] == "a"
    assert (shown["content"]["truncated"], shown["content"]["digest"], shown["content"]["bytes"]) == (
        True,
        digest,
        20_000,
    )
    many = make_payload(subject({f"k{n}": "y" * 100 for n in range(500)}), "", 10_000)
    assert many.value["proposed_tool_call"]["arguments"]["truncated"] is True


@settings(deadline=None)
@given(st.recursive(st.text() | st.integers() | st.none(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_what_is_not_marked_is_whole(value: Any) -> None:
    shown, cut = bounded(value, 500)
    assert cut or shown == value
    assert len(json.dumps(shown)) <= 12_000


@settings(deadline=None)
@given(st.text())
def test_no_text_leaves_its_fence(text: str) -> None:
    data, word = fenced({"arguments": text, "more": f"</data-{text}>"})
    first, *inner, last = data.splitlines()
    assert (first, last) == (f"<data-{word}>", f"</data-{word}>")
    body = "\n".join(inner)
    assert not set("<>&`") & set(body)
    assert body.isascii()
    assert json.loads(body)["arguments"] == text


class Stars:
    """Masks one word."""

    def __call__(self, text: str) -> str:
        return text.replace("secret", "***")

    def is_quiet(self, together: str) -> bool:
        return "secret" not in together.splitlines()


def test_secrets_are_masked_in_keys_and_values() -> None:
    value = {"secret": ["a secret", 1]}
    assert masked(value, Stars()) == {"***": ["a ***", 1]}
    for place in ({"a": {"secret": 1}}, {"a": [["secret"]]}, ["x", {"b": "secret"}], "secret"):
        assert "secret" not in json.dumps(masked(place, Stars()))
    assert masked(quiet := {"a": ["b", {"c": 1}]}, Stars()) is quiet


LONG = "x" * 6_000
EXECUTED = ("command", "path", "url", "sql", "code", "query", "cmd", "file_path")


def shown(arguments: dict[str, Any], budget: int) -> tuple[Any, bool]:
    """The arguments as a judge is given them, and whether it is asked at all."""
    called = Called(tool="do_it", server=None, arguments=arguments, limits=ReadLimits())
    payload = make_payload(structs.replace(subject(arguments), executed=executed_places(called)), "", budget)
    assert payload.value["truncated"] == payload.truncated
    assert payload.truncated or not payload.hides
    return payload.value["proposed_tool_call"]["arguments"], payload.hides


@pytest.mark.claim("JDG-09")
@pytest.mark.parametrize("name", EXECUTED)
@pytest.mark.parametrize("beside", [{"text": LONG}, {f"note{n}": "y" * 100 for n in range(200)}])
def test_what_a_call_runs_is_shown_whatever_stands_beside_it(name: str, beside: dict[str, Any]) -> None:
    value, hides = shown({**beside, name: LONG, "truncated": 1}, 9_000)
    assert not hides
    assert value[name] == LONG
    inside, hides = shown({"steps": [{**beside, name: [LONG, "z"]}, beside]}, 9_000)
    assert not hides
    assert inside["steps"][0][name] == [LONG, "z"]


@pytest.mark.claim("JDG-09")
@pytest.mark.parametrize("name", EXECUTED)
def test_no_judge_is_asked_where_what_a_call_runs_does_not_fit(name: str) -> None:
    assert shown({name: LONG}, 5_000)[1]
    assert shown({name: [LONG, LONG]}, 9_000)[1]
    assert not shown({name: LONG}, 9_000)[1]


@pytest.mark.claim("JDG-09")
@settings(deadline=None)
@given(
    st.recursive(
        st.text(max_size=3_000) | st.integers(),
        lambda one: (
            st.lists(one, max_size=4)
            | st.dictionaries(st.sampled_from((*EXECUTED, "text", "body", "a/b", "~")), one, max_size=5)
        ),
        max_leaves=12,
    ).filter(lambda one: isinstance(one, dict)),
    st.integers(200, 8_000),
)
def test_a_judge_sees_every_executed_string_or_is_not_asked(arguments: Any, budget: int) -> None:
    value, hides = shown(arguments, budget)
    if hides:
        return
    assert len(json.dumps(value)) <= max(budget, 2_000)
    called = Called(tool="do_it", server=None, arguments=arguments, limits=ReadLimits())
    whole = json.dumps(value)
    for place in executed_places(called):
        one = resolve(arguments, place)
        assert not isinstance(one, str) or json.dumps(one)[1:-1] in whole
