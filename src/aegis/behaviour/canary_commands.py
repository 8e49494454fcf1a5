"""`aegis canaries`: keys, payees and tools that nobody needs; minted, rotated, retired, and who touched one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote

import typer

from aegis.cli.options import taking
from aegis.cli.output import columns, print_json, show_list, show_members
from aegis.cli.remote import Anywhere
from aegis.core.receipt import receipt_ref

if TYPE_CHECKING:
    from aegis.behaviour.canaries import HoneyToken
    from aegis.core.ports import Reader
    from aegis.log.writer import Unit

app = typer.Typer(help="Keys, payees and tools that nobody needs: who touches one is contained.")

_Id = Annotated[str, typer.Argument(metavar="ID", help="the canary's id, from `list`")]
_COLUMNS: Final = columns("id", "kind", "value", "note", ("minted_at", "MINTED"))
_TOUCHES: Final = columns("time", "agent", "session", "tool", ("kind", "IN"), "receipt")


@app.command("mint")
@taking(Anywhere)
def mint_canary(
    place: Anywhere,
    kind: Annotated[
        Literal["aws-key", "api-key", "password", "payee", "email", "url", "tool"],
        typer.Option("--kind", help="what it looks like"),
    ] = "aws-key",
    name: Annotated[str, typer.Option("--name", metavar="TOOL", help="the name of a tool")] = "",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="where it lies")] = "",
) -> None:
    """Mint a canary and show its value, once: put it where nobody has to look."""
    if place.url is not None:
        wish = {"kind": kind, "note": note, **({"name": name} if name else {})}
        made = place.ask("POST", "/v1/canaries", wish)
    else:
        from aegis.behaviour.canaries import mint

        made = _made(place, lambda _, by, now: mint(kind, value=name, note=note, by=by, now=now))
    show_members(made, as_json=place.as_json)


@app.command("list")
@taking(Anywhere)
def list_minted(place: Anywhere) -> None:
    """List the canaries that are watched; values are masked."""
    show_list(_seen(place)["items"], _COLUMNS, as_json=place.as_json, empty="no canary is watched")


@app.command("watch")
@taking(Anywhere)
def watch_touches(place: Anywhere) -> None:
    """List who touched a canary; exit 1 where somebody did."""
    found = _seen(place)["touched"]
    if place.as_json:
        print_json({"items": found})
    else:
        show_list(found, _TOUCHES, as_json=False, empty="nobody touched a canary")
    if found:
        raise typer.Exit(1)


@app.command("rotate")
@taking(Anywhere)
def rotate_canary(
    place: Anywhere,
    canary: _Id,
) -> None:
    """Give a canary another value and show it; the old one is still watched."""
    if place.url is not None:
        made = place.ask("POST", f"/v1/canaries/{quote(canary, safe='')}/rotate")
    else:
        from aegis.behaviour.canaries import rotate

        made = _made(place, lambda reader, by, now: rotate(reader, canary, by=by, now=now))
    show_members(made, as_json=place.as_json)


@app.command("retire")
@taking(Anywhere)
def retire_canary(
    place: Anywhere,
    canary: _Id,
) -> None:
    """Watch a canary no more."""
    if place.url is not None:
        changed = place.ask("POST", f"/v1/canaries/{quote(canary, safe='')}/retire")
    else:
        from aegis.behaviour.canaries import retire
        from aegis.cli.opening import recorded

        changed = {"id": canary, "receipt": recorded(place, lambda by: retire(canary, by=by))}
    show_members(changed, as_json=place.as_json)


def _made(place: Anywhere, make: Callable[[Reader, str, int], tuple[HoneyToken, Unit]]) -> dict[str, Any]:
    from aegis.behaviour.canaries import shown
    from aegis.cli.opening import existing, operator
    from aegis.core.times import system_clock

    with existing(place.home, place.config) as state:
        with state.store.reader() as reader:
            canary, unit = make(reader, operator(), system_clock())
        recorded = state.ledger.append(unit)[-1]
    return {**shown(canary), "value": canary.value, "receipt": receipt_ref(recorded)}


def _seen(place: Anywhere) -> Any:
    if place.url is not None:
        return place.ask("GET", "/v1/canaries")
    from aegis.behaviour.canaries import list_canaries, shown, shown_touch, touches
    from aegis.cli.opening import existing

    with existing(place.home, place.config) as state, state.store.reader() as reader:
        items = [shown(one) for one in list_canaries(reader)]
        return {"items": items, "touched": [shown_touch(one) for one in touches(reader)]}
