"""The home: whose it is, who can enter, its keys and its configuration."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aegis.cli.doctor.model import Found, Patient
from aegis.errors import ConfigError, KeyFileError

_PURPOSES: Final = ("log", "receipt", "permit", "payload", "mission", "attestation")


def folder(patient: Patient) -> Iterable[Found]:
    """Whoever can write the home can do everything; whoever can enter it can read the log."""
    try:
        status = patient.home.stat()
    except FileNotFoundError:
        yield Found(check="home", state="fail", found=f"`{patient.home}` does not exist", hint="`aegis init` makes it")
        return
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (os.geteuid(), 0):
        yield Found(check="home", state="fail", found=f"`{patient.home}` belongs to another user", hint="use its owner")
    elif mode & 0o022:
        yield Found(
            check="home", state="fail", found=f"others can write `{patient.home}`", hint=f"chmod 700 {patient.home}"
        )
    elif mode & 0o055:
        yield Found(
            check="home", state="warn", found=f"others can enter `{patient.home}`", hint=f"chmod 700 {patient.home}"
        )
    else:
        yield Found(check="home", state="ok", found=str(patient.home))


def keys(patient: Patient) -> Iterable[Found]:
    """Every key file is private and holds a key of its purpose."""
    from aegis.keys.files import load, path_for

    place = patient.home / "keys"
    if not place.is_dir():
        yield Found(check="keys", state="skip", found="no key was made yet")
        return
    wrong: list[str] = []
    count = 0
    for purpose in _PURPOSES:
        path = path_for(place, purpose)
        if not path.exists():
            continue
        count += 1
        try:
            load(path, purpose)
        except KeyFileError as error:
            wrong.append(str(error))
    agents = sorted((place / "agents").glob("*.key")) if (place / "agents").is_dir() else []
    wrong += [f"the key file `{path}` can be read by others" for path in agents if _open_to_others(path)]
    if wrong:
        yield Found(check="keys", state="fail", found="; ".join(wrong), hint="chmod 600 it, and rotate the key")
    else:
        yield Found(check="keys", state="ok", found=f"{count} of the deployment, {len(agents)} of agents")


def configuration(patient: Patient) -> Iterable[Found]:
    """The configuration that a start would load compiles, and nobody else can change it."""
    from aegis.bootstrap.state import config_file
    from aegis.pipeline.compile import compile_policy
    from aegis.pipeline.config import load_config
    from aegis.pipeline.trusted import read_trusted
    from aegis.rules.cache import default_cache_folder

    path = config_file(patient.config, patient.home)
    try:
        if path is not None:
            read_trusted(path)
        policy = compile_policy(load_config(path), cache=default_cache_folder())
    except ConfigError as error:
        first = error.problems[0]
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        place = f"line {first.line}: " if first.line else ""
        yield Found(
            check="configuration",
            state="fail",
            found=f"{place}{first.message}{more}",
            hint=first.hint or "`aegis config check` lists every problem",
        )
        return
    shown = str(path) if path is not None else "built in"
    if policy.settings["mode"] == "observe":
        yield Found(
            check="configuration",
            state="warn",
            found=f"{shown}: every guard is only observed",
            hint="nothing is refused until a guard has `mode: enforce`",
        )
    else:
        yield Found(check="configuration", state="ok", found=shown)


def separation(patient: Patient) -> Iterable[Found]:
    """Owning the home is administrator power: an agent that runs as the same user has it too."""
    try:
        owner = patient.home.stat().st_uid
    except OSError:
        return
    if owner == os.geteuid():
        yield Found(
            check="users",
            state="warn",
            found="this user owns the home; an agent that runs as the same user could change it",
            hint="run the gateway as a user of its own, and agents as another",
        )
    else:
        yield Found(check="users", state="ok", found="another user owns the home")


def _open_to_others(path: Path) -> bool:
    try:
        return bool(stat.S_IMODE(path.lstat().st_mode) & 0o077)
    except OSError:
        return True
