"""`aegis demo`: everything at work, on this machine alone."""

from __future__ import annotations

from typing import Annotated

import typer

from aegis.cli import failure
from aegis.cli.failure import say
from aegis.errors import AegisError


def demo(
    once: Annotated[bool, typer.Option("--once", help="exit at the end; otherwise the gateway stays up")] = False,
) -> int:
    """Show a gateway, two agents on real clients, and the log of what happened, verified offline.

    The model is a script on loopback that speaks the vendors' wire protocols; everything else is
    real. Exits 1 when anything is not as it must be.
    """
    try:
        import anthropic  # noqa: F401  the story needs both clients, and the server
        import openai  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise AegisError(
            f'the demonstration needs the package `{error.name}`: pip install "aegis-guard[server,openai,anthropic]"'
        ) from error
    from aegis.cli.demo.run import run
    from aegis.cli.demo.stage import DemoFailed

    try:
        run(once=once)
    except DemoFailed as error:
        say(str(error), code="demo")
        return failure.REFUSED
    return failure.DONE
