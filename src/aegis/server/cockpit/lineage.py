"""Missions as a graph of who delegated to whom: places and lines for inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOST: Final = 60  # missions of one graph: more are told by their number
WIDTH: Final = 190
HEIGHT: Final = 38
GAP_X: Final = 40
GAP_Y: Final = 12
_LABEL: Final = 22  # characters that fit into a box


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """One mission; `state` is its standing where it is known, and `x`, `y` its upper left corner."""

    mission: str
    label: str
    under: str
    state: str
    x: int
    y: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """Boxes, and the lines between them as paths; `told` says the same in words."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    told: str
    more: int


def graph(
    lineages: Iterable[Sequence[str]], names: Mapping[str, str], states: Mapping[str, str], agents: Mapping[str, str]
) -> Graph | None:
    """The graph of lines of delegation, each from its root on; `None` where nothing was delegated."""
    above: dict[str, str] = {}
    for line in lineages:
        for at, mission in enumerate(line):
            above.setdefault(mission, line[at - 1] if at else "")
    if not any(above.values()):
        return None
    below: dict[str, list[str]] = {}
    for mission, parent in above.items():
        below.setdefault(parent, []).append(mission)
    boxes: dict[str, Box] = {}
    row = 0
    waiting = [(mission, 0) for mission in reversed(below.get("", []))]
    while waiting and len(boxes) < MOST:
        mission, depth = waiting.pop()
        # The first of those below stands beside the one above, the others in rows of their own.
        over = boxes.get(above[mission])
        beside = over is not None and below[above[mission]][0] == mission
        y = over.y if over is not None and beside else row * (HEIGHT + GAP_Y)
        row = max(row, y // (HEIGHT + GAP_Y) + 1)
        boxes[mission] = Box(
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


def _line(parent: Box, box: Box) -> str:
    """A line with one corner, from the right of a box to the left of another."""
    start, middle, stop = parent.x + WIDTH, parent.x + WIDTH + GAP_X // 2, box.x
    return f"M{start} {parent.y + HEIGHT // 2}H{middle}V{box.y + HEIGHT // 2}H{stop}"


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
