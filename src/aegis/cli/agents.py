"""`aegis agents`: which agents there are, and the switch that stops one before its next call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import typer

from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url
from aegis.cli.output import columns, show_list, show_members
from aegis.cli.remote import ask
from aegis.core.receipt import receipt_ref
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
def list_agents(
    home: Home = None, config: ConfigFile = None, url: Url = None, key_file: KeyFile = None, as_json: Json = False
) -> None:
    """List the agents that hold a key or made calls, and those that were stopped."""
    items = _known(home=home, config=config, url=url, key_file=key_file)
    show_list(items, _COLUMNS, as_json=as_json, empty="no agent holds a key or has made a call")


@app.command()
def revoke(
    agent: Agent,
    reason: Why = "",
    unknown_ok: Unknown = False,
    home: Home = None,
    config: ConfigFile = None,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Stop an agent: its next call is refused, in every gateway on this home."""
    if not unknown_ok:
        _check_known(agent, home=home, config=config, url=url, key_file=key_file)
    _switch(agent, "revoked", reason, home=home, config=config, url=url, key_file=key_file, as_json=as_json)


@app.command()
def restore(
    agent: Agent,
    reason: Why = "",
    home: Home = None,
    config: ConfigFile = None,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Let a stopped agent go on."""
    _check_known(agent, home=home, config=config, url=url, key_file=key_file)
    _switch(agent, "active", reason, home=home, config=config, url=url, key_file=key_file, as_json=as_json)


def _known(*, home: Path | None, config: Path | None, url: str | None, key_file: Path | None) -> list[dict[str, Any]]:
    from aegis.bootstrap.credentials import known_agents
    from aegis.cli.opening import existing

    if url is not None:
        items: list[dict[str, Any]] = ask(url, key_file, "GET", "/v1/agents?limit=1000")["items"]
        return items
    with existing(home, config) as state, state.store.reader() as reader:
        agents = known_agents(reader)
    return [agents[name] for name in sorted(agents)]


def _check_known(agent: str, *, home: Path | None, config: Path | None, url: str | None, key_file: Path | None) -> None:
    """Guarantee that the agent was seen before; raises `InvalidCall`, as a name with a typo would stop nobody."""
    from aegis.config.document import nearest

    names = [item["agent"] for item in _known(home=home, config=config, url=url, key_file=key_file)]
    if agent in names or len(names) >= MOST_LISTED:
        return
    raise InvalidCall(
        f"no agent `{agent}` holds a key or has made a call",
        code="not_found",
        hint=(names and nearest(agent, names)) or "`aegis agents list` names them; --unknown-ok stops one beforehand",
    )


def _switch(
    agent: str,
    to: Literal["revoked", "active"],
    reason: str,
    *,
    home: Path | None,
    config: Path | None,
    url: str | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    from aegis.cli.opening import existing, operator
    from aegis.gate.control import set_agent

    if url is not None:
        verb = "revoke" if to == "revoked" else "restore"
        changed = ask(url, key_file, "POST", f"/v1/agents/{quote(agent, safe='')}/{verb}", {"reason": reason})
    else:
        with existing(home, config) as state:
            unit = set_agent(agent, state=to, reason=reason, principal=operator())
            recorded = state.ledger.append(unit)[0]
        changed = {"agent": agent, "state": to, "reason": reason, "receipt": receipt_ref(recorded)}
    show_members(changed, as_json=as_json)
