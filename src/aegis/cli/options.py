"""The options that several commands take, each spelled once."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, TypeVar

import typer

DEFAULT_PORT: Final = 8787
DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"

Home = Annotated[
    Path | None,
    typer.Option("--home", envvar="AEGIS_HOME", metavar="DIR", help="where keys and log live; default ~/.aegis"),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="AEGIS_CONFIG", metavar="FILE", help="the configuration; default: built in"),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Wide = Annotated[bool, typer.Option("--wide", help="every column and whole ids, however narrow the terminal")]
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="AEGIS_URL", metavar="URL", help="a running gateway, in place of a home"),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--api-key-file", metavar="FILE", help="a file with the API key; default: AEGIS_API_KEY"),
]
AcceptRollback = Annotated[
    str | None,
    typer.Option(
        "--accept-rollback",
        metavar="REASON",
        help="go on with a log that is older than this home saw it, or another one; recorded with the reason",
    ),
]
ID_CHARS: Final = 32
LEAST_PREFIX: Final = 8  # characters of an id that name it, where no other begins so
RECEIPT: Final = "the index of a receipt, its id, how the id begins, or `last`"
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="how many at most")]

_Options = TypeVar("_Options")
_Result = TypeVar("_Result")


def taking(
    options: type[_Options],
) -> Callable[[Callable[Concatenate[_Options, ...], _Result]], Callable[..., _Result]]:
    """Make of a command that takes `options` first one that takes each of its members last, as an option."""
    common = inspect.signature(options, eval_str=True).parameters

    def taken(command: Callable[Concatenate[_Options, ...], _Result]) -> Callable[..., _Result]:
        @functools.wraps(command)
        def run(**given: Any) -> _Result:
            members = {name: given.pop(name) for name in common}
            return command(options(**members), **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        parameters = [*own, *common.values()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return taken


def home_of(home: Path | None) -> Path:
    """The home that a command works on: the given one, or `~/.aegis`."""
    return (home or Path.home() / ".aegis").expanduser().absolute()


def api_key_of(file: Path | None) -> str:
    """The API key from `file`, or from `AEGIS_API_KEY`; empty where neither is given."""
    if file is None:
        return os.environ.get("AEGIS_API_KEY", "").strip()
    return file.read_text(encoding="utf-8").strip()
