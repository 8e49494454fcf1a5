"""Attenuation: a delegated mission is at most its parent, in every dimension.

Every check is conservative: what cannot be shown to be included is refused. The refusal names the
dimension, so that whoever asked knows what to narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from aegis.core.mission import KINDS, Budgets, Declaration, Flow, stricter
from aegis.core.names import Pattern, Selector, covers, normalise_name
from aegis.detect.touch.touch import compile_entry
from aegis.errors import MissionInvalid


def check_attenuation(parent: Declaration, child: Declaration) -> None:
    """Guarantee that `child` may do nothing that `parent` may not; raises `MissionInvalid` naming the dimension."""
    for dimension, holds in _DIMENSIONS:
        if not holds(parent, child):
            message = f"the delegated mission goes beyond its parent in `{dimension}`"
            raise MissionInvalid(message, member=dimension, code="attenuation", hint=_HINTS.get(dimension, ""))


def selector_covers(outer: str, inner: str) -> bool:
    """Whether every tool that `inner` selects is selected by `outer`."""
    one, other = Selector(outer), Selector(inner)
    if one.server is not None and (other.server is None or not covers(_pattern(one.server), _pattern(other.server))):
        return False
    return covers(_pattern(one.tool), _pattern(other.tool))


def _pattern(text: str) -> Pattern:
    return Pattern((text,), "*" not in text)


def _each_covered(outer: Iterable[str], inner: Iterable[str]) -> bool:
    return all(any(selector_covers(one, other) for one in outer) for other in inner)


def _identity(parent: Declaration, child: Declaration) -> bool:
    return child.parent == parent.mission_id and child.mission_id != parent.mission_id


def _audience(parent: Declaration, child: Declaration) -> bool:
    return child.aud == parent.aud


def _subject(parent: Declaration, child: Declaration) -> bool:
    return any(
        covers(_pattern(normalise_name(one)), Pattern((normalise_name(child.sub),), True))
        for one in parent.delegation.subjects
    )


def _depth(parent: Declaration, child: Declaration) -> bool:
    return child.delegation.depth < parent.delegation.depth


def _subjects(parent: Declaration, child: Declaration) -> bool:
    return _each_covered(parent.delegation.subjects, child.delegation.subjects)


def _time(parent: Declaration, child: Declaration) -> bool:
    return parent.iat <= child.iat and child.exp <= parent.exp


def _tools(parent: Declaration, child: Declaration) -> bool:
    return _each_covered(parent.tools.allow, child.tools.allow)


def _denials(parent: Declaration, child: Declaration) -> bool:
    """What the parent forbids stays forbidden."""
    if not _each_covered(child.tools.forbid, parent.tools.forbid):
        return False
    for kind in KINDS:
        kept = [compile_entry(kind, entry, child.scope.base) for entry in child.forbidden_scope.of(kind)]
        for entry in parent.forbidden_scope.of(kind):
            if not any(covers(one, compile_entry(kind, entry, parent.scope.base)) for one in kept):
                return False
    return parent.max_denials is None or (child.max_denials is not None and child.max_denials <= parent.max_denials)


def _effects(parent: Declaration, child: Declaration) -> bool:
    return set(child.effects) <= set(parent.effects)


def _scope(parent: Declaration, child: Declaration) -> bool:
    # Relative paths must mean the same files to both.
    if child.scope.base != parent.scope.base:
        return False
    for kind in KINDS:
        outer = [compile_entry(kind, entry, parent.scope.base) for entry in parent.scope.of(kind)]
        for entry in child.scope.of(kind):
            if not any(covers(one, compile_entry(kind, entry, child.scope.base)) for one in outer):
                return False
    return True


def _budgets(parent: Declaration, child: Declaration) -> bool:
    return all(
        _within(outer, inner)
        for outer, inner in (
            (parent.budgets, child.budgets),
            (parent.session_budgets, child.session_budgets),
            (parent.agent_budgets, child.agent_budgets),
        )
    )


def _within(outer: Budgets, inner: Budgets) -> bool:
    ceilings = inner.ceilings()
    if any(ceilings.get(name, value + 1) > value for name, value in outer.ceilings().items()):
        return False
    return outer.seconds is None or (inner.seconds is not None and inner.seconds <= outer.seconds)


def _flow(parent: Declaration, child: Declaration) -> bool:
    return parent.flow == Flow() or parent.flow == child.flow


def _evidence(parent: Declaration, child: Declaration) -> bool:
    return (
        set(parent.evidence) <= set(child.evidence)
        and (parent.tool_manifest is None or child.tool_manifest == parent.tool_manifest)
        and (parent.cnf is None or child.cnf is not None)
        and (parent.revocation is None or child.revocation == parent.revocation)
        and stricter(parent.insufficient_evidence, child.insufficient_evidence) == child.insufficient_evidence
    )


def _postconditions(parent: Declaration, child: Declaration) -> bool:
    return set(parent.postconditions) <= set(child.postconditions)


def _mode(parent: Declaration, child: Declaration) -> bool:
    return parent.mode == "attest" or child.mode == "enforce"


_DIMENSIONS: tuple[tuple[str, Callable[[Declaration, Declaration], bool]], ...] = (
    ("parent", _identity),
    ("aud", _audience),
    ("delegation.depth", _depth),
    ("sub", _subject),
    ("delegation.subjects", _subjects),
    ("exp", _time),
    ("tools", _tools),
    ("denials", _denials),
    ("effects", _effects),
    ("scope", _scope),
    ("budgets", _budgets),
    ("flow", _flow),
    ("evidence", _evidence),
    ("postconditions", _postconditions),
    ("mode", _mode),
)
# What a dimension means, where it is more than the member of its name.
_HINTS: Final = {
    "sub": "`delegation.subjects` of the parent names who may be sent",
    "exp": "the child begins no earlier and ends no later than its parent",
    "denials": "repeat what the parent says in `tools.forbid`, `forbidden_scope` and `max_denials`, or say more",
    "scope": "every entry lies inside of one of the parent's, below the same `scope.base`",
    "budgets": "every ceiling of the parent is there, and none is higher",
    "evidence": "`evidence`, `tool_manifest`, `cnf`, `revocation` and `insufficient_evidence` ask for as much",
    "postconditions": "every condition of the parent is there, word for word",
}
