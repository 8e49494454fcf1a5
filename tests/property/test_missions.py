"""What holds of missions whatever they say: attenuation, patterns, canonical paths, sequence windows."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from aegis.core.names import Pattern, covers, matches, overlap
from aegis.core.outcome import Effect, Outcome
from aegis.core.principal import Principal
from aegis.detect.facts import Facts, Text, Texts
from aegis.detect.touch import paths
from aegis.detect.touch.touch import touch
from aegis.errors import MissionInvalid
from aegis.missions.attenuate import check_attenuation
from aegis.missions.declare import read_declaration, to_claims
from aegis.missions.holder import Window
from aegis.policy.guards.base import Case, ToolEntry
from aegis.policy.guards.budget import BudgetGuard, cost_of
from aegis.policy.guards.mission import MissionGuard
from aegis.policy.mission import Balance, MissionView, compile_mission
from support.missions import declaration

SEGMENT = st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "**"])
NAME = st.lists(st.sampled_from(["a", "b", "ab", "aab", ""]), max_size=4)
PATTERN = st.builds(lambda parts: Pattern(tuple(parts), literal=False), st.lists(SEGMENT, min_size=1, max_size=4))
NOW = int(time.time())


@given(PATTERN, PATTERN, NAME)
def test_a_covered_pattern_matches_nothing_else(outer: Pattern, inner: Pattern, name: list[str]) -> None:
    if covers(outer, inner) and matches(inner, name):
        assert matches(outer, name)


@given(PATTERN, PATTERN, NAME)
def test_two_patterns_that_match_one_name_overlap(one: Pattern, other: Pattern, name: list[str]) -> None:
    if matches(one, name) and matches(other, name):
        assert overlap(one, other) and overlap(other, one)


def missions() -> st.SearchStrategy[dict[str, Any]]:
    tools = st.lists(st.sampled_from(["read", "write", "read*", "*", "s/read", "s/*"]), max_size=3)
    entries = st.lists(
        st.sampled_from(["glob:/ws/**", "glob:/ws/a/*", "exact:/ws/a/b", "glob:/**", "glob:/ws/*"]), max_size=2
    )
    effects = st.lists(st.sampled_from(["read", "write", "network"]), max_size=3, unique=True)
    ceiling = st.one_of(st.just({}), st.builds(lambda calls: {"calls": calls}, st.integers(0, 3)))
    return st.fixed_dictionaries(
        {
            "tools": st.fixed_dictionaries({"allow": tools, "forbid": tools}),
            "scope": st.fixed_dictionaries({"paths": entries}),
            "effects": effects,
            "budgets": ceiling,
        }
    )


def allows(members: dict[str, Any], call: tuple[str, str | None, str, Effect, int]) -> bool:
    tool, server, path, effect, used = call
    compiled = compile_mission(members["declared"])
    texts = (Text("/path", path),)
    entry = ToolEntry(name=tool, effects=frozenset({effect}))
    facts = Facts(texts=Texts(strings=texts))
    touched = touch({"path": path}, texts, sends=False)
    case = Case(
        tool=tool,
        server=server,
        arguments={"path": path},
        principal=Principal(id="p", roles=frozenset({"agent"})),
        agent="bot",
        session="s",
        call_id="c",
        entry=entry,
        facts=facts,
        tier=entry.risk,
        irreversible=False,
        effects=frozenset({effect}),
        now=NOW * 1_000_000,
        mission=MissionView(
            lineage=(compiled,),
            status="active",
            opened_at=NOW * 1_000_000,
            balances=(Balance(name="m", ceilings=members["declared"].budgets.ceilings(), used={"calls": used}),),
        ),
        touched=touched,
        cost=cost_of(effects=[effect], size=0, irreversible=False, touched=touched, quote=None),
    )
    reports = (MissionGuard().check(case), BudgetGuard().check(case))
    return all(report.outcome is Outcome.ALLOW and not report.missing for report in reports)


CALL = st.tuples(
    st.sampled_from(["read", "write", "reader", "READ"]),
    st.sampled_from([None, "s", "t"]),
    st.sampled_from(["/ws/a/b", "/ws/a", "/ws/x/y", "/etc/x", "/ws/../etc", "/ws/a/%2e%2e/c", "/ws"]),
    st.sampled_from(["read", "write", "network"]),
    st.integers(0, 3),
)


@settings(max_examples=400)
@given(missions(), missions(), st.lists(CALL, min_size=1, max_size=6))
def test_what_an_attenuated_child_allows_its_parent_allows(
    above: dict[str, Any], below: dict[str, Any], calls: list[Any]
) -> None:
    parent = declaration(**above, delegation={"depth": 1, "subjects": ["bot"]})
    ours = {"parent": "m-1", "mission_id": "m-2", "jti": "j-2", "iat": parent.iat, "exp": parent.exp}
    child = declaration(**{**below, **ours})
    try:
        check_attenuation(parent, child)
    except MissionInvalid:
        return
    for call in calls:
        if allows({"declared": child}, call):
            assert allows({"declared": parent}, call)


@example("\\\\C:")
@example("///c:/a")
@given(st.text(alphabet="/.\\%2eEfF~ cC:a．／", min_size=1, max_size=24))
def test_canonical_paths_hold_nothing_left_to_resolve(text: str) -> None:
    for name in paths.readings(text) or ():
        assert "" not in name and "." not in name
        climbs = [part for part in name if part == ".."]
        if name[:1] == ("/",):
            assert not climbs
            again = paths.readings("/" + "/".join(name[1:]))
            assert again is None or name in again


def test_a_letter_of_another_script_is_no_drive() -> None:
    assert paths.readings("/é:/secret", "/ws") == frozenset({("/", "é:", "secret")})


@given(st.text(max_size=40), st.sampled_from(["/ws", "/"]))
def test_reading_any_text_as_a_path_never_raises(text: str, base: str) -> None:
    paths.readings(text, base)


@given(st.lists(st.integers(1, 3_000), max_size=60))
def test_a_sequence_number_is_used_at_most_once(numbers: list[int]) -> None:
    window, used = Window(), set()
    for number in numbers:
        if not window.is_used(number):
            assert number not in used
            used.add(number)
            window = window.using(number)
        assert window.is_used(number)


@given(missions())
def test_a_mission_reads_back_as_itself(members: dict[str, Any]) -> None:
    declared = declaration(**members)
    assert read_declaration(to_claims(declared)) == declared
