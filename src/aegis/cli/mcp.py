"""`aegis mcp`: servers of the Model Context Protocol, wrapped so that what they are asked for is decided."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from aegis.cli import output
from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url, api_key_of, home_of
from aegis.cli.output import print_json, print_line
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.core.decider import Decider
    from aegis.core.outcome import Reason
    from aegis.detect.rules.scanner import Scanner
    from aegis.proxies.mcp.clients import Edit, McpClient
    from aegis.proxies.mcp.judge import Refused, Resolve, Said
    from aegis.proxies.mcp.messages import ServerEnd

app = typer.Typer(help="Govern MCP servers: wrap one, or all that a client is configured with.")

DEFAULT_WAIT_S: Final = 300.0
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="the server's name: its tools are `mcp:NAME/...`")]
Agent = Annotated[str, typer.Option("--agent", envvar="AEGIS_AGENT", help="decide as this agent")]
Pins = Annotated[
    Path | None, typer.Option("--pins", metavar="FILE", help="the file of pins; default: tool-pins.json in the home")
]
OnlyPinned = Annotated[bool, typer.Option("--only-pinned", help="show only tools that were accepted before")]
Session = Annotated[str, typer.Option("--session", metavar="NAME", help="make the calls part of this session")]
Approver = Annotated[
    Path | None,
    typer.Option("--approver-key-file", metavar="FILE", help="ask the person at the client, who holds this key"),
]
Upstream = Annotated[
    str | None, typer.Option("--upstream", metavar="URL", help="the server is there, over streamable HTTP")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VARIABLE", help="send this header, with the value of the variable"),
]
Bearer = Annotated[
    str | None, typer.Option("--bearer", metavar="VARIABLE", help="send the token in this variable as the credential")
]
Was = Annotated[str | None, typer.Option("--was", hidden=True, help="what `uninstall` puts back")]
Client = Annotated[
    str, typer.Argument(metavar="CLIENT", help="claude-code, claude-desktop, codex, cursor, vscode, ...")
]
Project = Annotated[Path | None, typer.Option("--project", metavar="DIR", help="the configuration of this project")]
Only = Annotated[str | None, typer.Option("--server", metavar="NAME", help="this server alone")]


@app.command()
def wrap(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="the server's command, without --upstream")
    ] = None,
    name: Name = "server",
    config: ConfigFile = None,
    home: Home = None,
    agent: Agent = "mcp-client",
    url: Url = None,
    key_file: KeyFile = None,
    pins: Pins = None,
    only_pinned: OnlyPinned = False,
    session: Session = "",
    wait: Annotated[float, typer.Option("--wait", min=0, help="seconds that a held call waits")] = DEFAULT_WAIT_S,
    approver_key_file: Approver = None,
    upstream: Upstream = None,
    header: Headers = None,
    bearer: Bearer = None,
    was: Was = None,
) -> int:
    """Run COMMAND, an MCP server over standard input and output, and decide every call before it sees it.

    With --upstream the server is at that URL instead, over streamable HTTP.
    """

    if (upstream is None) == (not command):
        raise InvalidCall("give the server's command after `--`, or its URL with --upstream", code="usage")

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="aegis: %(message)s")
    with _parts(config, home, agent, url, key_file, approver_key_file) as (decider, scanner, resolve):
        return run_wrapped(
            Wrapping(
                name=name,
                command=command or (),
                upstream=upstream or "",
                headers=_headers(header or (), bearer),
                decider=decider,
                scanner=scanner,
                pins=pins or home_of(home) / "tool-pins.json",
                only_pinned=only_pinned,
                session=session,
                wait_seconds=wait,
                resolve=resolve,
            )
        )


@app.command()
def install(
    client: Client,
    project: Project = None,
    server: Only = None,
    config: ConfigFile = None,
    home: Home = None,
    agent: Agent = "",
    url: Url = None,
    key_file: KeyFile = None,
    only_pinned: OnlyPinned = False,
    as_json: Json = False,
) -> int:
    """Wrap the servers that CLIENT is configured with; exit 1 where one of them could not be wrapped."""
    from aegis.proxies.mcp.clients import file_of, wrap_all

    chosen = _client(client)
    words = [str(Path(sys.argv[0]).absolute()), "mcp", "wrap", "--agent", agent or chosen.name]
    for option, value in (("--config", config), ("--home", home), ("--api-key-file", key_file)):
        words += [option, str(value.expanduser().absolute())] if value is not None else []
    words += ["--url", url] if url is not None else []
    words += ["--only-pinned"] if only_pinned else []
    return _said(wrap_all(file_of(chosen, project), chosen, words, only=server), "wrapped", as_json)


@app.command()
def uninstall(client: Client, project: Project = None, server: Only = None, as_json: Json = False) -> int:
    """Put the servers of CLIENT back as they were before they were wrapped."""
    from aegis.proxies.mcp.clients import file_of, unwrap_all

    chosen = _client(client)
    edit = unwrap_all(file_of(chosen, project), chosen, only=server)
    return _said(edit, "as before", as_json, complete=True)


def _client(name: str) -> McpClient:
    from aegis.proxies.mcp.clients import CLIENTS

    found = CLIENTS.get(name)
    if found is None:
        raise InvalidCall(f"there is no client `{name}`", code="client", hint=f"known are {', '.join(CLIENTS)}")
    return found


def _said(edit: Edit, done: str, as_json: bool, *, complete: bool = False) -> int:
    if as_json:
        backup = None if edit.backup is None else str(edit.backup)
        print_json({"file": str(edit.path), "changed": list(edit.changed), "left": list(edit.left), "backup": backup})
    else:
        print_line(f"{edit.path}: {len(edit.changed)} servers {done}")
        for name in edit.changed:
            print_line(f"  {name}")
        for name in edit.left:
            print_line(f"  not covered: {name} is neither a command nor a URL that can be wrapped")
        if edit.backup is not None:
            print_line(f"  the file before: {edit.backup}")
    return output.REFUSED if edit.left and not complete else output.DONE


def _headers(given: Sequence[str], bearer: str | None) -> dict[str, str]:
    """The headers for a server: their values come from the environment, where no list of processes shows them."""
    found = {}
    for one in given:
        name, _, variable = one.partition("=")
        value = os.environ.get(variable)
        if not name or not variable or value is None:
            raise InvalidCall(
                f"`--header {one}` names no variable of the environment", code="header", hint="--header NAME=VARIABLE"
            )
        found[name.lower()] = value
    if bearer is not None:
        token = os.environ.get(bearer)
        if not token:
            raise InvalidCall(f"the variable `{bearer}` holds no token", code="header")
        found["authorization"] = f"Bearer {token}"
    return found


@contextmanager
def _parts(
    config: Path | None,
    home: Path | None,
    agent: str,
    url: str | None,
    key_file: Path | None,
    approver: Path | None,
) -> Iterator[tuple[Decider, Scanner, Resolve | None]]:
    """Who decides, what scans, and who may approve: a gateway, or a gate of our own over the home."""
    if url is not None:
        from aegis.detect.rules import builtin_folder, load
        from aegis.detect.rules.cache import default_cache_folder
        from aegis.detect.rules.scanner import Scanner
        from aegis.sdk.client import Client as GatewayClient

        client = GatewayClient(url, api_key_of(key_file))
        try:
            scanner = Scanner(load(builtin_folder()), cache=default_cache_folder())
            yield client, scanner, None if approver is None else _over_http(url, api_key_of(approver))
        finally:
            client.close()
        return
    from aegis.bootstrap import open_deployment

    deployment = open_deployment(config, home_of(home), agent=agent)
    try:
        resolve = None
        if approver is not None:
            from aegis.cli.opening import resolver

            resolve = resolver(deployment, api_key_of(approver))
        yield deployment.gate, deployment.policy.current.scanner, resolve
    finally:
        deployment.close()


def _over_http(url: str, key: str) -> Resolve:
    import asyncio

    from aegis.cli.remote import Gateway

    async def resolve(said: Said) -> None:
        await asyncio.to_thread(Gateway(url=url).ask, "POST", f"/v1/approvals/{said.approval}", key, said.to_wire())

    return resolve


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapping:
    """How a server is wrapped: a command, or where `upstream` is given the server at that URL, with `headers`.

    `resolve` answers approvals with an approver's key, where the host was given one.
    """

    name: str
    command: Sequence[str]
    decider: Decider
    scanner: Scanner
    pins: Path
    only_pinned: bool
    session: str
    wait_seconds: float
    resolve: Resolve | None = None
    upstream: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def run_wrapped(wrapping: Wrapping) -> int:
    """Run the server behind the proxy until one side ends; its exit code, or 1 where a signal ended it."""
    code = asyncio.run(_run(wrapping))
    return code if 0 <= code < 256 else 1


async def _run(wrapping: Wrapping) -> int:
    from aegis.enforce.enforcement import Enforcer
    from aegis.enforce.scope import Session
    from aegis.policy.guards.descriptions import DescriptionScanner
    from aegis.proxies.mcp.judge import AskingDecider
    from aegis.proxies.mcp.judge import McpJudge as Judge
    from aegis.proxies.mcp.messages import standard_streams
    from aegis.proxies.mcp.stdio import Wrapped
    from aegis.proxies.mcp.tools import PinFile, ToolBook

    server_end = await _server(wrapping)
    try:
        connection = Wrapped(await standard_streams(), server_end)
        decider = wrapping.decider
        if wrapping.resolve is not None:
            decider = AskingDecider(decider, connection.elicit, wrapping.resolve)
        server = f"mcp:{wrapping.name}"
        connection.judged_by(
            Judge(
                server=server,
                enforcer=Enforcer(decider, approval_timeout=wrapping.wait_seconds),
                tools=ToolBook(
                    server,
                    DescriptionScanner(wrapping.scanner),
                    PinFile(wrapping.pins),
                    only_pinned=wrapping.only_pinned,
                ),
                ask=connection.ask_server,
                session=Session(name=wrapping.session) if wrapping.session else None,
                refused=_recorder(wrapping),
            )
        )
        await connection.run()
    finally:
        code = await server_end.stop()
    return code


async def _server(wrapping: Wrapping) -> ServerEnd:
    """Give the server's end of the connection, started or about to be asked."""
    from aegis.outbound.client import Egress, EgressPolicy
    from aegis.proxies.mcp.messages import ProcessEnd
    from aegis.proxies.mcp.remote import IDLE_S, MAX_ANSWER_BYTES, TOTAL_S, HttpEnd

    if not wrapping.upstream:
        return await ProcessEnd.start(wrapping.command)
    try:
        parts = urlsplit(wrapping.upstream)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InvalidCall("the server's address is not a URL", code="upstream") from error
    # Whoever names the address here means it, be it on this machine or inside of a network.
    policy = EgressPolicy(
        private=frozenset({f"{parts.hostname}:{port}"}),
        total_seconds=TOTAL_S,
        idle_seconds=IDLE_S,
        max_bytes=MAX_ANSWER_BYTES,
    )
    return HttpEnd(wrapping.upstream, wrapping.headers, Egress(policy))


def _recorder(wrapping: Wrapping) -> Refused | None:
    """Record what is refused undecided, in the log of this home; a gateway elsewhere takes no such receipts."""
    from aegis.gate import Gate
    from aegis.gate.events import refused_tool

    gate = wrapping.decider
    if not isinstance(gate, Gate):
        return None

    async def refused(tool: str, reason: Reason) -> None:
        session, server = wrapping.session or None, f"mcp:{wrapping.name}"
        unit = refused_tool(tool, server=server, reason=reason, session=session, principal=gate.principal)
        await gate.arecord(unit)

    return refused
