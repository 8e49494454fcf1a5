"""`aegis approvals`: held calls, shown in full or followed as they come, and a person's answer to them.

Answering takes an approver's API key, always: owning the home is not enough, and the key says who it was.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, urlencode

import typer

from aegis.approvals.values import Scope
from aegis.cli.options import ID_CHARS, LEAST_PREFIX, Limit, Wide, api_key_of, taking
from aegis.cli.output import Column, note, print_json, print_line, show_list, show_members, time_left
from aegis.cli.remote import Anywhere
from aegis.core.text import json_text, visible
from aegis.errors import InvalidCall

# Following the queue: each held call once, as it comes.

PERIOD_S: Final = 1.0
PAGE: Final = 100


def watch_approvals(get: Callable[[str], Any], seconds: int) -> Iterator[dict[str, Any]]:
    """Held calls that `get` finds under the API's targets, for `seconds` or, with 0, until interrupted."""
    ends = time.monotonic() + seconds if seconds else None
    seen: set[str] = set()
    while True:
        waiting = _waiting(get)
        for item in waiting:
            if item["id"] not in seen:
                yield item
        seen = {item["id"] for item in waiting}  # what was answered is never listed again
        if ends is not None and time.monotonic() + PERIOD_S > ends:
            return
        time.sleep(PERIOD_S)


