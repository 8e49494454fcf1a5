"""The tree of commands. Modules of commands import what they need when they run, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from aegis._version import __version__
from aegis.approvals import commands as approvals_commands
from aegis.behaviour import commands as behaviour_commands
from aegis.cli import agents, bench, config, hook, keys, log, mcp, rules, tools, users
from aegis.cli.decide import decide
from aegis.cli.demo.command import demo
from aegis.cli.doctor.command import doctor
from aegis.cli.explain import explain
from aegis.cli.init import init
from aegis.cli.serve import serve
from aegis.judges import commands as judges_commands
from aegis.missions import commands as missions_commands

GROUPS: Final[Mapping[str, Any]] = {
    "approvals": approvals_commands, "agents": agents, "containment": behaviour_commands, "keys": keys, "users": users,
    "log": log, "config": config,
    "rules": rules, "missions": missions_commands, "tools": tools, "judge": judges_commands, "hook": hook, "mcp": mcp,
    "bench": bench,
}  # fmt: skip


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
    for command in (demo, init, serve, decide, explain, doctor, behaviour_commands.kill):
        app.command()(command)
    for name, group in GROUPS.items():
        app.add_typer(group.app, name=name)
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
