"""`aegis decide`: one call decided and recorded, for scripts and hooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aegis.cli import output
from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url, api_key_of
from aegis.cli.output import STYLES, print_json, print_line
from aegis.core.text import json_text, visible
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.core.call import ToolCall
    from aegis.core.decision import Decision

MAX_INPUT: Final = 4_194_304  # the body that the HTTP API accepts


def decide(
    source: Annotated[str, typer.Argument(metavar="FILE", help="a tool call as JSON; `-` reads standard input")],
    config: ConfigFile = None,
    home: Home = None,
    agent: Annotated[str, typer.Option("--agent", envvar="AEGIS_AGENT", help="decide as this agent")] = "local",
    url: Url = None,
    key_file: KeyFile = None,
    findings: Annotated[bool, typer.Option("--findings", help="print what the guards found, masked")] = False,
    as_json: Json = False,
) -> int:
    """Decide one tool call: 0 allow or sanitize, 1 block, 3 a person has to approve, 2 malformed."""
    from aegis.core.json import parse
    from aegis.server.wire import call_of

    call = call_of(parse(_read(source)))
    if url is not None:
        decision = _ask_gateway(call, url, api_key_of(key_file))
    else:
        decision = _decide_here(call, config, home, agent)
    wire = decision.to_wire(findings=findings)
    if as_json or not sys.stdout.isatty():
        print_json(wire)
    else:
        _show(wire)
    return _EXITS[wire["decision"]]


_EXITS: Final = {
    "allow": output.DONE,
    "sanitize": output.DONE,
    "block": output.REFUSED,
    "require_approval": output.HELD,
}


def _read(source: str) -> bytes:
    if source == "-":
        data = sys.stdin.buffer.read(MAX_INPUT + 1)
    else:
        with Path(source).open("rb") as file:
            data = file.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise InvalidCall(f"the input is over {MAX_INPUT} bytes", code="too_large", status=413)
    return data


def _ask_gateway(call: ToolCall, url: str, key: str) -> Decision:
    from aegis.sdk.client import Client

    client = Client(url, key)
    try:
        return client.decide(call)
    finally:
        client.close()


def _decide_here(call: ToolCall, config: Path | None, home: Path | None, agent: str) -> Decision:
    from aegis.bootstrap import open_deployment

    deployment = open_deployment(config, home, agent=agent)
    try:
        return deployment.gate.decide(call)
    finally:
        deployment.close()


def _show(wire: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    outcome = wire["decision"]
    head = Text(outcome, style=f"bold {STYLES[outcome]}")
    head.append(f"  {wire['reason']}, {wire['verdict']}, risk {wire['risk']}", style="not bold default")
    Console(highlight=False).print(head)
    print_line(f"  {visible(wire['message'])}")
    if "arguments" in wire:
        print_line(f"  to run instead: {json_text(wire['arguments'])}")
    if "approval" in wire:
        approval = wire["approval"]
        print_line(f"  approval {approval['id']}, open until {approval['expires_at']}")
    for found in wire.get("findings", ()):
        print_line(f"  {visible(found['rule'])} at {visible(found['path']) or '/'}: {visible(found['message'])}")
    if "receipt" in wire:
        print_line(f"  receipt {wire['receipt']['index']}, {wire['receipt']['leaf_hash']}")
