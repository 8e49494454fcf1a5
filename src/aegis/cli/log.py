"""`aegis log`: exporting the log, verifying an export offline, and looking at receipts."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from aegis.cli import output
from aegis.cli.options import RECEIPT, AcceptRollback, ConfigFile, Home, Json, Limit, Wide, home_of
from aegis.cli.output import note, print_json, print_line, show_list, show_members
from aegis.cli.receipts import COLUMNS, entry_of
from aegis.errors import InvalidCall, LogInvalid, MissionInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aegis.bootstrap import State
    from aegis.bootstrap.deployment import DeployedGate
    from aegis.core.breaks import Break
    from aegis.core.principal import Principal
    from aegis.log.verify import Verified


# `aegis log attest | project | check`: what is signed by itself, and checking it without the log.


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
    receipt: Annotated[str, typer.Argument(metavar="RECEIPT", help=RECEIPT)],
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
        with gate.parts.store.reader() as reader:
            named = entry_of(reader, receipt).receipt_id
        token = gate.project(named, views[view], principal=auditor)
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
    from aegis.cli.verifying import read_small
    from aegis.missions import attestation
    from aegis.missions import status as jws

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
        return output.REFUSED
    if as_json:
        print_json({"verified": True, "claims": checked})
        return output.DONE
    for claims in checked:
        show_members({"verified": True, **claims}, as_json=False)
    return output.DONE


@contextmanager
def _gate(home: Path | None, config: Path | None) -> Iterator[tuple[DeployedGate, Principal]]:
    from aegis.bootstrap import open_deployment
    from aegis.cli.opening import operator
    from aegis.core.principal import Principal

    deployment = open_deployment(config, home_of(home))
    try:
        yield deployment.gate, Principal(id=operator(), roles=frozenset({"auditor"}))
    finally:
        deployment.close()


def _owner(gate: DeployedGate, session: str) -> str:
    from aegis.core.ports import Search

    with gate.parts.store.reader() as reader:
        owners = {entry.principal for entry in reader.search(Search(session=session, limit=1_000))}
    if len(owners) > 1:
        raise InvalidCall("several principals have a session of that name", hint="name one with --principal")
    return next(iter(owners), "")


app = typer.Typer(help="The log: exporting, verifying offline, looking.")


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where to write the export")],
    payloads: Annotated[
        bool, typer.Option("--payloads", help="also write arguments and results unmasked, which is recorded")
    ] = False,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Write `receipts.jsonl`, `checkpoint` and `keys.json`, as one consistent view of the log has them."""
    from contextlib import ExitStack
    from functools import partial

    from aegis.cli.opening import existing, operator
    from aegis.cli.output import counted
    from aegis.cli.verifying import write_file
    from aegis.gate.repeat import revealing_all
    from aegis.log.export import PAYLOADS, export_log, payload_lines
    from aegis.log.trust import public_keys

    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    (out / PAYLOADS).unlink(missing_ok=True)  # of an earlier export: it would not belong to this one
    with ExitStack() as stack:
        state = stack.enter_context(existing(home, config))
        if payloads:
            state.ledger.append(revealing_all(operator()))
        reader = stack.enter_context(state.store.reader())
        progress = stack.enter_context(counted(reader.head().size, title="exporting"))
        exported = export_log(
            reader,
            origin=state.log,
            signer=state.keyring.log_signer(),
            keys=public_keys(reader),
            write=partial(write_file, out),
            progress=progress,
        )
        if payloads:
            lines = payload_lines(reader, exported.checkpoint.size, state.keyring.open_payload)
            write_file(out, PAYLOADS, lines, mode=0o600)
    checkpoint = exported.checkpoint
    show_members(
        {"out": str(out), "log": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()},
        as_json=as_json,
    )


