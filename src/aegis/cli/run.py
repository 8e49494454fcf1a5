"""One run of the command line: arguments in, exit code out; every failure is one line on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from aegis.cli import failure
from aegis.cli.failure import say, say_problems
from aegis.errors import AegisError, ConfigError, InvalidCall, StoreError

# Packages that an extra brings, by the name that is imported: a command that needs one says which extra it is.
_EXTRAS: Final = {
    "aiosmtplib": "server",
    "argon2": "server",
    "jinja2": "server",
    "opentelemetry": "server",
    "prometheus_client": "server",
    "reportlab": "server",
    "starlette": "server",
    "uvicorn": "server",
    "langgraph": "runs",
    "mcp": "mcp",
    "psycopg": "postgres",
}


def run(argv: Sequence[str]) -> int:
    """Run one command and give back its exit code; a traceback is a defect of this project alone."""
    from typer import Abort, TyperException

    from aegis.cli.app import build

    as_json = "--json" in argv
    if sys.platform == "win32":
        say("Windows is not supported", code="platform", hint="use Linux or macOS; WSL is Linux", as_json=as_json)
        return failure.USAGE
    try:
        code = build()(list(argv) or ["--help"], prog_name="aegis", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else failure.DONE
    except TyperException as error:
        say(_plain(error.format_message()), code="usage", hint=_usage_hint(error), as_json=as_json)
        return failure.USAGE
    except ConfigError as error:
        say_problems(error.problems, as_json=as_json)
        return failure.USAGE
    except InvalidCall as error:
        say(error.message, code=error.code, hint=error.hint, as_json=as_json)
        return failure.USAGE
    except StoreError as error:
        say(str(error), code="store", hint="`aegis doctor` looks for the cause", as_json=as_json)
        return failure.REFUSED
    except AegisError as error:
        say(str(error), code="refused", as_json=as_json)
        return failure.USAGE
    except BrokenPipeError:
        # The reader went away: nothing more can be said, and the interpreter must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failure.REFUSED
    except OSError as error:
        name = f" `{error.filename}`" if error.filename else ""
        say(f"{(error.strerror or type(error).__name__).lower()}{name}", code="system", as_json=as_json)
        return failure.USAGE
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        hint = f'pip install "aegis-guard[{extra}]"'
        say(f"this command needs the package `{error.name}`", code="not_installed", hint=hint, as_json=as_json)
        return failure.USAGE
    except (Abort, KeyboardInterrupt):
        return failure.INTERRUPTED


def _plain(message: str) -> str:
    """Put the parser's sentence in the style of this project's messages."""
    line = " ".join(message.split()).rstrip(".")
    return line[:1].lower() + line[1:]


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows how" if context is not None else "`aegis --help` shows how"
