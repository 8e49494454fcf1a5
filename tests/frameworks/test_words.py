"""The user's words of a session: which ways of a framework bring them, and that nothing else is taken for them."""

from __future__ import annotations

import pytest

from aegis.cli.demo.provider import Turn
from aegis.enforce.scope import Session, session_context
from frameworks.conftest import framework
from frameworks.model import MAIL, READ, Way, agent, hooked
from support.worlds import scripted

SAID = "go"  # what every driver has its user say


def turns_of(way: Way, session: Session | None) -> list[tuple[str, str]]:
    decider = scripted()
    under_test = framework()
    turns = (Turn(text="let me", calls=(MAIL, READ)), Turn(text="done"))
    with hooked(under_test, decider), agent(under_test, way, *turns) as world:
        if session is None:
            way.drive(world)
        else:
            with session_context(session):
                way.drive(world)
    return [(name, text) for name, text, _, _ in decider.turns]


def test_the_users_words_arrive_once_and_nothing_else_does(way: Way) -> None:
    heard = turns_of(way, Session(name="s-1"))
    assert heard == ([("s-1", SAID)] if framework().hears(way) else [])


def test_nobody_is_told_words_without_a_session(way: Way) -> None:
    assert turns_of(way, None) == []


def test_words_that_opened_the_session_are_not_said_again(way: Way) -> None:
    if not framework().hears(way):
        pytest.skip("no words arrive over this way")
    assert turns_of(way, Session(name="s-1", task=SAID)) == []
