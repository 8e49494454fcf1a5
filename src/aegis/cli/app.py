"""The tree of commands. Modules of commands import what they need when they run, so that help is quick."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from aegis._version import __version__
from aegis.cli.commands import (
    agents,
    approvals,
    bench,
    config,
    hook,
    judge,
    keys,
    log,
    mcp,
    missions,
    rules,
    tools,
    users,
)
from aegis.cli.commands.decide import decide
from aegis.cli.commands.demo import demo
from aegis.cli.commands.doctor import doctor
from aegis.cli.commands.explain import explain
from aegis.cli.commands.init import init
from aegis.cli.commands.serve import serve


def build() -> Any:
    """The command line as one callable; boxes and colours only where a person looks."""
    app = typer.Typer(
        name="aegis",
        help="Decide whether an AI agent's tool call may run, before it runs, and prove it afterwards.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
    )
    app.callback()(_aegis)
    for command in (demo, init, serve, decide, explain, doctor):
        app.command()(command)
    for group in (approvals, agents, keys, users, log, config, rules, missions, tools, judge, hook, mcp, bench):
        app.add_typer(group.app, name=group.__name__.rpartition(".")[2])
    return typer.main.get_command(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"aegis {__version__}")
        raise typer.Exit


def _aegis(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Decide whether an AI agent's tool call may run, before it runs, and prove it afterwards."""
