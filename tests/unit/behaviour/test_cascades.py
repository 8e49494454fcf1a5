"""How far what was written goes: along documents, messages and opened sessions, never backwards."""

from __future__ import annotations

from benchmarks.cascades import infected_share

from aegis.behaviour.cascades import FlowSource, FlowStep, path_to, walk_flows

SOURCE = FlowSource("session", "a")


def step(
    session: str,
    *,
    reads: str = "",
    writes: str = "",
    to: str = "",
    opened_by: str = "",
    missions: tuple[str, ...] = (),
) -> FlowStep:
    return FlowStep(
        receipt=f"r-{session}",
        agent=f"agent-{session}",
        session=session,
        names=lambda: (frozenset(filter(None, (reads, writes))), frozenset(filter(None, (to,)))),
        writes=bool(writes or to),
        reads=bool(reads),
        opened_by=opened_by,
        missions=missions,
    )


def reached(*steps: FlowStep) -> list[str]:
    return list(walk_flows(steps, SOURCE))


def test_what_was_read_after_it_was_written_is_reached_and_the_way_is_told() -> None:
    found = walk_flows(
        (step("a", writes="/srv/plan"), step("b", reads="/srv/plan"), step("b", writes="/srv/next"),
         step("c", reads="/srv/next"), step("d", reads="/srv/other")),
        SOURCE,
    )  # fmt: skip
    assert list(found) == ["b", "c"]
    assert [(one.origin, one.by) for one in path_to("c", found)] == [
        ("a", "read `/srv/plan`"), ("b", "read `/srv/next`"),
    ]  # fmt: skip


def test_nothing_flows_backwards() -> None:
    assert reached(step("b", reads="/srv/plan"), step("a", writes="/srv/plan")) == []
    assert reached(step("b", writes="/x"), step("a", writes="/srv/plan"), step("b", reads="/srv/plan")) == ["b"]


def test_writing_over_a_document_reads_nothing_of_it() -> None:
    assert reached(step("a", writes="/srv/plan"), step("b", writes="/srv/plan")) == []


def test_messages_and_opened_sessions_are_ways() -> None:
    assert reached(step("a", to="agent-b"), step("b")) == ["b"]
    assert reached(step("b", opened_by="a"), step("c", opened_by="b")) == ["b", "c"]


def test_an_agent_is_a_source_by_its_name() -> None:
    found = walk_flows((step("a", writes="/srv/plan"), step("b", reads="/srv/plan")), FlowSource("agent", "agent-a"))
    assert list(found) == ["b"]


def test_what_was_delegated_is_reached_and_what_stands_above_or_beside_it_is_not() -> None:
    walked = (
        step("a", missions=("root", "left")), step("b", missions=("root", "left", "below")),
        step("c", missions=("root",)), step("d", missions=("root", "right")),
    )  # fmt: skip
    assert list(walk_flows(walked, SOURCE)) == ["b"]
    assert list(walk_flows((*walked, step("e", missions=("root", "left"))), FlowSource("mission", "left"))) == []


def test_who_writes_its_own_name_reaches_no_other_session_of_it() -> None:
    other = FlowStep(receipt="r", agent="agent-a", session="a2", reads=True)
    assert reached(step("a", writes="/x", to="agent-a"), other) == []


def test_holding_what_was_reached_keeps_four_of_five_agents_of_a_fleet_clean_that_would_not_be() -> None:
    without, with_it = infected_share(agents=50, runs=6, seed=1)
    assert with_it <= without * 0.2
