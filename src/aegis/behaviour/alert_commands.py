"""`aegis alerts`: the alerts by their cause, who is told of them, and the digest of a week."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from aegis.cli.options import taking
from aegis.cli.output import columns, print_json, print_line, show_list, show_members
from aegis.cli.remote import Anywhere

if TYPE_CHECKING:
    from aegis.log.writer import Unit

app = typer.Typer(help="What the gateway raised an alarm for, by its cause: seen, muted for a while, and by the week.")

_Id = Annotated[str, typer.Argument(metavar="ID", help="the alert's id, from `list`")]
_COLUMNS: Final = columns("id", "severity", "cause", "count", "first", "last", "state")


@app.command("list")
@taking(Anywhere)
def list_grouped(place: Anywhere) -> None:
    """List the alerts of the last week, those of one cause together."""
    from aegis.behaviour.alerts import list_alerts
    from aegis.cli.opening import existing
    from aegis.core.times import system_clock

    if place.url is not None:
        items = place.ask("GET", "/v1/alerts")["items"]
    else:
        with existing(place.home, place.config) as state, state.store.reader() as reader:
            items = list_alerts(reader, system_clock(), state.config.settings.approvals.link)["items"]
    if not place.as_json:
        items = [{**one, "state": _state(one)} for one in items]
    show_list(items, _COLUMNS, as_json=place.as_json, empty="no alarm was raised within a week")


def _state(one: dict[str, Any]) -> str:
    if one["muted"]:
        return f"muted until {one['muted']['until']} by {one['muted']['by']}: {one['muted']['reason']}"
    return f"seen by {one['seen']['by']}" if one["seen"] else ""


@app.command("mute")
@taking(Anywhere)
def mute_alert(
    place: Anywhere,
    alert: _Id,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept with the mute")],
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="such as `4h`; at most 30 days")] = "1d",
) -> None:
    """Tell nobody of an alert for a while; it is still recorded, and what is critical is still told."""
    from aegis.behaviour.alerts import mute
    from aegis.config.fields import seconds
    from aegis.errors import InvalidCall

    try:
        length = seconds(lasts)
    except ValueError as error:
        raise InvalidCall("`--for` is not a length of time", hint="such as 30m, 4h or 2d") from error
    wish = {"seconds": length, "reason": reason}
    changed = _changed(place, alert, "mute", lambda by, now: mute(alert, length, reason, by=by, now=now), wish)
    show_members(changed, as_json=place.as_json)


@app.command("unmute")
@taking(Anywhere)
def unmute_alert(
    place: Anywhere,
    alert: _Id,
) -> None:
    """Take a mute back before its end."""
    from aegis.behaviour.alerts import unmute

    changed = _changed(place, alert, "unmute", lambda by, now: unmute(alert, by=by, now=now))
    show_members(changed, as_json=place.as_json)


@app.command("seen")
@taking(Anywhere)
def see_alert(
    place: Anywhere,
    alert: _Id,
) -> None:
    """Say that you have looked at an alert: it is not passed on to the second address."""
    from aegis.behaviour.alerts import see

    changed = _changed(place, alert, "seen", lambda by, now: see(alert, by=by, now=now))
    show_members(changed, as_json=place.as_json)


@app.command("digest")
@taking(Anywhere)
def show_digest(
    place: Anywhere,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="a week before the end by default")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="now by default")] = "",
) -> None:
    """Tell what was told, changed, tuned and nearly missed within a week."""
    from aegis.behaviour.digest import WEEK_US, digest_of, digest_text
    from aegis.cli.opening import existing
    from aegis.core.times import from_rfc3339, system_clock
    from aegis.errors import InvalidCall

    if place.url is not None:
        query = urlencode({name: value for name, value in (("since", since), ("until", until)) if value})
        found = place.ask("GET", f"/v1/alerts/digest{f'?{query}' if query else ''}")
    else:
        try:
            end = from_rfc3339(until) if until else system_clock()
            begin = from_rfc3339(since) if since else max(0, end - WEEK_US)
        except (ValueError, OverflowError) as error:
            raise InvalidCall("this is not an RFC 3339 time", hint="such as 2026-01-02T03:04:05Z") from error
        with existing(place.home, place.config) as state, state.store.reader() as reader:
            found = digest_of(reader, since=begin, until=end)
    if place.as_json:
        print_json(found)
    else:
        print_line(digest_text(found))


def _changed(
    place: Anywhere, alert: str, change: str, unit: Callable[[str, int], Unit], body: dict[str, Any] | None = None
) -> dict[str, Any]:
    from aegis.cli.opening import recorded
    from aegis.core.times import system_clock

    if place.url is not None:
        changed: dict[str, Any] = place.ask("POST", f"/v1/alerts/{quote(alert, safe='')}/{change}", body)
        return changed
    return {"id": alert, "receipt": recorded(place, lambda by: unit(by, system_clock()))}
