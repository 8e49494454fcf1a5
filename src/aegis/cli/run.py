"""The command line: the tree of commands, and one run of it, in which every failure is one line on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from aegis._version import __version__
from aegis.cli import output
from aegis.cli.output import say, say_problems
from aegis.errors import AegisError, ConfigError, InvalidCall, StoreError

# The tree of commands, by where each stands. Only what is asked for is loaded: most of a short command is its imports.
# A module of a command may say in `SETTINGS` how it is registered.

COMMANDS: Final[Mapping[str, str]] = {
    "demo": "aegis.cli.demo.run", "init": "aegis.cli.init", "serve": "aegis.cli.serve", "decide": "aegis.cli.decide",
    "why": "aegis.cli.why", "explain": "aegis.runs.explain", "doctor": "aegis.cli.doctor.command",
    "kill": "aegis.behaviour.commands", "report-false-alarm": "aegis.cli.false_alarm",
    "run": "aegis.cli.running.command",
}  # fmt: skip
GROUPS: Final[Mapping[str, str]] = {
    "approvals": "aegis.approvals.commands", "agents": "aegis.cli.agents", "containment": "aegis.behaviour.commands",
    "alerts": "aegis.behaviour.alert_commands", "canaries": "aegis.behaviour.canary_commands", "keys": "aegis.cli.keys",
    "users": "aegis.cli.users", "log": "aegis.cli.log", "config": "aegis.cli.config", "rules": "aegis.cli.rules",
    "missions": "aegis.missions.commands", "tools": "aegis.cli.tools", "judge": "aegis.judges.commands",
    "hook": "aegis.cli.hook", "mcp": "aegis.cli.mcp", "bench": "aegis.cli.bench",
}  # fmt: skip


def build(asked: str = "") -> Any:
    """The command line as one callable, of the command `asked` alone where that is one; plain where no person looks."""
    app = typer.Typer(
        name="aegis",
        help="Decide whether an AI agent's tool call may run, before it runs, and prove it afterwards.",
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
    )
    app.callback()(_aegis)
    known = asked in COMMANDS or asked in GROUPS or asked == "--version"
    for name, module in COMMANDS.items():
        if name == asked or not known:
            loaded = import_module(module)
            app.command(**getattr(loaded, "SETTINGS", {}))(getattr(loaded, name.replace("-", "_")))
    for name, module in GROUPS.items():
        if name == asked or not known:
            app.add_typer(import_module(module).app, name=name)
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
    "httptools": "server",
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
        code = build(argv[0] if argv else "")(list(argv) or ["--help"], prog_name="aegis", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else output.DONE
    except TyperException as error:
        said = _plain(error.format_message())
        say(said, code="usage", hint=_usage_hint(error, said), as_json=as_json)
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
    line = " ".join(message.split()).rstrip(".").replace("': Value error, '", "': '")
    return line[:1].lower() + line[1:]


def _usage_hint(error: Exception, said: str) -> str:
    given, one_of, words = said.partition("' is not one of ")
    if one_of:
        from aegis.config.document import nearest

        return nearest(given.rpartition("'")[2], words.strip("'").split("', '"))
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows how" if context is not None else "`aegis --help` shows how"
