"""The log in one SQLite file: write-ahead log, one chain for every process that opens it."""

from aegis.stores.sqlite.files import Durability
from aegis.stores.sqlite.store import SqliteStore

__all__ = ["Durability", "SqliteStore"]
