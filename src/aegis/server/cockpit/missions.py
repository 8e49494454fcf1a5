"""Missions beside agents: what each is for, what it has left, and the way to suspend, resume or end it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.core.mission import Declaration
from aegis.core.ports import Reader
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.missions import ledgers, registry
from aegis.server.cockpit.ask import ask
from aegis.server.cockpit.lineage import Graph, graph
from aegis.server.cockpit.page import Visit
from aegis.server.services import Services

LISTED: Final = 100  # missions on one page, and accounts of one mission
WATCHED: Final = 1_000  # active missions whose budgets alerts look at
_MOVES: Final = {"suspend": "suspendMission", "resume": "resumeMission", "revoke": "revokeMission"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
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


async def rows(visit: Visit) -> list[dict[str, Any]]:
    """The missions, each with its budgets as bars."""
    return await asyncio.to_thread(_rows, visit.services)


def near_end(services: Services, percent: int) -> list[str]:
    """The budgets of active missions of which so much is used: mission and dimension, in words."""
    return [
        f"`{bar.name}` of the mission {row['id']}"
        for row in _rows(services, state="active", limit=WATCHED)
        if row["state"] == "active"
        for bar in row["bars"]
        if bar.share >= percent
    ]


def graph_of(known: Sequence[Mapping[str, Any]], lineages: Iterable[Sequence[str]]) -> Graph | None:
    """Lines of delegation as a graph; `known` are the rows by which missions get words."""
    declared = {row["id"]: row["declared"] for row in known if row["declared"] is not None}
    return graph(
        lineages,
        {mission: own.purpose for mission, own in declared.items()},
        {row["id"]: row["state"] for row in known},
        {mission: own.sub for mission, own in declared.items()},
    )


async def move(visit: Visit) -> Response:
    """Suspend a mission, let it go on, or end it and everything below it."""
    operation = _MOVES.get(visit.form.get("to", ""))
    if operation is None:
        raise InvalidCall("a mission is suspended, resumed or revoked, and nothing else")
    body = {"reason": visit.form.get("reason", "").strip()}
    await ask(visit, operation, path={"id": visit.names["id"]}, body=body)
    return RedirectResponse("/agents#missions", 303)


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
