"""`aegis containment` and `aegis kill`: what stopped by itself, its end, and the switch that stops everything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, urlencode

import typer

from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url
from aegis.cli.output import columns, print_json, print_line, show_list, show_members
from aegis.cli.remote import ask
from aegis.core.receipt import receipt_ref

app = typer.Typer(help="What is held, suspended or stopped by a condition, and its end.")

Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept with the change")]
_COLUMNS: Final = columns("id", ("of", "WHAT"), "subject", "agent", ("do", "DONE"), "until", "cause")
_FIRED: Final = columns("time", "cause", ("of", "WHAT"), "agent", "session", ("do", "DONE"), "calls", "had_run")
_REACHED: Final = columns("session", "agent", "principal", "way")


@app.command("list")
def list_contained(
    home: Home = None, config: ConfigFile = None, url: Url = None, key_file: KeyFile = None, as_json: Json = False
) -> None:
    """List what is contained now, and why."""
    from aegis.behaviour.containment import contained_now
    from aegis.behaviour.routes import row
    from aegis.cli.opening import existing
    from aegis.core.times import system_clock

    if url is not None:
        items = ask(url, key_file, "GET", "/v1/containment")["items"]
    else:
        with existing(home, config) as state, state.store.reader() as reader:
            items = [row(one) for one in contained_now(reader, system_clock())]
    show_list(items, _COLUMNS, as_json=as_json, empty="nothing is contained")


@app.command()
def release(
    contained: Annotated[str, typer.Argument(metavar="ID", help="the containment's id, from `list`")],
    reason: Why = "",
    home: Home = None,
    config: ConfigFile = None,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """End a containment before its time, in every gateway on this home."""
    changed = _released(contained, reason, home=home, config=config, url=url, key_file=key_file)
    show_members(changed, as_json=as_json)


@app.command("test")
def try_conditions(
    config: ConfigFile = None,
    home: Home = None,
    url: Url = None,
    key_file: KeyFile = None,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="only receipts from this time on")] = "",
    as_json: Json = False,
) -> None:
    """Tell what the conditions of a configuration, or those in force, would have done over the log.

    Nothing is changed.
    """
    from aegis.behaviour.replaying import would_have
    from aegis.cli.opening import deployed
    from aegis.config.text import text_of
    from aegis.server.audit import moment

    text = None if config is None else Path(config).read_bytes()
    if url is not None:
        query = f"?{urlencode({'since': since})}" if since else ""
        found = ask(url, key_file, "POST", f"/v1/containment:replay{query}", text)
    else:
        begin = moment({"since": since} if since else {}, "since") or 0
        with deployed(home) as place:
            holder = place.gate.parts.policy
            policy = holder.current if text is None else holder.check(text_of(text)).policy
            found = would_have(place.gate.parts, policy.behaviour.containment, begin)
    if as_json:
        print_json(found)
        return
    show_list(found["items"], _FIRED, as_json=False, empty="no condition would have held")
    print_line(f"{found['looked_at']} receipts looked at{'' if found['complete'] else ', older ones left out'}")


@app.command("downstream")
def list_reached(
    contained: Annotated[str, typer.Argument(metavar="ID", help="the containment's id, from `list`")],
    does: Annotated[
        Literal["hold", "suspend"] | None, typer.Option("--do", help="contain what was reached, for a day")
    ] = None,
    reason: Why = "",
    home: Home = None,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """List the sessions that what something contained wrote has reached, with the way; `--do` contains them."""
    from aegis.behaviour.routes import behind, contain_behind
    from aegis.cli.opening import deployed, operator
    from aegis.core.times import system_clock

    if url is not None:
        path = f"/v1/containment/{quote(contained, safe='')}/downstream"
        wish = None if does is None else {"do": does, "reason": reason}
        found = ask(url, key_file, "GET" if does is None else "POST", path, wish)
    else:
        with deployed(home) as place:
            found = behind(place.gate.parts, contained)
            if does is not None:
                place.gate.record(contain_behind(found, contained, does, reason, by=operator(), now=system_clock()))
    if as_json:
        print_json(found)
        return
    ways = [
        {**one, "way": ", then ".join(f"{step['from']}: {step['by']}" for step in one["way"])} for one in found["items"]
    ]
    show_list(ways, _REACHED, as_json=False, empty="nothing was reached")
    if not found["complete"]:
        print_line("only the newest receipts were looked at")


def kill(
    reason: Why = "",
    undo: Annotated[bool, typer.Option("--release", help="let agents act again")] = False,
    home: Home = None,
    config: ConfigFile = None,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Stop every agent at once, in every gateway on this home: calls, sessions, delegations and challenges."""
    from aegis.behaviour.containment import kill as kill_unit
    from aegis.cli.opening import existing, operator
    from aegis.core.times import system_clock

    if undo:
        if url is not None:
            changed = ask(url, key_file, "POST", "/v1/kill/release", {"reason": reason})
        else:
            released = _released("everything", reason, home=home, config=config, url=None, key_file=None)
            changed = {"killed": False, "reason": reason, "receipt": released["receipt"]}
    elif url is not None:
        changed = ask(url, key_file, "POST", "/v1/kill", {"reason": reason})
    else:
        with existing(home, config) as state:
            unit = kill_unit(reason, principal=operator(), now=system_clock())
            changed = {"killed": True, "reason": reason, "receipt": receipt_ref(state.ledger.append(unit)[0])}
    show_members(changed, as_json=as_json)


def _released(
    key: str, reason: str, *, home: Path | None, config: Path | None, url: str | None, key_file: Path | None
) -> Any:
    from aegis.behaviour.containment import release as release_unit
    from aegis.cli.opening import existing, operator

    if url is not None:
        return ask(url, key_file, "POST", f"/v1/containment/{quote(key, safe='')}/release", {"reason": reason})
    with existing(home, config) as state:
        recorded = state.ledger.append(release_unit(key, reason, principal=operator()))[0]
    return {"id": key, "receipt": receipt_ref(recorded)}
