"""How far a call is from what the user asked for, given the run so far: 0 to 100, by counting alone.

Three parts are added: how little the words license the call, how many of the session's acting calls they did not
license, and whether its tool deals with things that nobody has named yet. One stray call alarms; several hold. Where a
session holds what an embedding model made of its tools' names, a call is at least as far as that says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aegis.policy.dataflow.declare import does_of, name_words, objects_of
from aegis.policy.dataflow.licence import FlowCall, licence_of
from aegis.policy.dataflow.reading import SessionView, Stray
from aegis.policy.dataflow.words import same_things, stem

MAX_DRIFT: Final = 100
_OF_LICENCE, _OF_SHARE, _OF_THINGS = 60, 30, 10  # what the parts add at most
_OF_READING: Final = 24  # the same of the licence of a call that only reads
_BEFORE: Final = 4  # licensed acting calls that every session is taken to begin with


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingEndpoint:
    """An embedding model behind `url`, and between which likenesses (cosines) a tool is asked for or far from it.

    `key` is a reference that is read when it is used; `private` lets it lie at a private address.
    """

    url: str
    model: str
    near: float
    far: float
    seconds: int
    private: bool = False
    key: str = field(default="", repr=False)

    def distance(self, likeness: float) -> int:
        """How far a tool is from the words, 0 from `near` on to 100 at `far` and below."""
        return round(100 * min(1.0, max(0.0, (self.near - likeness) / (self.near - self.far))))


def tool_text(tool: str) -> str:
    """What a tool is called, in the words of its name without its server; the same for everybody who measures it."""
    return " ".join(name_words(tool.rpartition("/")[2]))


def drift_of(text: str, distance: int) -> int:
    """The drift of calls of a tool that is called `text` by its measured distance alone."""
    return distance * (_OF_READING if does_of(text) == "read" else _OF_LICENCE) // 100


def stray_of(call: FlowCall, view: SessionView) -> Stray | None:
    """The drift of a call, and whether it acts unlicensed; `None` while no words of a user are known."""
    words = view.words
    if words is None:
        return None
    licence = 0.0
    if not view.grants_deed(call.does, call.tool):
        licence = max(licence_of(call, words), view.measured.get(tool_text(call.tool), 0) / 100)
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
