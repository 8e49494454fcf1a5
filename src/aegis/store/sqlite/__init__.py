"""The log in one SQLite file: write-ahead log, one chain for every process that opens it."""

from aegis.store.sqlite.files import Durability
from aegis.store.sqlite.store import SqliteStore

__all__ = ["Durability", "SqliteStore"]
