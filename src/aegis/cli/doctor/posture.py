"""What is allowed to be set, and loosens: settings, credentials, files, and what a preview lacks."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aegis.cli.doctor.model import Found, Patient, State
from aegis.errors import AegisError, ConfigError

if TYPE_CHECKING:
    from aegis.keys.api import ApiKey
    from aegis.pipeline.settings import Settings

_DECIDES: Final = frozenset({"approver", "admin", "issuer"})  # what no agent should hold beside its own role
_SQLITE: Final = "sqlite:///"
_GUARDS: Final = ("protected", "evidence", "rate", "registry", "schema", "content", "cedar")


def posture(patient: Patient) -> Iterable[Found]:
    """Every setting that lets more through than `standard` does, and every credential that joins two roles."""
    from aegis.bootstrap.state import config_file
    from aegis.pipeline.config import load_config

    try:
        settings = load_config(config_file(patient.config, patient.home)).settings
    except ConfigError:
        return  # said by the check of the configuration
    yield from _settings(settings)
    yield from _previews(settings)
    yield from _files(patient, settings)
    yield from _credentials(patient, settings)


def _settings(settings: Settings) -> Iterable[Found]:
    loose: list[tuple[str, str]] = []
    if settings.insufficient_evidence == "fail-open-with-attestation":
        loose.append(("calls that could not be evaluated run", "`insufficient_evidence: fail-closed` refuses them"))
    off = [name for name in _GUARDS if settings.guards.mode(name) != "enforce"]
    if off and len(off) < len(_GUARDS):
        loose.append((f"not enforced: {', '.join(off)}", "`mode: enforce` lets a guard refuse"))
    if settings.limits.rate is None:
        loose.append(("agents may call as often as they like", "`limits: {rate: 100/minute}` stops a flood"))
    if settings.registry.allow_critical:
        loose.append(("critical tools may run", "`registry: {allow_critical: false}` blocks them"))
    if settings.durability == "os":
        loose.append(("a power cut may take the newest decisions", "`durability: fsync` keeps them"))
    if settings.store == "memory:":
        loose.append(("the log ends with the process", "`store: sqlite:///aegis.db` keeps it"))
    for found, hint in loose:
        yield Found(check="settings", state="warn", found=found, hint=hint)
    if not loose:
        yield Found(check="settings", state="ok", found="nothing is looser than `standard`")


def _previews(settings: Settings) -> Iterable[Found]:
    from aegis.sandbox.available import unavailable

    if settings.previews.enabled and (why := unavailable()) is not None:
        yield Found(check="previews", state="warn", found=f"held calls are shown without a preview: {why}")


def _files(patient: Patient, settings: Settings) -> Iterable[Found]:
    """The files of the store hold commitments, names and times in the clear."""
    name = settings.store.removeprefix(_SQLITE)
    if name == settings.store:
        return
    place = patient.home / name
    for path in (place, *(place.with_name(f"{place.name}-{end}") for end in ("wal", "shm", "redo"))):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & 0o077:
            state: State = "fail" if mode & 0o022 else "warn"
            word = "write" if mode & 0o022 else "read"
            yield Found(check="store files", state=state, found=f"others can {word} `{path}`", hint=f"chmod 600 {path}")


def _credentials(patient: Patient, settings: Settings) -> Iterable[Found]:
    """One that asks and answers approves its own calls; separation of duties looks at principals, not at people."""
    from aegis.keys.api import list_keys
    from aegis.stores import open_store

    name = settings.store.removeprefix(_SQLITE)
    if name == settings.store or not (patient.home / name).exists():
        return
    try:
        store = open_store(settings.store, home=patient.home, durability=settings.durability)
    except AegisError:
        return  # said by the check of the store
    try:
        with store.reader() as reader:
            joined = [key for key in list_keys(reader) if _joins(key)]
    except AegisError:
        return
    finally:
        store.close()
    for key in joined:
        roles = ", ".join(sorted(key.roles))
        hint = f"make a key for each, and `aegis keys revoke {key.id}`"
        yield Found(check="credentials", state="warn", found=f"the key `{key.id}` is {roles} at once", hint=hint)


def _joins(key: ApiKey) -> bool:
    return key.state == "active" and "agent" in key.roles and bool(_DECIDES & set(key.roles))
