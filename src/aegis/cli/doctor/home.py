"""The home: whose it is, who can enter, its keys and its configuration."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from aegis.cli.doctor import Found, Patient
from aegis.errors import AegisError, ConfigError, KeyFileError

if TYPE_CHECKING:
    from aegis.core.breaks import Break
    from aegis.core.ports import Entry, Reader, Store


# The log: its store answers, and what stands in it is what was put there, under the signatures that it carries.

LOOKED_AT: Final = 500  # receipts at the end of the log; `aegis log verify` looks at all of an export
_AHEAD_US: Final = 2_000_000
_NAMED: Final = 5  # breaks of one kind that are named in the summary
_RESTORE: Final = "restore the store of this home, or see `aegis serve --accept-rollback`"
_START: Final = "the next start of this version does it"
_SQLITE: Final = "sqlite:///"


def log(patient: Patient) -> Iterable[Found]:
    """Open the store, and check the end of the log as far as that is cheap."""
    from aegis.bootstrap.mark import NAME
    from aegis.bootstrap.state import config_file
    from aegis.config.config import load_config
    from aegis.store import losses, open_store
    from aegis.store.sqlite.connect import damage

    if not patient.home.is_dir():
        return
    try:
        settings = load_config(config_file(patient.config, patient.home)).settings
        file = settings.store.removeprefix(_SQLITE)
        if file != settings.store and not (patient.home / file).exists():
            if (patient.home / NAME).exists():
                yield Found(
                    check="store", state="fail", found="the store is gone, and this home had one", hint=_RESTORE
                )
            else:
                yield Found(check="store", state="skip", found="nothing was recorded yet")
            return
        if file != settings.store and (wrong := damage(patient.home / file)) is not None:
            yield Found(
                check="store", state="fail", found=wrong, hint="stop the gateway and restore the last good copy"
            )
            return
        store = open_store(settings.store, home=patient.home, durability=settings.durability)
    except AegisError as error:
        yield Found(check="store", state="fail", found=str(error).splitlines()[0], hint="is the disk full or gone?")
        return
    try:
        with store.reader() as reader:
            yield Found(check="store", state="ok", found=f"{settings.store}, whole")
            yield from _end_of(reader)
            yield from _stored(patient, store, reader)
        if losing := losses(store):
            yield Found(
                check="durability",
                state="warn",
                found=f"a crash of the database server may take decisions that were released: {', '.join(losing)}",
                hint="turn them on in the server's configuration",
            )
    except AegisError as error:
        yield Found(check="log", state="fail", found=str(error), hint="export the log and run `aegis log verify`")
    finally:
        store.close()


def _stored(patient: Patient, store: Store, reader: Reader) -> Iterable[Found]:
    """Whether the store is what this home saw, and documents and columns are what was put there."""
    from aegis.bootstrap.mark import NAME, HighWater
    from aegis.cli.verifying import column_breaks, document_breaks, mark_break
    from aegis.keys.keyring import Keyring
    from aegis.store import MemoryStore
    from aegis.store.sealed import SealedStore

    if isinstance(store, MemoryStore) or not (patient.home / "keys" / "payload.key").exists():
        return
    keyring, head = Keyring(patient.home / "keys"), reader.head()
    if not head.size and not (patient.home / NAME).exists():
        return
    sealed, mark = SealedStore(store, keyring.document_key()), HighWater(patient.home, keyring.log_signer)
    broken = mark_break(sealed, mark, keyring)
    if broken is not None:
        yield Found(check="mark", state="fail", found=broken.detail, hint=_RESTORE)
    elif (patient.home / NAME).exists():
        yield Found(check="mark", state="ok", found="the log continues what this home saw of it")
    else:
        yield Found(check="mark", state="warn", found="this home has not marked how far its log came", hint=_START)
    if not head.seal:
        yield Found(check="documents", state="warn", found="the documents are not sealed", hint=_START)
    else:
        yield _summed("documents", "every one is what was put there last", document_breaks(sealed))
    start = max(0, head.size - LOOKED_AT)
    breaks = chain(
        column_breaks(reader, 0, start, looked_up=False), column_breaks(reader, start, head.size, looked_up=True)
    )
    yield _summed("columns", "receipts are found by what they say", breaks)


NEWEST: Final = 2_000  # decisions of which it is told whether reasoning came with them
_HOSTS: Final = 50


def reasoned(home: Path, config: Path | None) -> list[dict[str, Any]]:
    """Which agents brought the model's reasoning, and how often, by the newest receipts of a home that has any."""
    from aegis.cli.opening import existing
    from aegis.core.ports import Search

    try:
        with existing(home, config) as state, state.store.reader() as reader:
            newest = reader.search(Search(kind="decision", limit=NEWEST))
    except AegisError:  # whatever is wrong with the home is told by `aegis doctor` without `--coverage`
        return []
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in newest:
        members = orjson.loads(entry.body)
        facts = members.get("provenance", {}).get("reasoning")
        empty = {"agent": entry.agent, "principal": entry.principal, "calls": 0, "reasoned": 0, "signed": 0}
        row = found.setdefault((entry.agent, entry.principal), empty)
        row["calls"] += 1
        row["reasoned"] += facts is not None
        row["signed"] += facts is not None and facts["signed"] > 0
    return sorted(found.values(), key=lambda row: -row["calls"])[:_HOSTS]