@app.command()
def verify(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="an export; without it, the home")] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="a keys.json that came another way than the export")
    ] = None,
    since: Annotated[
        Path | None, typer.Option("--since", metavar="CHECKPOINT", help="a checkpoint that was kept before")
    ] = None,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="also check the payloads in the export, and the scope of arguments")
    ] = False,
    issuer: Annotated[
        list[Path] | None, typer.Option("--issuer", metavar="FILE", help="a JWK set of another issuer of missions")
    ] = None,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> int:
    """Verify an export offline, or a home where it lies: exit 0, or 1 and the first defect with its place.

    Nothing in an export is believed; its keys come from `--key` alone. Of a home everything that is stored is looked
    at: the log, what it is found by, payloads, documents, and whether all of it is what the home saw.
    """
    from aegis.cli.verifying import verify_folder, verify_home
    from aegis.errors import LogInvalid

    if folder is None:
        place = home_of(home)
        if not (place / "keys").is_dir():
            raise InvalidCall(f"there is no home at `{place}`", code="not_found", hint="name an export, or --home")
        whole, breaks = verify_home(place, config, key=key, since=since, issuers=issuer or ())
        if whole is None or breaks:
            return _show_breaks(breaks, as_json=as_json)
        _show_verified(whole, as_json=as_json)
        return output.DONE
    if key is None:
        raise InvalidCall("an export is verified against keys that came another way", hint="--key FILE names them")
    if not folder.is_dir():
        raise InvalidCall(f"there is no export at `{folder}`", code="not_found")
    if key.resolve() == (folder / "keys.json").resolve():
        note("the keys come from the export itself: this proves that it is whole, and not whose it is")
    try:
        verified = verify_folder(folder, key=key, since=since, payloads=payloads, issuers=issuer or ())
    except LogInvalid as error:
        return _show_breaks([error.broken], as_json=as_json)
    _show_verified(verified, as_json=as_json)
    return output.DONE


@app.command()
def checkpoint(
    home: Home = None, config: ConfigFile = None, accept_rollback: AcceptRollback = None, as_json: Json = False
) -> None:
    """Print the signed end of the log; keep it, and `verify --since` shows any other history.

    A log that is older than the home saw it, or another one, is refused, unless `--accept-rollback` says why it is
    right; it is recorded, and every other command goes on with that log.
    """
    from aegis.cli.opening import existing
    from aegis.log.checkpoint import checkpoint_of, sign_checkpoint

    with existing(home, config, accept_rollback) as state, state.store.reader() as reader:
        end = checkpoint_of(reader.head(), state.log)
        signed = sign_checkpoint(end, state.keyring.log_signer()).decode()
    if as_json:
        print_json({"log": end.origin, "size": end.size, "root": end.root.hex(), "note": signed})
    else:
        print_line(signed.removesuffix("\n"))


@app.command()
def show(
    receipt: Annotated[str, typer.Argument(metavar="[RECEIPT]", help=RECEIPT + "; without one, a list")] = "",
    kind: Annotated[str, typer.Option("--kind", help="only receipts of this kind")] = "",
    agent: Annotated[str, typer.Option("--agent", help="only of this agent")] = "",
    session: Annotated[str, typer.Option("--session", help="only of this session")] = "",
    tool: Annotated[str, typer.Option("--tool", help="only of this tool")] = "",
    decision: Annotated[str, typer.Option("--decision", help="only with this decision")] = "",
    reason: Annotated[str, typer.Option("--reason", help="only with this reason")] = "",
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="RFC 3339")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="RFC 3339")] = "",
    limit: Limit = 50,
    wide: Wide = False,
    reveal: Annotated[bool, typer.Option("--reveal", help="show the payload unmasked, which is recorded")] = False,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List receipts, newest first, or show one of them with its payload, masked."""
    from aegis.cli.opening import existing, operator
    from aegis.cli.receipts import detail, found, moment, show_detail
    from aegis.core.ports import Search

    search = Search(
        kind=kind,
        agent=agent,
        session=session,
        tool=tool,
        decision=decision,
        reason=reason,
        since=moment("since", since),
        until=moment("until", until),
        limit=limit,
    )
    with existing(home, config) as state:
        items = [] if receipt else found(state, search)
        value = detail(state, receipt, reveal=reveal, by=operator()) if receipt else {}
    if not receipt:
        show_list(items, COLUMNS, as_json=as_json, empty="no receipt matches", wide=wide)
    elif as_json:
        print_json(value)
    else:
        show_detail(value)


@app.command()
def tail(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on, until interrupted")] = False,
    count: Annotated[int, typer.Option("--lines", "-n", min=0, max=1_000, help="how many of the newest first")] = 10,
    kind: Annotated[str, typer.Option("--kind", help="only receipts of this kind")] = "",
    wide: Annotated[bool, typer.Option("--wide", help="with date, session and the receipt's id")] = False,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print the newest receipts, the oldest of them first, a line each."""
    from aegis.cli.opening import existing
    from aegis.cli.receipts import followed, line_of
    from aegis.core.text import json_text

    with existing(home, config) as state:
        for body in followed(state, count, kind=kind, follow=follow):
            print_line(json_text(body) if as_json else line_of(body, wide=wide))
            sys.stdout.flush()


