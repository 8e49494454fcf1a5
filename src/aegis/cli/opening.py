"""A home opened for one command, and closed however the command ends."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aegis.cli.options import home_of
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.bootstrap import State


@contextmanager
def opened(home: Path | None, config: Path | None, accept_rollback: str | None = None) -> Iterator[State]:
    """The state in `home`, made where there is none; `accept_rollback` is why a log that went back is right."""
    from aegis.bootstrap import open_state

    state = open_state(config, home_of(home), accept_rollback=accept_rollback)
    try:
        yield state
    finally:
        state.close()


@contextmanager
def existing(home: Path | None, config: Path | None, accept_rollback: str | None = None) -> Iterator[State]:
    """The state in `home`; raises `InvalidCall` where nothing was ever kept there."""
    place = home_of(home)
    if not (place / "keys").is_dir():
        raise InvalidCall(
            f"there is no home at `{place}`", code="not_found", hint="`aegis init` makes one; --home names another"
        )
    with opened(place, config, accept_rollback) as state:
        yield state


def operator() -> str:
    """Whom the log names for a change that was made at this command line: the owner of the home."""
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name, as containers have them
        return "operator"
