"""`aegis users`: the people who sign in to the cockpit."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aegis.cli.options import ConfigFile, Home, Json
from aegis.cli.output import columns, note, print_line, show_list, show_members
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.keys.accounts import Account

app = typer.Typer(help="People who sign in to the cockpit.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="the account's name")]
PasswordIn = Annotated[bool, typer.Option("--password-stdin", help="read the password from standard input")]

_COLUMNS = columns("name", "state", "roles", ("created_at", "CREATED"))


@app.command()
def create(
    name: Name,
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="approver, auditor, issuer or admin; several are allowed"),
    ] = None,
    password_stdin: PasswordIn = False,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make an account; the password is asked for, or read from standard input."""
    from aegis.bootstrap.credentials import create_account
    from aegis.cli.opening import opened, operator

    password = _password(from_stdin=password_stdin)
    with opened(home, config) as state:
        account = create_account(state, name, roles=roles or ("approver",), password=password, by=operator())
    show_members(_view(account), as_json=as_json)


@app.command("list")
def list_users(home: Home = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """List the accounts, disabled ones included."""
    from aegis.cli.opening import existing
    from aegis.keys.accounts import list_accounts

    with existing(home, config) as state, state.store.reader() as reader:
        items = [_view(account) for account in list_accounts(reader)]
    show_list(items, _COLUMNS, as_json=as_json, empty="nobody has an account; `aegis users create NAME` makes one")


@app.command()
def password(
    name: Name, password_stdin: PasswordIn = False, home: Home = None, config: ConfigFile = None, as_json: Json = False
) -> None:
    """Set another password, which ends every session of the account."""
    from aegis.bootstrap.credentials import alter_account
    from aegis.cli.opening import existing, operator

    given = _password(from_stdin=password_stdin)
    with existing(home, config) as state:
        account = alter_account(state, name, "password", password=given, by=operator())
    show_members(_view(account), as_json=as_json)


@app.command()
def link(
    name: Name,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="where people reach the gateway")] = "",
    home: Home = None,
    config: ConfigFile = None,
) -> None:
    """Print a link under which the person sets a password: once, within a day."""
    from aegis.bootstrap.credentials import password_link
    from aegis.cli.opening import existing
    from aegis.cli.options import DEFAULT_URL

    with existing(home, config) as state:
        token = password_link(state, name)
    print_line(f"{(url or DEFAULT_URL).rstrip('/')}/welcome?token={token}")


@app.command()
def roles(
    name: Name,
    given: Annotated[list[str], typer.Option("--role", metavar="ROLE", help="approver, auditor, issuer or admin")],
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Give an account other roles, which ends every session of it."""
    from aegis.bootstrap.credentials import alter_account
    from aegis.cli.opening import existing, operator

    with existing(home, config) as state:
        account = alter_account(state, name, "change", roles=given, by=operator())
    show_members(_view(account), as_json=as_json)


@app.command()
def disable(name: Name, home: Home = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Refuse the account from its next request on."""
    from aegis.bootstrap.credentials import alter_account
    from aegis.cli.opening import existing, operator

    with existing(home, config) as state:
        account = alter_account(state, name, "disable", to="disabled", by=operator())
    show_members(_view(account), as_json=as_json)


@app.command()
def enable(name: Name, home: Home = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Let a disabled account sign in again."""
    from aegis.bootstrap.credentials import alter_account
    from aegis.cli.opening import existing, operator

    with existing(home, config) as state:
        account = alter_account(state, name, "enable", to="active", by=operator())
    show_members(_view(account), as_json=as_json)


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise InvalidCall("there is nobody to ask for a password", code="password", hint="use --password-stdin")
    first = getpass.getpass("password: ")
    if getpass.getpass("once more: ") != first:
        note("the two are not the same")
        raise InvalidCall("the passwords differ", code="password")
    return first


def _view(account: Account) -> dict[str, Any]:
    from aegis.core.times import rfc3339

    return {
        "name": account.name,
        "state": account.state,
        "roles": list(account.roles),
        "created_at": rfc3339(account.created_at),
    }