@app.command()
def erase(
    receipt: Annotated[str, typer.Argument(metavar="RECEIPT", help=RECEIPT)] = "",
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="every payload older than this: 90d, 36h")
    ] = "",
    tool: Annotated[str, typer.Option("--tool", help="with --older-than: of this tool only")] = "",
    agent: Annotated[str, typer.Option("--agent", help="with --older-than: of this agent only")] = "",
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Erase the payload of a receipt, or of all that are old: arguments, findings, key, salt. The log still verifies.

    Every erasure is a receipt of its own. What waits for a person, or was approved and may still be made, is left.
    """
    from aegis.cli.opening import existing, operator
    from aegis.gate.repeat import erase_payload

    if bool(receipt) == bool(older_than):
        raise InvalidCall("name a receipt, or an age with `--older-than`, and not both")
    with existing(home, config) as state:
        if older_than:
            show_members(_erase_old(state, older_than, tool, agent), as_json=as_json)
            return
        with state.store.reader() as reader:
            erased = entry_of(reader, receipt).receipt_id
        recorded = state.ledger.append(erase_payload(erased, principal=operator()))[0]
    show_members({"erased": erased, "receipt": recorded.receipt_id, "index": recorded.index}, as_json=as_json)


def _erase_old(state: State, age: str, tool: str, agent: str) -> dict[str, int]:
    from aegis.approvals.retention import Erased, next_old
    from aegis.cli.opening import operator
    from aegis.core.times import MICROS, system_clock
    from aegis.gate.repeat import erase_payload

    unit = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}.get(age[-1:])
    if unit is None or not (age[:-1].isascii() and age[:-1].isdigit()) or int(age[:-1]) == 0 or len(age) > _LONGEST_AGE:
        raise InvalidCall("`--older-than` is a number and a unit: 30m, 36h, 90d, 12w")
    now = system_clock()
    told, more = Erased(agent=agent, tool=tool), True
    while more:
        with state.store.reader() as reader:
            entries, more = next_old(reader, told, end=now - int(age[:-1]) * unit * MICROS, now=now)
        for entry in entries:
            state.ledger.append(erase_payload(entry.receipt_id, principal=operator()))
            told.erased += 1
    return {"erased": told.erased, "left": told.held}


_LONGEST_AGE: Final = 6  # characters: centuries of minutes


app.command()(attest)
app.command()(project)
app.command()(check)


def _show_verified(verified: Verified, *, as_json: bool) -> None:
    value: dict[str, Any] = {
        "verified": True,
        "log": verified.log,
        "size": verified.size,
        "root": verified.root.hex(),
        "first": verified.first_time,
        "last": verified.last_time,
        "kinds": verified.kinds,
        "since": verified.since,
        "warnings": [str(warning) for warning in verified.warnings],
        "warning_count": verified.warning_count,
        "not_covered": list(verified.not_covered),
    }
    if as_json:
        print_json(value)
        return
    warnings, not_covered = value.pop("warnings"), value.pop("not_covered")
    value["kinds"] = ", ".join(f"{count} {kind}" for kind, count in verified.kinds.items())
    show_members(value, as_json=False)
    for warning in warnings:
        show_members({"warning": warning}, as_json=False)
    for line in not_covered:
        show_members({"not covered": line}, as_json=False)


def _show_breaks(breaks: Sequence[Break], *, as_json: bool) -> int:
    """Say what is wrong: the first in full, and of a home all the others."""
    from aegis.core.breaks import MEANING

    broken = breaks[0]
    value: dict[str, Any] = {
        "verified": False,
        "break": broken.kind,
        "meaning": MEANING[broken.kind],
        "detail": broken.detail,
        "line": broken.line,
        "index": broken.index,
        "receipt_id": broken.receipt_id,
    }
    others = [str(one) for one in breaks[1:]]
    if as_json:
        print_json(value | ({"also": others} if others else {}))
    else:
        show_members(value, as_json=False)
        for other in others:
            show_members({"also": other}, as_json=False)
    return output.USAGE if broken.kind == "keys_invalid" else output.REFUSED
