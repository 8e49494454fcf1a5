"""`aegis init`: a home, a commented configuration and the first keys; what is there already stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aegis.cli.options import ConfigFile, Home, Json, home_of
from aegis.cli.output import Column, note, print_json, show_list

if TYPE_CHECKING:
    from aegis.bootstrap import State

STARTER: Final = "starter.yaml"

_COLUMNS: Final = (
    Column(title="WHAT", member="what"),
    Column(title="STATE", member="state"),
    Column(title="WHERE", member="where"),
)


def init(
    home: Home = None,
    config: ConfigFile = None,
    agent: Annotated[str, typer.Option("--agent", envvar="AEGIS_AGENT", help="the first agent's name")] = "agent",
    as_json: Json = False,
) -> None:
    """Prepare a home: aegis.yaml, signing keys, and an API key for an agent and for a person.

    Doing it again changes nothing. The API keys are shown now and never again.
    """
    from aegis.bootstrap.state import home_dir
    from aegis.cli.opening import opened

    place = home_of(home)
    fresh_home = not place.exists()
    home_dir(place)
    path = config or place / "aegis.yaml"
    fresh_config = _write_starter(path)
    with opened(place, path) as state:
        keys = _first_keys(state, agent)
    steps: list[dict[str, Any]] = [
        {"what": "home", "state": "made" if fresh_home else "kept", "where": str(place)},
        {"what": "configuration", "state": "made" if fresh_config else "kept", "where": str(path)},
        *({"what": f"API key of {holder}", "state": "made", "where": key} for holder, key in keys.items()),
    ]
    if as_json:
        print_json({"home": str(place), "config": str(path), "keys": keys, "steps": steps})
    else:
        show_list(steps, _COLUMNS, as_json=False, empty="")
        if keys:
            note("the keys are not shown again; an agent reads its own from AEGIS_API_KEY")
        note("next: `aegis serve`, and `aegis.auto()` in the agent; `aegis doctor` looks for what is wrong")


def _write_starter(path: Path) -> bool:
    """Write the commented configuration where there is none; whether it was written."""
    text = (Path(__file__).resolve().parent / STARTER).read_bytes()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    return True


def _first_keys(state: State, agent: str) -> dict[str, str]:
    """An API key for the agent and one for the operator, where no key was ever made."""
    from aegis.bootstrap.credentials import create_key
    from aegis.cli.opening import operator
    from aegis.keys.api import list_keys

    with state.store.reader() as reader:
        if list_keys(reader):
            return {}
    by = operator()
    return {
        agent: create_key(state, roles=("agent",), agent=agent, by=by).text,
        "operator": create_key(state, roles=("approver", "auditor", "admin"), name="operator", by=by).text,
    }
