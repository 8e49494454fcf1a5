"""`aegis keys`: the API keys of agents and people, and the rotation of signing keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aegis.cli.options import ConfigFile, Home, Json
from aegis.cli.output import columns, print_json, print_line, show_list, show_members

if TYPE_CHECKING:
    from aegis.keys.api import ApiKey

app = typer.Typer(help="API keys, and the rotation of signing keys.")

_COLUMNS = columns(("id", "KEY"), "state", ("principal", "HOLDER"), "roles", ("created_at", "CREATED"), "tools")


@app.command()
def create(
    roles: Annotated[
        list[str], typer.Option("--role", metavar="ROLE", help="agent, tool, approver, auditor, issuer or admin")
    ],
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="the agent that holds the key")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="the person that holds the key")] = None,
    tools: Annotated[
        list[str] | None, typer.Option("--tool", metavar="SELECTOR", help="limit the key to these tools")
    ] = None,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it: once, alone, on standard output. The store keeps only its hash."""
    from aegis.bootstrap.credentials import create_key
    from aegis.cli.opening import opened, operator

    with opened(home, config) as state:
        issued = create_key(state, roles=roles, agent=agent, name=name, tools=tools or (), by=operator())
    if as_json:
        print_json(_view(issued.key) | {"key": issued.text})
    else:
        print_line(issued.text)


@app.command("list")
def list_keys(home: Home = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """List the keys that were made, revoked ones included; never the keys themselves."""
    from aegis.cli.opening import existing
    from aegis.keys.api import list_keys as stored

    with existing(home, config) as state, state.store.reader() as reader:
        items = [_view(key) for key in stored(reader)]
    show_list(items, _COLUMNS, as_json=as_json, empty="no key was made; `aegis keys create` makes one")


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="the key's id, as `aegis keys list` shows it")],
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Revoke a key: the next request that shows it is refused, in every gateway on this home."""
    from aegis.bootstrap.credentials import revoke_key
    from aegis.cli.opening import existing, operator
    from aegis.config.document import nearest
    from aegis.errors import InvalidCall
    from aegis.keys.api import list_keys as stored

    with existing(home, config) as state:
        with state.store.reader() as reader:
            known = [one.id for one in stored(reader)]
        if key not in known:
            raise InvalidCall(f"there is no key `{key}`", code="not_found", hint=nearest(key, known), status=404)
        revoked = revoke_key(state, key, by=operator())
    show_members(_view(revoked), as_json=as_json)


@app.command()
def rotate(
    purpose: Annotated[
        Literal["receipt", "permit", "log"] | None, typer.Argument(metavar="receipt|permit|log", show_default=False)
    ] = None,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="an agent's receipt key")] = "",
    log: Annotated[bool, typer.Option("--log", help="the log's own key, as `rotate log`")] = False,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Replace a signing key: the log endorses the new one, and what the old one signed stays valid."""
    from aegis.cli.opening import existing
    from aegis.errors import InvalidCall

    if (purpose is None) is not log or (agent and purpose != "receipt"):
        raise InvalidCall("name one key: `receipt` (`--agent NAME` for an agent's), `permit` or `log`")
    with existing(home, config) as state:
        signer = state.introductions.rotate(purpose or "log", agent)
    show_members(dict(signer.describe()), as_json=as_json)


@app.command()
def public(home: Home = None, config: ConfigFile = None) -> None:
    """Print the public keys as `keys.json`: what a verifier gets by another way than the export."""
    from aegis.cli.opening import existing
    from aegis.log.trust import public_keys

    with existing(home, config) as state, state.store.reader() as reader:
        document = public_keys(reader)
    print_json(document)


def _view(key: ApiKey) -> dict[str, Any]:
    from aegis.core.times import rfc3339

    return {
        "id": key.id,
        "state": key.state,
        "principal": key.principal,
        "roles": list(key.roles),
        "agent": key.agent,
        "tools": list(key.tools),
        "created_at": rfc3339(key.created_at),
        "revoked_at": None if key.revoked_at is None else rfc3339(key.revoked_at),
    }