def _waiting(get: Callable[[str], Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = get(f"/v1/approvals?limit={PAGE}{cursor}")
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = f"&cursor={quote(page['next'], safe='')}"


# Commands that ask the HTTP API with a person's key: at a running gateway, or over a home.

Ask = Callable[[str, str, str, Any], Any]


@dataclass(frozen=True, kw_only=True)
class ApiDoor:
    """The API, whose key opens it, and whether the answer is printed as JSON."""

    api: Ask
    key: str
    as_json: bool

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        """The JSON answer to one request; raises `InvalidCall` with the API's own words for a 4xx."""
        return self.api(method, target, self.key, body)


def opens(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, which takes a `ApiDoor` first, as one that takes the options which lead there last."""

    @functools.wraps(command)
    def run(place: Anywhere, **options: Any) -> None:
        from aegis.cli.opening import api

        key = _key(place.key_file)
        with api(place.url, place.home, place.config) as asked:
            command(ApiDoor(api=asked.ask, key=key, as_json=place.as_json), **options)

    return taking(Anywhere)(run)


def _key(file: Path | None) -> str:
    key = api_key_of(file)
    if not key:
        raise InvalidCall(
            "this needs an approver's API key",
            code="unauthenticated",
            hint="set AEGIS_API_KEY, or give --api-key-file; `aegis keys create --role approver` makes one",
        )
    return key


# What of a call decides whether a person says yes, the most telling first; the others follow as they stand.
_TELLING: Final = (
    "command", "amount", "currency", "to", "recipient", "payee", "iban", "url", "path", "query", "subject",
)  # fmt: skip
_NAMED: Final = 20  # receipts that are named beside their count; `--json` lists all
_GLANCE: Final = 60  # characters of one value that fit a line


def summed_up(arguments: dict[str, Any]) -> str:
    """Sum up the arguments of a held call for a line of a list."""
    order = sorted(arguments, key=lambda name: _TELLING.index(name) if name in _TELLING else len(_TELLING))
    return ", ".join(f"{name}: {_glance(arguments[name])}" for name in order)


def _glance(value: Any) -> str:
    text = value if isinstance(value, str) else json_text(value)
    return text if len(text) <= _GLANCE else text[: _GLANCE - 1] + "…"


app = typer.Typer(help="Held calls, and a person's answer to them.")

Approval = Annotated[
    str, typer.Argument(metavar="APPROVAL", help="the approval's id or how it begins; `last` is the newest that waits")
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="kept with the answer")]
State = Annotated[
    Literal["pending", "approved", "denied", "expired", "cancelled", "redeemed", "all"],
    typer.Option("--state", help="only these"),
]

_COLUMNS = (
    Column(title="APPROVAL", member="id", is_id=True),
    Column(title="STATE", member="state", weight=3),
    Column(title="KIND", member="kind", weight=2),
    Column(title="AGENT", member="agent", weight=1),
    Column(title="TOOL", member="tool"),
    Column(title="LEFT", member="expires_at", brief=time_left),
    Column(title="WHAT", member="arguments", write=json_text, brief=summed_up, least=36),
)


def _covered(grants: Any) -> str:
    """What a grant covers, in words: the same call again, or what of the session's data flow."""
    told = [
        f"`{one['does']}`{' by ' + one['tool'] if 'tool' in one else ''}"
        if one["scope"] == "deed"
        else f"{one['is']} at {one['sink']} from {one['document'][:14]}"
        for one in grants or ()
    ]
    return ", ".join(told) or "the same call"


_GRANT_COLUMNS = (
    Column(title="GRANT", member="id", is_id=True),
    Column(title="STATE", member="state"),
    Column(title="AGENT", member="agent", weight=2),
    Column(title="SESSION", member="session", weight=1),
    Column(title="TOOL", member="tool"),
    Column(title="COVERS", member="grants", write=_covered, weight=1),
    Column(title="EXPIRES", member="expires_at", brief=time_left),
)
_FIRST = ("id", "kind", "state", "agent", "tool", "server", "session", "call_id", "created_at", "expires_at")
_LAST = ("resolved_by", "reason", "call_digest", "policy_digest")


@app.command("list")
@opens
def list_approvals(door: ApiDoor, state: State = "pending", limit: Limit = 100, wide: Wide = False) -> None:
    """List held calls; by default those that wait for an answer."""
    query = urlencode({"state": state, "limit": limit})
    items = door.ask("GET", f"/v1/approvals?{query}")["items"]
    # What waits is what was asked for; among others the state tells them apart.
    columns = _COLUMNS if state == "pending" else [replace(one, weight=one.weight % 3) for one in _COLUMNS]
    show_list(items, columns, as_json=door.as_json, empty="nothing is held", wide=wide)


@app.command()
@opens
def show(door: ApiDoor, approval: Approval) -> None:
    """Show one held call: who asks, the tool, and the full arguments that would run."""
    value = door.ask("GET", _target(door, approval))
    if door.as_json:
        print_json(value)
    else:
        _show(value)


@app.command()
@opens
def approve(
    door: ApiDoor,
    approval: Approval,
    reason: Why = "",
    digest: Annotated[
        str, typer.Option("--call-digest", metavar="DIGEST", help="refuse unless exactly this call is held")
    ] = "",
    scope: Annotated[
        Scope,
        typer.Option("--scope", help="`session` covers the same call again, `document` and `deed` what is offered"),
    ] = "once",
    arguments: Annotated[
        str, typer.Option("--arguments", metavar="JSON", help="what is to run instead, doing no more than what is held")
    ] = "",
) -> None:
    """Let a held call run, once, exactly as it is shown, or with narrower arguments."""
    more: dict[str, Any] = {} if scope == "once" else {"scope": scope}
    if arguments:
        more["arguments"] = _parsed(arguments)
    _answer(door, approval, "approve", reason, digest, more)


@app.command()
@opens
def deny(door: ApiDoor, approval: Approval, reason: Why = "") -> None:
    """Refuse a held call."""
    _answer(door, approval, "deny", reason, "", {})


@app.command()
@opens
def always(
    door: ApiDoor,
    approval: Approval,
    write: Annotated[bool, typer.Option("--write", help="put the rule in force; takes an administrator's key")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="why it is right; kept with the rule")] = "",
    days: Annotated[int, typer.Option("--days", min=1, max=365, help="when the rule ends by itself")] = 30,
) -> None:
    """Propose a rule that lets calls through like those that people approved, and show what else it would have.

    Three approved calls of one kind propose it, one denied call ends it, and nothing is written without `--write`.
    """
    target = f"{_target(door, approval)}/always"
    told = door.ask("GET", target)
    if write:
        if not told["digest"]:
            raise InvalidCall(f"nothing is proposed: {told['why_not']}", code="conflict", status=409)
        if not reason.strip():
            raise InvalidCall("a rule says why it is right", hint='--reason "..."')
        body = {"digest": told["digest"], "reason": reason.strip(), "days": days}
        told["written"] = door.ask("POST", target, body)
    if door.as_json:
        print_json(told)
    else:
        _show_proposal(told, approval)


@app.command()
@opens
def watch(
    door: ApiDoor,
    seconds: Annotated[int, typer.Option("--for", min=0, help="end after so many seconds; 0 is never")] = 0,
) -> None:
    """Print each held call as it comes, until interrupted."""

    for item in watch_approvals(lambda target: door.ask("GET", target), seconds):
        if door.as_json:
            print_json(item)
        else:
            print_line()
            _show(item)


@app.command()
@opens
def grants(door: ApiDoor, limit: Limit = 100, wide: Wide = False) -> None:
    """List grants: calls that people approved for the rest of a session."""
    items = door.ask("GET", f"/v1/grants?limit={limit}")["items"]
    show_list(items, _GRANT_COLUMNS, as_json=door.as_json, empty="nothing is granted", wide=wide)


@app.command("revoke-grant")
@opens
def revoke_grant(door: ApiDoor, grant: Annotated[str, typer.Argument(metavar="GRANT", help="the grant's id")]) -> None:
    """Take a grant back; the next call asks a person again."""
    value = door.ask("POST", f"/v1/grants/{quote(grant, safe='')}/revoke")
    if door.as_json:
        print_json(value)
    else:
        show_members(
            {name: value.get(name) for name in ("id", "state", "tool", "session", "revoked_by")}, as_json=False
        )


def _show_proposal(told: dict[str, Any], approval: str) -> None:
    if not told["digest"]:
        print_line(f"nothing is proposed: {told['why_not']}")
        return
    for line in told["lines"].splitlines():
        print_line(visible(line))
    seen = told["replay"]
    span = f"the last {seen['weeks']} weeks" if seen["complete"] else "those that were looked at, the newest"
    print_line()
    print_line(f"of {seen['replayed']} calls of the tool in {span}, it would have let through")
    print_line(f"- {seen['approved']} that people approved")
    named = ", ".join(str(one["index"]) for one in seen["receipts"][:_NAMED])
    named += ", ..." if seen["others"] > _NAMED else ""
    what = "other" if seen["others"] == 1 else "others"
    print_line(f"- {seen['others']} {what}{f': receipts {named}' if named else ''}")
    if "written" in told:
        print_line(f"in force as {told['written']['digest']}")
    else:
        note(f'`aegis approvals always {approval} --write --reason "..."` writes it')


def _proposes(value: dict[str, Any]) -> None:
    if value.get("alike"):
        note(f"people approved {value['alike']} such calls: `aegis approvals always {value['id']}` proposes a rule")


def _parsed(text: str) -> Any:
    from aegis.core.json import parse

    value = parse(text.encode())
    if not isinstance(value, dict):
        raise InvalidCall("`--arguments` must be a JSON object")
    return value


def _answer(door: ApiDoor, approval: str, decision: str, reason: str, digest: str, more: dict[str, Any]) -> None:
    """Answer what was read just before: the digests go back, so that nothing else can be meant."""
    target = _target(door, approval)
    held = door.ask("GET", target)
    if digest and held.get("call_digest") != digest:
        raise InvalidCall("another call is held under this approval", code="conflict", status=409)
    body: dict[str, Any] = {"decision": decision, **more}
    body |= {name: held[name] for name in ("call_digest", "policy_digest") if held.get(name)}
    if reason:
        body["reason"] = reason
    value = door.ask("POST", target, body)
    if door.as_json:
        print_json(value)
    else:
        shown = {name: value.get(name) for name in ("id", "state", "tool", "agent", "resolved_by")}
        if value.get("quorum", 1) > 1:
            shown["votes"] = f"{len(value['votes'])} of {value['quorum']}"
        if value.get("grant"):
            shown["grant"] = value["grant"]
        show_members(shown, as_json=False)
        _proposes(value)


def _show(value: dict[str, Any]) -> None:
    show_members({name: value.get(name) for name in _FIRST}, as_json=False)
    print_line()
    print_line("arguments")
    arguments = value.get("arguments")
    if arguments is None:
        print_line("  (erased)")
    else:
        for line in _lines(arguments):
            print_line(f"  {line}")
    for line in _about(value):
        print_line(line)
    for found in value.get("findings", ()):
        show_members({"finding": f"{found['rule']} at {found['path'] or '/'}: {found['message']}"}, as_json=False)
    print_line()
    show_members({name: value.get(name) for name in _LAST}, as_json=False)
    _proposes(value)


def _about(value: dict[str, Any]) -> list[str]:
    """What the gateway worked out about the call: its facts, what it would do, and who agreed so far."""
    lines: list[str] = []
    if value.get("waiting_for"):
        lines.append(f"waits for evidence: {', '.join(value['waiting_for'])}")
    facts = value.get("facts")
    if facts:
        kinds = ", ".join(facts["effects"]) or "none"
        undone = "cannot be undone" if facts["irreversible"] else "can be undone"
        lines += ["", f"risk {facts['risk']}, effects {kinds}, {undone}"]
        if facts.get("working_directory"):
            lines.append(f"relative paths start at {facts['working_directory']}")
    if value.get("narrowed"):
        lines += ["", "narrowed by an approver; submitted was", *(f"  {line}" for line in _lines(value["submitted"]))]
    preview = value.get("preview")
    if preview:
        lines += ["", "preview (one run, under other conditions)", *(f"  {line}" for line in _lines(preview))]
    votes = value.get("votes", ())
    if votes or value.get("quorum", 1) > 1:
        named = ", ".join(vote["by"] for vote in votes) or "nobody"
        lines += ["", f"{len(votes)} of {value['quorum']} approved: {named}"]
    if value.get("fatigued"):
        lines.append(f"as many calls as one person may approve in an hour: {', '.join(value['fatigued'])}")
    return lines


def _lines(arguments: Any) -> list[str]:
    """The arguments in full; where letters beyond ASCII could pass for others, once more spelled out."""
    import json

    from aegis.core.text import json_text

    text = json_text(arguments, pretty=True)
    if text.isascii():
        return text.splitlines()
    spelled = json.dumps(arguments, indent=2)
    return [*text.splitlines(), "", "the same with every character beyond ASCII spelled out", *spelled.splitlines()]


def _target(door: ApiDoor, approval: str) -> str:
    """The path of an approval; a short name is looked for among those that wait.

    Raises `InvalidCall` where it names none of them, or several.
    """
    if approval == "last" or LEAST_PREFIX <= len(approval) < ID_CHARS:
        items = door.ask("GET", "/v1/approvals?state=pending&limit=1000")["items"]
        if approval == "last":
            found = [item["id"] for item in sorted(items, key=lambda item: str(item["created_at"]))[-1:]]
        else:
            found = [item["id"] for item in items if item["id"].startswith(approval)]
        if len(found) != 1:
            what = "several calls that wait begin so" if found else "no call that waits has this name"
            raise InvalidCall(f"{what}: `{approval}`", code="not_found", hint="`aegis approvals list` shows them")
        approval = found[0]
    return f"/v1/approvals/{quote(approval, safe='')}"
