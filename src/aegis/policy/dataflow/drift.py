"""How far a call is from what the user asked for, given the run so far: 0 to 100, by counting alone.

Three parts are added: how little the words license the call, how many of the session's acting calls they did not
license, and whether its tool deals with things that nobody has named yet. One stray call alarms; several hold.
"""

from __future__ import annotations

from typing import Final

from aegis.policy.dataflow.declare import name_words, objects_of
from aegis.policy.dataflow.judge import FlowCall, licence_of
from aegis.policy.dataflow.reading import SessionView, Stray
from aegis.policy.dataflow.words import same_things, stem

MAX_DRIFT: Final = 100
_OF_LICENCE, _OF_SHARE, _OF_THINGS = 60, 30, 10  # what the parts add at most
_OF_READING: Final = 24  # the same of the licence of a call that only reads
_BEFORE: Final = 4  # licensed acting calls that every session is taken to begin with


def stray_of(call: FlowCall, view: SessionView) -> Stray | None:
    """The drift of a call, and whether it acts unlicensed; `None` while no words of a user are known."""
    words = view.words
    if words is None:
        return None
    licence = 0.0 if any(grant.does == call.does for grant in view.grants) else licence_of(call, words)
    reads = call.does == "read" and not call.leaves
    is_stray = not reads and licence > 0
    acting, strays = view.acting + (not reads), view.strays + is_stray
    drift = licence * (_OF_READING if reads else _OF_LICENCE)
    if licence > 0:
        drift += _OF_SHARE * strays / (acting + _BEFORE)
        drift += _OF_THINGS * _is_new(call.tool, view)
    view.stray = Stray(drift=min(MAX_DRIFT, round(drift)), acts=not reads, strays=is_stray)
    return view.stray


def _is_new(tool: str, view: SessionView) -> bool:
    """Whether a tool deals with things that neither the user nor an earlier call of the session named."""
    things = frozenset(stem(word) for word in objects_of(tool))
    known = frozenset() if view.words is None else view.words.said
    if not things.isdisjoint(known) or not same_things(tuple(things)).isdisjoint(known):
        return False
    return not any(
        things & {stem(word) for word in name_words(earlier.rpartition("/")[2])} for earlier in sorted(view.tools)[:64]
    )
