"""`aegis containment` and `aegis kill`: what stopped by itself, its end, and the switch that stops everything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, urlencode

import typer

from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url, taking
from aegis.cli.output import columns, print_json, print_line, show_list, show_members
from aegis.cli.remote import Anywhere

app = typer.Typer(help="What is held, suspended or stopped by a condition, and its end.")

Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept with the change")]
_COLUMNS: Final = columns("id", ("of", "WHAT"), "subject", "agent", ("do", "DONE"), "until", "cause")
_FIRED: Final = columns("time", "cause", ("of", "WHAT"), "agent", "session", ("do", "DONE"), "calls", "had_run")
_REACHED: Final = columns("session", "agent", "principal", "way")


@app.command("list")
@taking(Anywhere)
def list_contained(place: Anywhere) -> None:
    """List what is contained now, and why."""
    from aegis.behaviour.containment import contained_now
    from aegis.behaviour.routes import row
    from aegis.cli.opening import existing
    from aegis.core.times import system_clock

    if place.url is not None:
        items = place.ask("GET", "/v1/containment")["items"]
    else:
        with existing(place.home, place.config) as state, state.store.reader() as reader:
            items = [row(one) for one in contained_now(reader, system_clock())]
    show_list(items, _COLUMNS, as_json=place.as_json, empty="nothing is contained")


@app.command()
@taking(Anywhere)
def release(
    place: Anywhere,
    contained: Annotated[str, typer.Argument(metavar="ID", help="the containment's id, from `list`")],
    reason: Why = "",
) -> None:
    """End a containment before its time, in every gateway on this home."""
    changed = _released(contained, reason, place)
    show_members(changed, as_json=place.as_json)


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
        found = Anywhere(url=url, key_file=key_file).ask("POST", f"/v1/containment:replay{query}", text)
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
        found = Anywhere(url=url, key_file=key_file).ask("GET" if does is None else "POST", path, wish)
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


@taking(Anywhere)
def kill(
    place: Anywhere,
    reason: Why = "",
    undo: Annotated[bool, typer.Option("--release", help="let agents act again")] = False,
) -> None:
    """Stop every agent at once, in every gateway on this home: calls, sessions, delegations and challenges."""
    from aegis.behaviour.containment import kill as kill_unit
    from aegis.cli.opening import recorded
    from aegis.core.times import system_clock

    if undo:
        if place.url is not None:
            changed = place.ask("POST", "/v1/kill/release", {"reason": reason})
        else:
            released = _released("everything", reason, place)
            changed = {"killed": False, "reason": reason, "receipt": released["receipt"]}
    elif place.url is not None:
        changed = place.ask("POST", "/v1/kill", {"reason": reason})
    else:
        receipt = recorded(place, lambda by: kill_unit(reason, principal=by, now=system_clock()))
        changed = {"killed": True, "reason": reason, "receipt": receipt}
    show_members(changed, as_json=place.as_json)


def _released(key: str, reason: str, place: Anywhere) -> Any:
    from aegis.behaviour.containment import release as release_unit
    from aegis.cli.opening import recorded

    if place.url is not None:
        return place.ask("POST", f"/v1/containment/{quote(key, safe='')}/release", {"reason": reason})
    return {"id": key, "receipt": recorded(place, lambda by: release_unit(key, reason, principal=by))}
