"""Missions as a graph of who delegated to whom: places and lines for inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from aegis.core.mission import Declaration
from aegis.core.ports import Reader
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.missions import ledgers, registry
from aegis.server.services import Services

MOST: Final = 60  # missions of one graph: more are told by their number
WIDTH: Final = 190
HEIGHT: Final = 38
GAP_X: Final = 40
GAP_Y: Final = 12
_LABEL: Final = 22  # characters that fit into a box


class GraphBox(Struct, frozen=True, kw_only=True):
    """One mission; `state` is its standing where it is known, and `x`, `y` its upper left corner."""

    mission: str
    label: str
    under: str
    state: str
    x: int
    y: int


class Graph(Struct, frozen=True, kw_only=True):
    """Boxes, and the lines between them as paths; `told` says the same in words."""

    width: int
    height: int
    boxes: tuple[GraphBox, ...]
    lines: tuple[str, ...]
    told: str
    more: int


def graph(
    lineages: Iterable[Sequence[str]], names: Mapping[str, str], states: Mapping[str, str], agents: Mapping[str, str]
) -> Graph | None:
    """Return the graph of lines of delegation, each from its root on; `None` where nothing was delegated."""
    above: dict[str, str] = {}
    for line in lineages:
        for at, mission in enumerate(line):
            above.setdefault(mission, line[at - 1] if at else "")
    if not any(above.values()):
        return None
    below: dict[str, list[str]] = {}
    for mission, parent in above.items():
        below.setdefault(parent, []).append(mission)
    boxes: dict[str, GraphBox] = {}
    row = 0
    waiting = [(mission, 0) for mission in reversed(below.get("", []))]
    while waiting and len(boxes) < MOST:
        mission, depth = waiting.pop()
        # The first of those below stands beside the one above, the others in rows of their own.
        over = boxes.get(above[mission])
        beside = over is not None and below[above[mission]][0] == mission
        y = over.y if over is not None and beside else row * (HEIGHT + GAP_Y)
        row = max(row, y // (HEIGHT + GAP_Y) + 1)
        boxes[mission] = GraphBox(
            mission=mission,
            label=_cut(names.get(mission) or mission),
            under=_cut(agents.get(mission, "")),
            state=states.get(mission, ""),
            x=depth * (WIDTH + GAP_X),
            y=y,
        )
        waiting.extend((one, depth + 1) for one in reversed(below.get(mission, [])))
    pairs = [(boxes[above[one]], box) for one, box in boxes.items() if above[one] in boxes]
    return Graph(
        width=max(box.x for box in boxes.values()) + WIDTH,
        height=row * (HEIGHT + GAP_Y) - GAP_Y,
        boxes=tuple(boxes.values()),
        lines=tuple(_line(parent, box) for parent, box in pairs),
        told="; ".join(f"{parent.label} delegated to {box.label}" for parent, box in pairs),
        more=len(above) - len(boxes),
    )


def _line(parent: GraphBox, box: GraphBox) -> str:
    """Return a line with one corner, from the right of a box to the left of another."""
    start, middle, stop = parent.x + WIDTH, parent.x + WIDTH + GAP_X // 2, box.x
    return f"M{start} {parent.y + HEIGHT // 2}H{middle}V{box.y + HEIGHT // 2}H{stop}"


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


LISTED: Final = 100  # missions on one page, and accounts of one mission
WATCHED: Final = 1_000  # active missions whose budgets alerts look at


class Bar(Struct, frozen=True, kw_only=True):
    """One ceiling: how much of it is used, by whom (empty: by all), as a share of a hundred."""

    name: str
    who: str
    used: int
    limit: int
    share: float

    @property
    def level(self) -> str:
        """How near its end it is."""
        return "full" if self.share >= 100 else "warn" if self.share >= 80 else ""


def near_end(services: Services, percent: int) -> list[str]:
    """Return the budgets of active missions of which so much is used: mission and dimension, in words."""
    return [
        f"`{bar.name}` of the mission {row['id']}"
        for row in _rows(services, state="active", limit=WATCHED)
        if row["state"] == "active"
        for bar in row["bars"]
        if bar.share >= percent
    ]


def graph_of(known: Sequence[Mapping[str, Any]], lineages: Iterable[Sequence[str]]) -> Graph | None:
    """Return lines of delegation as a graph; `known` are the rows by which missions get words."""
    declared = {row["id"]: row["declared"] for row in known if row["declared"] is not None}
    return graph(
        lineages,
        {mission: own.purpose for mission, own in declared.items()},
        {row["id"]: row["state"] for row in known},
        {mission: own.sub for mission, own in declared.items()},
    )


def _rows(services: Services, *, state: str = "", limit: int = LISTED) -> list[dict[str, Any]]:
    found = []
    with services.store.reader() as reader:
        keys = services.gate.missions.trusted(reader, services.policy.current)
        for document in reader.documents(registry.COLLECTION, state=state, limit=limit):
            row: dict[str, Any] = {"id": document.key, "state": document.state, "declared": None, "bars": ()}
            try:
                lineage, row["state"] = registry.load_lineage(reader, document.key, keys)
            except InvalidCall as problem:  # a token that does not hold any more is shown as that
                row["problem"] = problem.message
            else:
                own = lineage[-1]
                row |= {
                    "declared": own,
                    "expires": rfc3339(own.exp * MICROS),
                    "above": [one.mission_id for one in lineage[:-1]],
                    "bars": _bars(reader, own),
                }
            found.append(row)
    return found


def _bars(reader: Reader, own: Declaration) -> list[Bar]:
    ceilings = ledgers.ceilings_of((own,))[0]
    bars = _of(reader, own.mission_id, ceilings.over_all, "")
    prefix = f"{own.mission_id}\n"
    for document in reader.documents(ledgers.COLLECTION, after=prefix, limit=LISTED):
        if not document.key.startswith(prefix):
            break
        who = document.key.removeprefix(prefix).split("\n")
        bars += _of(reader, document.key, ceilings.of_session if len(who) > 1 else ceilings.of_agent, " ".join(who))
    return bars


def _of(reader: Reader, name: str, ceilings: Any, who: str) -> list[Bar]:
    used = ledgers.read(reader, name).used() if ceilings else {}
    return [
        Bar(
            name=dimension,
            who=who,
            used=used.get(dimension, 0),
            limit=limit,
            share=round(min(100.0, 100 * used.get(dimension, 0) / limit), 1) if limit else 100.0,
        )
        for dimension, limit in ceilings.items()
    ]
