"""`aegis missions`: issue, show, verify, delegate and stop missions on a home."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aegis.cli import output
from aegis.cli.options import ConfigFile, Home, Json, home_of
from aegis.cli.output import columns, note, print_json, print_line, show_list, show_members
from aegis.errors import InvalidCall, MissionInvalid

if TYPE_CHECKING:
    from aegis.bootstrap.deployment import DeployedGate
    from aegis.core.principal import Principal
    from aegis.missions.issuing import Issued
    from aegis.missions.registry import State

app = typer.Typer(help="Missions: signed mandates of agents.")

Mission = Annotated[str, typer.Argument(metavar="MISSION", help="the mission's id")]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="the members of a mission as JSON; `-` reads standard input")
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept with the change")]

_COLUMNS = columns(("mission_id", "MISSION"), "state", "agent", "purpose")


@app.command()
def issue(file: File, home: Home = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Sign a mission with the key of this home and make it known; prints its id."""
    with _gate(home, config) as (gate, principal):
        _enrolled(gate, gate.issuing.issue(principal, claims=_claims(file)), as_json=as_json)


@app.command()
def delegate(
    parent: Mission,
    file: File,
    request: Annotated[str, typer.Option("--request", metavar="ID", help="the same one finds the same mission")],
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Sign a mission that is at most its parent; a refusal names the dimension."""
    with _gate(home, config) as (gate, principal):
        issued = gate.issuing.delegate(principal, parent, claims=_claims(file), request_id=request)
        _enrolled(gate, issued, as_json=as_json)


@app.command("list")
def list_missions(home: Home = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """List missions by id."""
    from aegis.missions import registry
    from aegis.missions import status as jws

    with _gate(home, config) as (gate, _), gate.parts.store.reader() as reader:
        rows = []
        for document in reader.documents(registry.COLLECTION):
            enrolled = registry.find(reader, document.key)
            if enrolled is not None:
                claims = jws.read_claims(jws.take_apart(enrolled.token, jws.MISSION))
                rows.append(
                    {
                        "mission_id": document.key,
                        "state": enrolled.state,
                        "agent": claims["sub"],
                        "purpose": claims["purpose"],
                    }
                )
    show_list(rows, _COLUMNS, as_json=as_json, empty="no mission was issued")


@app.command()
def show(mission: Mission, home: Home = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Show a mission, its standing and its lineage, verified."""
    from aegis.missions import registry
    from aegis.missions.declare import to_claims

    with _gate(home, config) as (gate, _), gate.parts.store.reader() as reader:
        trusted = gate.missions.trusted(reader, gate.parts.policy.current)
        lineage, state = registry.load_lineage(reader, mission, trusted)
        shown = {"state": state, "lineage": [one.mission_id for one in lineage], **to_claims(lineage[-1])}
    show_members(shown, as_json=as_json)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a mission's token; `-` reads standard input")],
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> int:
    """Verify a mission's token against the keys that this home trusts; exit 0, or 1 with what is wrong."""
    from aegis.missions.declare import remarks, to_claims, verify_mission

    token = _read(file).strip()
    try:
        with _gate(home, config) as (gate, _), gate.parts.store.reader() as reader:
            declaration = verify_mission(token, gate.missions.trusted(reader, gate.parts.policy.current))
    except MissionInvalid as error:
        show_members({"verified": False, "member": error.member, "why": error.message}, as_json=as_json)
        return output.REFUSED
    for remark in remarks(declaration):
        note(remark)
    show_members(to_claims(declaration), as_json=as_json)
    return output.DONE


@app.command()
def revoke(
    mission: Mission, reason: Why = "", home: Home = None, config: ConfigFile = None, as_json: Json = False
) -> None:
    """Stop a mission and everything below it, for good."""
    _move(mission, "revoked", reason, home, config, as_json=as_json)


@app.command()
def suspend(
    mission: Mission, reason: Why = "", home: Home = None, config: ConfigFile = None, as_json: Json = False
) -> None:
    """Stop a mission and everything below it until it is resumed."""
    _move(mission, "suspended", reason, home, config, as_json=as_json)


@app.command()
def resume(
    mission: Mission, reason: Why = "", home: Home = None, config: ConfigFile = None, as_json: Json = False
) -> None:
    """Let a suspended mission go on."""
    _move(mission, "active", reason, home, config, as_json=as_json)


@app.command()
def holder(
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="whose key")],
    home: Home = None,
) -> None:
    """Print the member `cnf` that names this machine's holder key of an agent; the key is made where there is none."""
    from aegis.missions.holder import Holder, holder_folder

    print_json(Holder(holder_folder(home_of(home)), agent).confirmation())


@contextmanager
def _gate(home: Path | None, config: Path | None) -> Iterator[tuple[DeployedGate, Principal]]:
    """The gate of a home, and whom the log names for what is done here: owning a home is administrator power."""
    from aegis.bootstrap import open_deployment
    from aegis.cli.opening import operator
    from aegis.core.principal import Principal

    deployment = open_deployment(config, home_of(home))
    try:
        yield deployment.gate, Principal(id=operator(), roles=frozenset({"issuer", "admin"}))
    finally:
        deployment.close()


def _enrolled(gate: DeployedGate, issued: Issued, *, as_json: bool) -> None:
    if issued.unit is not None:
        gate.record(issued.unit)
    wire = issued.to_wire()
    for remark in wire["remarks"]:
        note(remark)
    if as_json:
        print_json(wire)
    else:
        print_line(wire["mission_id"])


def _move(mission: str, to: State, reason: str, home: Path | None, config: Path | None, *, as_json: bool) -> None:
    from aegis.errors import StoreConflict

    with _gate(home, config) as (gate, principal):
        try:
            gate.record(gate.issuing.move(principal, mission, to, reason))
        except StoreConflict as error:
            raise InvalidCall(str(error), code="conflict", status=409) from error
    show_members({"mission_id": mission, "state": to, "reason": reason}, as_json=as_json)


def _claims(file: Path) -> Any:
    from aegis.core.json import parse

    return parse(_read(file).encode())


def _read(file: Path) -> str:
    return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
