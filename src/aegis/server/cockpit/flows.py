"""Data flow of a session: which calls read data of a class, and where a call would have sent it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aegis.core.ports import Reader
from aegis.errors import InvalidCall
from aegis.guards.mission_view import CompiledMission, compile_mission
from aegis.missions.jws import IssuerFor
from aegis.missions.registry import load_lineage

MOST: Final = 20  # missions of one session whose classes are looked up
_RULE: Final = "flow-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """What one call has to do with classes of data.

    `classes` are those that its tool reads or sends to; `refused` are the pairs (from, to) that were not let
    through, and `readers` the receipts (with their places) of earlier calls that had read what would have flowed.
    """

    classes: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    readers: tuple[tuple[str, int], ...] = ()


def flows(reader: Reader, receipts: Sequence[Mapping[str, Any]], issuer_for: IssuerFor) -> dict[str, Flow]:
    """The flows of a session's receipts, oldest first, by receipt; calls without any are left out."""
    compiled: dict[str, Sequence[CompiledMission]] = {}
    read: dict[str, list[tuple[str, int]]] = {}
    found: dict[str, Flow] = {}
    for receipt in receipts:
        mission = receipt.get("mission_id", "")
        if receipt["kind"] != "decision" or not mission:
            continue
        if mission not in compiled and len(compiled) < MOST:
            compiled[mission] = _compiled(reader, mission, issuer_for)
        lineage = compiled.get(mission, ())
        names = {name for one in lineage for name in one.classes_of(receipt.get("server"), receipt.get("tool", ""))}
        refused = _refused(receipt, {name for one in lineage for name, _ in one.classes})
        if not names and not refused:
            continue
        readers = [one for source, _ in refused for one in read.get(source, ())]
        found[receipt["receipt_id"]] = Flow(
            classes=tuple(sorted(names)), refused=tuple(refused), readers=tuple(dict.fromkeys(readers))
        )
        if receipt.get("decision") in ("allow", "sanitize"):
            for name in names:
                read.setdefault(name, []).append((receipt["receipt_id"], receipt["index"]))
    return found


def _compiled(reader: Reader, mission: str, issuer_for: IssuerFor) -> Sequence[CompiledMission]:
    try:
        return [compile_mission(one) for one in load_lineage(reader, mission, issuer_for)[0]]
    except (InvalidCall, ValueError):  # a mission that does not hold any more names no classes
        return ()


def _refused(receipt: Mapping[str, Any], known: set[str]) -> list[tuple[str, str]]:
    """The pairs of classes in the rules of the flow guard; class names may hold hyphens themselves."""
    rules = {rule for guard in receipt.get("guards", ()) if guard["guard"] == "flow" for rule in guard["rules"]}
    return sorted(
        (source, sink) for source in known for sink in known if f"{_RULE}{source}-{sink}" in rules and source != sink
    )
