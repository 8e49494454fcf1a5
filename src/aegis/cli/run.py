"""The command line: the tree of commands, and one run of it, in which every failure is one line on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from aegis._version import __version__
from aegis.approvals import commands as approvals_commands
from aegis.behaviour import canary_commands
from aegis.behaviour import commands as behaviour_commands
from aegis.cli import agents, bench, config, hook, keys, log, mcp, output, rules, tools, users
from aegis.cli.decide import decide
from aegis.cli.demo.run import demo
from aegis.cli.doctor.command import doctor
from aegis.cli.explain import explain
from aegis.cli.false_alarm import report_false_alarm
from aegis.cli.init import init
from aegis.cli.output import say, say_problems
from aegis.cli.running.command import SETTINGS as RUN_SETTINGS
from aegis.cli.running.command import run as run_command
from aegis.cli.serve import serve
from aegis.cli.why import why
from aegis.errors import AegisError, ConfigError, InvalidCall, StoreError
from aegis.judges import commands as judges_commands
from aegis.missions import commands as missions_commands

# The tree of commands. Modules of commands import what they need when they run, so that help is quick.

GROUPS: Final[Mapping[str, Any]] = {
    "approvals": approvals_commands, "agents": agents, "containment": behaviour_commands,
    "canaries": canary_commands, "keys": keys, "users": users,
    "log": log, "config": config,
    "rules": rules, "missions": missions_commands, "tools": tools, "judge": judges_commands, "hook": hook, "mcp": mcp,
    "bench": bench,
}  # fmt: skip


def build() -> Any:
    """The command line as one callable; boxes and colours only where a person looks."""
    app = typer.Typer(
        name="aegis",
        help="Decide whether an AI agent's tool call may run, before it runs, and prove it afterwards.",
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
    )
    app.callback()(_aegis)
    for command in (demo, init, serve, decide, why, explain, doctor, behaviour_commands.kill, report_false_alarm):
        app.command()(command)
    app.command(**RUN_SETTINGS)(run_command)
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


# Packages that an extra brings, by the name that is imported: a command that needs one says which extra it is.
EXTRAS: Final = {
    "aiosmtplib": "server",
    "argon2": "server",
    "jinja2": "server",
    "markupsafe": "server",
    "opentelemetry": "server",
    "prometheus_client": "server",
    "reportlab": "server",
    "starlette": "server",
    "uvicorn": "server",
    "uvloop": "server",
    "aiosqlite": "runs",
    "langgraph": "runs",
    "mcp": "mcp",
    "psycopg": "postgres",
}


def run(argv: Sequence[str]) -> int:
    """Run one command and give back its exit code; a traceback is a defect of this project alone."""
    from typer import Abort, TyperException

    as_json = "--json" in argv
    if sys.platform == "win32":
        say("Windows is not supported", code="platform", hint="use Linux or macOS; WSL is Linux", as_json=as_json)
        return output.USAGE
    try:
        code = build()(list(argv) or ["--help"], prog_name="aegis", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else output.DONE
    except TyperException as error:
        say(_plain(error.format_message()), code="usage", hint=_usage_hint(error), as_json=as_json)
        return output.USAGE
    except ConfigError as error:
        say_problems(error.problems, as_json=as_json)
        return output.USAGE
    except InvalidCall as error:
        say(error.message, code=error.code, hint=error.hint, as_json=as_json)
        return output.USAGE
    except StoreError as error:
        say(str(error), code="store", hint="`aegis doctor` looks for the cause", as_json=as_json)
        return output.REFUSED
    except AegisError as error:
        say(str(error), code="refused", as_json=as_json)
        return output.USAGE
    except BrokenPipeError:
        # The reader went away: nothing more can be said, and the interpreter must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return output.REFUSED
    except OSError as error:
        name = f" `{error.filename}`" if error.filename else ""
        say(f"{(error.strerror or type(error).__name__).lower()}{name}", code="system", as_json=as_json)
        return output.USAGE
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        hint = f'pip install "aegis-guard[{extra}]"'
        say(f"this command needs the package `{error.name}`", code="not_installed", hint=hint, as_json=as_json)
        return output.USAGE
    except (Abort, KeyboardInterrupt):
        return output.INTERRUPTED


def _plain(message: str) -> str:
    """Put the parser's sentence in the style of this project's messages."""
    line = " ".join(message.split()).rstrip(".")
    return line[:1].lower() + line[1:]


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows how" if context is not None else "`aegis --help` shows how"
