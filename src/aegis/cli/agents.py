"""`aegis agents`: which agents there are, and the switch that stops one before its next call."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import typer

from aegis.cli.options import taking
from aegis.cli.output import columns, show_list, show_members
from aegis.cli.remote import Anywhere
from aegis.errors import InvalidCall

MOST_LISTED: Final = 1_000  # that the API lists at once: among more, an unknown name cannot be told

app = typer.Typer(help="Agents, and the switch that stops one.")

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="the agent's name")]
Unknown = Annotated[
    bool, typer.Option("--unknown-ok", help="stop an agent beforehand, which holds no key and never called")
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept with the switch")]

_COLUMNS = columns("agent", "state", "by", "reason")


@app.command("list")
@taking(Anywhere)
def list_agents(place: Anywhere) -> None:
    """List the agents that hold a key or made calls, and those that were stopped."""
    items = _known(place)
    show_list(items, _COLUMNS, as_json=place.as_json, empty="no agent holds a key or has made a call")


@app.command()
@taking(Anywhere)
def revoke(
    place: Anywhere,
    agent: Agent,
    reason: Why = "",
    unknown_ok: Unknown = False,
) -> None:
    """Stop an agent: its next call is refused, in every gateway on this home."""
    if not unknown_ok:
        _check_known(agent, place)
    _switch(agent, "revoked", reason, place)


@app.command()
@taking(Anywhere)
def restore(
    place: Anywhere,
    agent: Agent,
    reason: Why = "",
) -> None:
    """Let a stopped agent go on."""
    _check_known(agent, place)
    _switch(agent, "active", reason, place)


def _known(place: Anywhere) -> list[dict[str, Any]]:
    from aegis.bootstrap.credentials import known_agents
    from aegis.cli.opening import existing

    if place.url is not None:
        items: list[dict[str, Any]] = place.ask("GET", "/v1/agents?limit=1000")["items"]
        return items
    with existing(place.home, place.config) as state, state.store.reader() as reader:
        agents = known_agents(reader)
    return [agents[name] for name in sorted(agents)]


def _check_known(agent: str, place: Anywhere) -> None:
    """Guarantee that the agent was seen before; raises `InvalidCall`, as a name with a typo would stop nobody."""
    from aegis.config.document import nearest

    names = [item["agent"] for item in _known(place)]
    if agent in names or len(names) >= MOST_LISTED:
        return
    raise InvalidCall(
        f"no agent `{agent}` holds a key or has made a call",
        code="not_found",
        hint=(names and nearest(agent, names)) or "`aegis agents list` names them; --unknown-ok stops one beforehand",
    )


def _switch(agent: str, to: Literal["revoked", "active"], reason: str, place: Anywhere) -> None:
    from aegis.cli.opening import recorded
    from aegis.gate.control import set_agent

    if place.url is not None:
        verb = "revoke" if to == "revoked" else "restore"
        changed = place.ask("POST", f"/v1/agents/{quote(agent, safe='')}/{verb}", {"reason": reason})
    else:
        receipt = recorded(place, lambda by: set_agent(agent, state=to, reason=reason, principal=by))
        changed = {"agent": agent, "state": to, "reason": reason, "receipt": receipt}
    show_members(changed, as_json=place.as_json)
