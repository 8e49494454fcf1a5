"""Stores hold bytes and rows and know no meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aegis.core.extensions import is_brought, load_extension
from aegis.core.ports import Store
from aegis.errors import AegisError, ConfigError, ExtensionError, Problem
from aegis.keys.references import is_reference, read_secret
from aegis.store.sqlite import Durability, MemoryStore, SqliteStore

__all__ = ["Durability", "MemoryStore", "SqliteStore", "losses", "open_store"]

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")


def open_store(url: str, *, home: Path, durability: Durability = "fsync", busy_s: float = 2.0) -> Store:
    """Open the store that `url` names.

    `sqlite:///FILE` (relative to `home`, or absolute with a fourth slash), `postgresql://...`, a reference to such a
    URL (`${env:NAME}`, `file:PATH`), `memory:`, or a URL whose scheme an installed package brings. `busy_s` is how
    long to wait for another writer, in seconds. Raises `ConfigError` for any other URL, `KeyFileError` where a
    reference leads nowhere, and `StoreUnavailable` where the store cannot be opened.
    """
    if is_reference(url):
        url = read_secret(url).reveal()
    if url == "memory:":
        return MemoryStore(busy_s=busy_s)
    if url.startswith(_POSTGRES):
        return _postgres(url, durability, busy_s)
    scheme = url.partition(":")[0]
    if scheme != "sqlite" and is_brought("store", scheme):
        return _brought(scheme, url, home, durability, busy_s)
    name = url.removeprefix(_SQLITE)
    if name == url or not name or name.endswith("/") or "?" in name or "#" in name:
        raise _wrong(
            "`store` names no store that this version has",
            "use `sqlite:///aegis.db` (a file in the home), `sqlite:////srv/aegis.db`, `postgresql://...` or `memory:`",
        )
    return SqliteStore(home / name, durability=durability, busy_s=busy_s)


def losses(store: Store) -> tuple[str, ...]:
    """List the settings of a database server under which a crash may take what `store` has confirmed."""
    if isinstance(store, MemoryStore | SqliteStore):
        return ()
    from aegis.store.postgres import PostgresStore

    return store.losses() if isinstance(store, PostgresStore) else ()


def _brought(scheme: str, url: str, home: Path, durability: Durability, busy_s: float) -> Store:
    """Open the store of an installed package; what it raises of ours passes, everything else names the package."""
    try:
        extension = load_extension("store", scheme)
        made: Store = extension.made(url, home=home, durability=durability, busy_s=busy_s, needs=("transaction",))
    except ExtensionError as error:
        if isinstance(error.__cause__, AegisError):
            raise error.__cause__ from None
        raise _wrong(str(error), "") from error
    return made


def _postgres(url: str, durability: Durability, busy_s: float) -> Store:
    try:
        from aegis.store.postgres import PostgresStore
    except ImportError as error:
        raise _wrong("`store` needs the package `psycopg`", 'pip install "aegis-guard[postgres]"') from error
    return PostgresStore(url, durability=durability, busy_s=busy_s)


def _wrong(message: str, hint: str) -> ConfigError:
    return ConfigError((Problem(message=message, pointer="/store", hint=hint),))
