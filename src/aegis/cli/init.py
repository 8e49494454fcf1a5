"""`aegis init`: a home, a commented configuration and the first keys; what is there already stays."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from aegis.cli.options import DEFAULT_URL, ConfigFile, Home, Json, home_of
from aegis.cli.output import columns, note, print_json, show_list
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.bootstrap import State

STARTER: Final = "starter.yaml"
TEMPLATES: Final = {"coding": "coding", "office": "office", "data": "database", "support": "support"}
Template = Literal["coding", "office", "data", "support"]

_COLUMNS: Final = columns("what", "state", "where")


def init(
    home: Home = None,
    config: ConfigFile = None,
    agent: Annotated[str, typer.Option("--agent", envvar="AEGIS_AGENT", help="the first agent's name")] = "agent",
    template: Annotated[
        Template | None,
        typer.Option("--template", help="begin with the tools and policies of such an agent; change them to yours"),
    ] = None,
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
    fresh_config = _write_starter(path, template)
    if template is not None and not fresh_config:
        raise InvalidCall(f"`{path}` is there already, and stays", hint="name another file with --config")
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
        for line in _next_steps(place, path, keys.get(agent, "")):
            note(line)


def _next_steps(home: Path, config: Path, key: str) -> list[str]:
    """What comes next, as commands that can be pasted as they are."""
    where = "" if home == home_of(None) else f" --home {shlex.quote(str(home))}"
    named = "" if config == home / "aegis.yaml" else f" --config {shlex.quote(str(config))}"
    lines = ["", "next, the gateway:", f"  aegis serve{where}{named}"]
    if key:
        lines += ["and where the agent runs (the key is not shown again):", f"  export AEGIS_API_KEY={key}"]
    else:
        lines += [f"and where the agent runs, with its key (`aegis keys create --role agent{where}` makes another):"]
    return [
        *lines,
        f"  export AEGIS_URL={_url()}",
        "  python -c 'import aegis; aegis.auto()'   # the line that goes into the agent",
        f"what was decided, and why: `aegis log tail -f{where}`, `aegis why{where}`",
        f"what is wrong, if anything: `aegis doctor{where}`",
    ]


def _url() -> str:
    """Where `aegis serve` of this environment listens."""
    port = os.environ.get("AEGIS_PORT", "")
    return f"http://127.0.0.1:{port}" if port.isascii() and port.isdecimal() and int(port) else DEFAULT_URL


def _write_starter(path: Path, template: Template | None) -> bool:
    """Write the commented configuration where there is none; whether it was written."""
    from aegis.config.config import policies_folder

    if template is None:
        text = (Path(__file__).resolve().parent / STARTER).read_bytes()
    else:
        text = (policies_folder() / f"{TEMPLATES[template]}.yaml").read_bytes()
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
