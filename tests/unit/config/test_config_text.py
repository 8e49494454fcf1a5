"""The configuration as text with one thing more: in place where its shape is plain, written anew otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aegis.config.document import dump, plain, read
from aegis.config.text import with_exception, with_policy

POLICY: dict[str, Any] = {"name": "p", "deny": {"const": "off"}, "outcome": "block"}
EXCEPTION = {"rule": "sql-executed", "tool": "query_db", "reason": "a report", "expires": "2027-01-31"}
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=12) | st.sampled_from(
    ["off", "no", "1e3", "09", "0x1f", "~", "null", "Null", "1_000", "012", "2027-01-31", "=", "<<", "- a", "a: b", " "]
)  # fmt: skip
KEYS = st.text(min_size=1, max_size=8)
VALUES = st.recursive(SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS, below), max_leaves=12)


def parsed(text: str) -> Any:
    return plain(read(text, file="aegis.yaml"))


@pytest.mark.parametrize("flow", [False, True])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=st.dictionaries(KEYS, VALUES, min_size=1))
def test_what_is_written_is_read_as_it_was(value: dict[str, Any], flow: bool) -> None:
    assert parsed(dump(value, flow=flow)) == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("version: 1 # the first\n", id="none"),
        pytest.param("version: 1 # the first\npolicies: []\n", id="an empty list"),
        pytest.param("version: 1 # the first\npolicies:\n", id="no value"),
        pytest.param("version: 1 # the first\npolicies:\n- {name: a, deny: {}}\n", id="a list at the margin"),
        pytest.param("version: 1 # the first\npolicies:\n    - {name: a, deny: {}}\nrules: []\n", id="a list indented"),
    ],
)
def test_a_policy_goes_in_front_and_leaves_every_other_line_as_it_was(text: str) -> None:
    before = parsed(text)
    edited = with_policy(text, POLICY)
    assert "# the first" in edited
    assert parsed(edited) == {**before, "policies": [POLICY, *(before.get("policies") or [])]}


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\npolicies: [{name: a, deny: {}}]\nguards: {cedar: {mode: off}}\n",
        "version: 1\nguards: {cedar: {mode: off}}\npolicies:\n\n  - {name: a, deny: {}}\n",
    ],
)
def test_a_text_of_another_shape_is_written_anew_and_means_the_same(text: str) -> None:
    before = parsed(text)
    assert parsed(with_policy(text, POLICY)) == {**before, "policies": [POLICY, *before["policies"]]}


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\n",
        "version: 1\nguards: {content: {mode: enforce}, cedar: {mode: off}}\n",
        "version: 1\nguards:\n  content:\n    exceptions:\n      - {rule: a, reason: b}\n  cedar: {mode: off}\n",
    ],
)
def test_an_exception_is_added_and_a_switch_that_is_off_stays_a_word(text: str) -> None:
    before, after = parsed(text), parsed(with_exception(text, EXCEPTION))
    assert after["guards"]["content"]["exceptions"][0] == EXCEPTION
    assert after["guards"].get("cedar") == before.get("guards", {}).get("cedar")
