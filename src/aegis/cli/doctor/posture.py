"""What is allowed to be set, and loosens: settings, credentials, files, and what a preview lacks."""

from __future__ import annotations

import asyncio
import importlib.util
import platform
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from aegis.cli.doctor import Found, Patient, State
from aegis.errors import AegisError, ConfigError, InvalidCall, ModelFailed

if TYPE_CHECKING:
    from aegis.cli.remote import Gateway
    from aegis.config.settings import Settings
    from aegis.keys.api import ApiKey


# The gateway: whether one answers, whether the key is known to it, and whether it can be told from a counterfeit.


def gateway(patient: Patient) -> Iterable[Found]:
    """Ask the gateway that is named, or the one that listens on the home's socket."""
    from aegis.cli.remote import Gateway, GatewayUnreachable, local_gateway

    found = Gateway(url=patient.url) if patient.url is not None else local_gateway(patient.home)
    if found is None:
        yield Found(check="gateway", state="skip", found="none listens on this home")
        return
    place = found.uds or found.url
    try:
        found.ask("GET", "/readyz", "")
    except GatewayUnreachable as error:
        yield Found(check="gateway", state="fail", found=str(error), hint="`aegis serve` starts one")
        return
    except AegisError as error:
        yield Found(check="gateway", state="fail", found=f"{place}: {error}", hint="is it an Aegis gateway?")
        return
    yield Found(check="gateway", state="ok", found=f"ready at {place}")
    yield _identity(found)
    yield _credential(found, patient)


def _identity(found: Gateway) -> Found:
    if found.uds is not None or found.url.startswith("https://"):
        how = "the owner of its socket" if found.uds is not None else "its TLS certificate"
        return Found(check="gateway identity", state="ok", found=f"known by {how}")
    return Found(
        check="gateway identity",
        state="warn",
        found="plain TCP: whoever holds the port is believed",
        hint="use TLS, or the Unix socket in the home",
    )


def _credential(found: Gateway, patient: Patient) -> Found:
    if not patient.api_key:
        return Found(check="API key", state="skip", found="none given", hint="set AEGIS_API_KEY or --api-key-file")
    try:
        found.ask("GET", "/.well-known/jwks.json", patient.api_key)
    except InvalidCall as error:
        return Found(check="API key", state="fail", found=error.message, hint=error.hint)
    except AegisError as error:
        return Found(check="API key", state="fail", found=str(error))
    return Found(check="API key", state="ok", found="known to the gateway")


# The machine: platform, interpreter, pattern engine, clock.

SUPPORTED: Final = ("linux", "darwin")
_OLDEST: Final = (3, 11)
# No log of this version can be older: a clock before this was never set.
_NOT_BEFORE_S: Final = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def system(patient: Patient) -> Iterable[Found]:
    """Linux and macOS keep the file modes, locks and sockets that a deployment relies on."""
    del patient
    if sys.platform in SUPPORTED:
        yield Found(check="platform", state="ok", found=f"{platform.system()} {platform.machine()}")
    else:
        yield Found(
            check="platform",
            state="fail",
            found=f"{platform.system()} is not supported",
            hint="use Linux or macOS; on Windows, WSL is Linux",
        )


def interpreter(patient: Patient) -> Iterable[Found]:
    """The Python that runs this."""
    del patient
    version = platform.python_version()
    if sys.version_info >= _OLDEST:
        yield Found(check="python", state="ok", found=version)
    else:
        yield Found(check="python", state="fail", found=version, hint="Python 3.11 or newer is needed")


def pattern_engine(patient: Patient) -> Iterable[Found]:
    """Which engine scans; the results are the same, the time is not."""
    del patient
    if importlib.util.find_spec("hyperscan") is not None:
        yield Found(check="pattern engine", state="ok", found="hyperscan")
    else:
        yield Found(
            check="pattern engine",
            state="warn",
            found="re2, several times slower",
            hint="there are wheels of hyperscan for Linux on x86-64",
        )


def clock(patient: Patient) -> Iterable[Found]:
    """A clock that was never set makes every expiry wrong."""
    del patient
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now < _NOT_BEFORE_S:
        yield Found(check="clock", state="fail", found=shown, hint="the clock was never set; start a time service")
    else:
        yield Found(check="clock", state="ok", found=shown)


_DECIDES: Final = frozenset({"approver", "admin", "issuer"})  # what no agent should hold beside its own role
_SQLITE: Final = "sqlite:///"
_GUARDS: Final = ("protected", "evidence", "rate", "registry", "schema", "content", "cedar")


def posture(patient: Patient) -> Iterable[Found]:
    """Every setting that lets more through than `standard` does, and every credential that joins two roles."""
    from aegis.bootstrap.state import config_file
    from aegis.config.config import load_config

    try:
        settings = load_config(config_file(patient.config, patient.home)).settings
    except ConfigError:
        return  # said by the check of the configuration
    yield from _settings(settings)
    yield from _previews(settings)
    yield from _drift(settings)
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
    from aegis.sandbox.command import unavailable

    if settings.previews.enabled and (why := unavailable()) is not None:
        yield Found(check="previews", state="warn", found=f"held calls are shown without a preview: {why}")


# What the embedding model is asked as an example: words, a tool that they ask for, and one that they do not.
_SAID: Final = "Please read my mails of today and summarise them"
_EXAMPLES: Final = (_SAID, "read mails", "make payment")


def _drift(settings: Settings) -> Iterable[Found]:
    """Whether the embeddings endpoint answers, and how its model tells what was asked for from what was not."""
    from aegis.context.embeddings import cosine, egress_to, embed

    drift = settings.guards.drift
    if drift.embeddings is None or drift.mode == "off":
        return
    endpoint = drift.embeddings.compiled()

    async def ask() -> Sequence[Sequence[float]]:
        async with egress_to(endpoint) as egress:
            return await embed(endpoint, _EXAMPLES, egress)

    try:
        said, near, far = asyncio.run(ask())
    except ModelFailed as error:
        found = f"drift is only counted: the embeddings were not told: {error}"
        yield Found(check="drift", state="warn", found=found, hint="see `guards.drift.embeddings`")
        return
    asked, stray = cosine(said, near), cosine(said, far)
    found = f"`{endpoint.model}` finds a deed that was asked for {asked:.2f} near, and one that was not {stray:.2f}"
    tells = endpoint.distance(asked) < 50 < endpoint.distance(stray)
    hint = "" if tells else "set `near` below the first and `far` above the second"
    yield Found(check="drift", state="ok" if tells else "warn", found=found, hint=hint)


def _files(patient: Patient, settings: Settings) -> Iterable[Found]:
    """The files of the store hold commitments, names and times in the clear."""
    name = settings.store.removeprefix(_SQLITE)
    if name == settings.store:
        return
    place = patient.home / name
    for path in (place, *(place.with_name(f"{place.name}-{end}") for end in ("wal", "shm"))):
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
    from aegis.store import open_store

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
