"""The log in SQLite: one file that every process can open, or the memory of one process."""

from aegis.store.sqlite.connect import Durability
from aegis.store.sqlite.memory import MemoryStore
from aegis.store.sqlite.store import SqliteStore

__all__ = ["Durability", "MemoryStore", "SqliteStore"]
