"""`aegis log attest | project | check`: what is signed by itself, and checking it without the log."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aegis.cli import exits
from aegis.cli.options import ConfigFile, Home, Json, home_of
from aegis.cli.output import print_json, print_line, show_members
from aegis.errors import InvalidCall, LogInvalid, MissionInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aegis.core.principal import Principal
    from aegis.gate import Gate


def attest(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="the session's name")],
    principal: Annotated[
        str, typer.Option("--principal", metavar="ID", help="whose session; needed where several have one of that name")
    ] = "",
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print the signed summary of a session: verdicts, budget use, the end of the log."""
    with _gate(home, config) as (gate, auditor):
        token = gate.attest_session(session, principal=auditor, whose=principal or _owner(gate, session))
    print_json({"session": session, "attestation": token}) if as_json else print_line(token)


def project(
    receipt: Annotated[str, typer.Argument(metavar="RECEIPT", help="the id of a receipt")],
    view: Annotated[
        str, typer.Option("--view", metavar="VIEW", help="`public` has closed words alone, `audit` every member")
    ] = "public",
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print one receipt as a signed projection."""
    views: dict[str, Literal["public", "audit"]] = {"public": "public", "audit": "audit"}
    if view not in views:
        raise InvalidCall("`--view` is `public` or `audit`")
    with _gate(home, config) as (gate, auditor):
        token = gate.project(receipt, views[view], principal=auditor)
    print_json({"receipt_id": receipt, "view": view, "projection": token}) if as_json else print_line(token)


def check(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="an attestation, a projection, or two views of one receipt")
    ],
    key: Annotated[
        Path, typer.Option("--key", metavar="FILE", help="a keys.json that came another way than the tokens")
    ],
    as_json: Json = False,
) -> int:
    """Check what `attest` and `project` printed, offline: exit 0, or 1 with what is wrong.

    Of two projections it also checks that they show the same record.
    """
    from aegis.cli.logfiles import read_small
    from aegis.missions import attestation, jws

    try:
        trusted = attestation.trusted_keys(read_small(key))
        tokens = [file.read_text(encoding="utf-8").strip() for file in files]
        checked: list[dict[str, Any]] = [
            attestation.check_projection(token, trusted)
            if jws.typ_of(token) == jws.PROJECTION
            else attestation.check_attestation(token, trusted)
            for token in tokens
        ]
        if len(checked) > 1:
            attestation.check_views(checked)
    except (LogInvalid, MissionInvalid) as error:
        show_members({"verified": False, "why": str(error)}, as_json=as_json)
        return exits.REFUSED
    if as_json:
        print_json({"verified": True, "claims": checked})
        return exits.DONE
    for claims in checked:
        show_members({"verified": True, **claims}, as_json=False)
    return exits.DONE


@contextmanager
def _gate(home: Path | None, config: Path | None) -> Iterator[tuple[Gate, Principal]]:
    from aegis.bootstrap import open_deployment
    from aegis.cli.opening import operator
    from aegis.core.principal import Principal

    deployment = open_deployment(config, home_of(home))
    try:
        yield deployment.gate, Principal(id=operator(), roles=frozenset({"auditor"}))
    finally:
        deployment.close()


def _owner(gate: Gate, session: str) -> str:
    from aegis.core.ports import Search

    with gate.parts.store.reader() as reader:
        owners = {entry.principal for entry in reader.search(Search(session=session, limit=1_000))}
    if len(owners) > 1:
        raise InvalidCall("several principals have a session of that name", hint="name one with --principal")
    return next(iter(owners), "")
