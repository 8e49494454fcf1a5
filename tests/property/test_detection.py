"""Facts and content guards on anything that JSON can hold: no exception, bounded output, and no way down."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.finding import Finding
from aegis.core.outcome import Outcome
from aegis.core.principal import Principal
from aegis.detect import extract
from aegis.detect.facts import ReadLimits
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.views import MAX_VIEWS, expanded, may_have_views, views_of
from aegis.policy.guards.base import ResultCase
from aegis.policy.guards.content import MOST_FINDINGS, ContentGuard
from aegis.policy.guards.result import ResultContentGuard
from support.cases import read_case

SCANNER = Scanner(load(builtin_folder()), cache=default_cache_folder())
PRINCIPAL = Principal(id="p", roles=frozenset({"agent"}))
SPICE = st.sampled_from([
    "' or 1=1", "%2e%2e%2f", "$(", "`", "{{", "\u200b", "<script", "SELECT ", "rm -rf /", "\\x41", "&#60;", "/*",
    "\x00", "ignore all previous", "\ud800", "\U000e0041", "a" * 40, "http://2130706433/", "-----BEGIN",
    "eyJhbGciOiJub25lIn0.", "w'ho'ami", "char(39,", "``", "0x2e0x2e", "a b c d ", "69 67 6e ", "+", "$1x",
])  # fmt: skip
TEXT = st.one_of(st.text(max_size=200), st.lists(st.one_of(SPICE, st.text(max_size=8)), max_size=12).map("".join))
VALUE = st.recursive(
    st.one_of(TEXT, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXT, inner, max_size=5)),
    max_leaves=12,
)
NAMES = st.sampled_from(["command", "query", "path", "url", "body", "name", "code", "x"])


def judged(arguments: dict[str, Any], tool: str = "t") -> tuple[Finding, ...]:
    return ContentGuard(SCANNER).check(read_case(tool, arguments)).findings


def judged_result(result: dict[str, Any]) -> tuple[Finding, ...]:
    case = ResultCase(
        tool="t", server=None, result=result, texts=extract(result, ReadLimits()), principal=PRINCIPAL, agent="",
        session="", entry=None, now=0,
    )  # fmt: skip
    return ResultContentGuard(SCANNER).check_result(case).findings


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, VALUE, max_size=4), st.sampled_from(["bash", "run_sql", "send_email", "t"]))
def test_any_call_and_result_is_judged(arguments: dict[str, Any], tool: str) -> None:
    report = ContentGuard(SCANNER).check(read_case(tool, arguments))
    assert len(report.findings) <= MOST_FINDINGS
    assert report.outcome >= max((finding.outcome for finding in report.findings), default=Outcome.ALLOW)
    texts = extract(arguments, ReadLimits())
    result = ResultCase(
        tool=tool, server=None, result=arguments, texts=texts, principal=PRINCIPAL, agent="", session="", entry=None,
        now=0,
    )  # fmt: skip
    assert ResultContentGuard(SCANNER).check_result(result).guard == "content"


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_asking_first_whether_a_text_has_other_readings_loses_none(text: str) -> None:
    if not may_have_views(text):
        assert expanded(text) == []
    if text.isascii():
        assert views_of(text) == expanded(text)


@pytest.mark.parametrize("tool", ["redis_execute", "kubectl", "mongo", "write_note"])
@pytest.mark.parametrize("half", ["\ud800", "-\ud800x", "\ud800; rm -rf /etc"])
def test_half_of_a_character_is_read_as_a_question_mark(tool: str, half: str) -> None:
    def rules(text: str) -> list[str]:
        return [one.rule for one in judged({"kind": text, "namespace": [text, {text: text}], "count": 2**70}, tool)]

    assert rules(half) == rules(half.replace("\ud800", "?"))


@settings(max_examples=60, deadline=None)
@given(TEXT, st.integers(min_value=0, max_value=1_200))
def test_among_a_thousand_strings_one_is_judged_as_it_is_alone(text: str, place: int) -> None:
    filler = [f"row {number} of the list of rooms on the second floor" for number in range(1_200)]
    many = {"items": [*filler[:place], text, *filler[place:]]}
    found = {finding.rule for finding in judged({"items": [text]}) if finding.path == "/items/0"}
    found -= {"call-likely-dangerous"}  # which weighs all words of a call together
    assert {finding.rule for finding in judged(many) if finding.path == f"/items/{place}"} == found
    result = [finding.rule for finding in judged_result(many) if finding.path == f"/items/{place}"]
    assert set(result) == {finding.rule for finding in judged_result({"items": [text]})}


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_readings_are_bounded_and_differ(text: str) -> None:
    values = [value for value, _ in views_of(text)]
    assert len(values) <= MAX_VIEWS
    assert len(set(values)) == len(values)
    assert text not in values