def _summed(check: str, well: str, breaks: Iterator[Break]) -> Found:
    """One finding for all breaks of a kind, of which the first few are named."""
    named = [one.detail if one.index < 0 else f"{one.detail} at index {one.index}" for one in islice(breaks, _NAMED)]
    if not named:
        return Found(check=check, state="ok", found=well)
    more = sum(1 for _ in breaks)
    found = "; ".join(named) + (f"; and {more} more" if more else "")
    return Found(check=check, state="fail", found=found, hint="`aegis log verify --home` names all")


def _end_of(reader: Reader) -> Iterable[Found]:
    from aegis.core.times import rfc3339, system_clock
    from aegis.log.merkle import Frontier, root_at

    head = reader.head()
    if head.size == 0:
        yield Found(check="log", state="skip", found="the log is empty")
        return
    start = max(0, head.size - LOOKED_AT)
    wrong = _chain(reader, start, head.size)
    if wrong is None and Frontier.decode(head.frontier).root() != root_at(head.size, reader):
        wrong = "the tree does not lead to the log's root"
    if wrong is None:
        yield Found(check="log", state="ok", found=f"{head.size} receipts; the last {head.size - start} verify")
    else:
        yield Found(check="log", state="fail", found=wrong, hint="export the log and run `aegis log verify`")
    if head.time > system_clock() + _AHEAD_US:
        yield Found(
            check="clock and log",
            state="warn",
            found=f"the newest receipt is from {rfc3339(head.time)}, later than this clock",
            hint="the clock ran backwards; times in the log stand still until it catches up",
        )


def _chain(reader: Reader, start: int, stop: int) -> str | None:
    """What is wrong with the leaves `start` to `stop`, or `None`."""
    before = reader.entry(start - 1) if start else None
    previous = "" if before is None else before.leaf_hash.hex()
    keys: dict[str, bytes | None] = {}
    count = 0
    for entry in reader.entries(start, stop):
        wrong = _leaf(reader, entry, previous, keys)
        if wrong is not None or entry.index != start + count:
            return f"{wrong or 'a receipt is missing'} at index {start + count}"
        previous = entry.leaf_hash.hex()
        count += 1
    if count != stop - start or previous != reader.head().leaf.hex():
        return f"the log ends at index {start + count} and not where its head says"
    return None


def _leaf(reader: Reader, entry: Entry, previous: str, keys: dict[str, bytes | None]) -> str | None:
    import orjson

    from aegis.log.append import check
    from aegis.log.merkle import leaf_hash

    if leaf_hash(entry.body) != entry.leaf_hash:
        return "a receipt was edited"
    body: dict[str, Any] = orjson.loads(entry.body)
    if body.get("index") != entry.index or body.get("prev", "") != previous:
        return "a receipt does not continue the one before it"
    kid = str(body.get("sig", {}).get("kid", ""))
    if kid not in keys:
        keys[kid] = _public_key(reader, kid)
    key = keys[kid]
    if key is None:
        return "a receipt is signed by a key that the log does not know"
    check(body, key)
    return None


def _public_key(reader: Reader, kid: str) -> bytes | None:
    import orjson

    from aegis.bootstrap.introduce import COLLECTION

    document = reader.document(COLLECTION, kid)
    if document is None:
        return None
    return base64.b64decode(orjson.loads(document.body)["public"])


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
    from aegis.keys.keyring import load, path_for

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
    from aegis.config.compile import compile_policy
    from aegis.config.config import load_config
    from aegis.config.trusted import read_trusted
    from aegis.detect.rules.cache import default_cache_folder

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
