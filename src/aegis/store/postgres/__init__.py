"""The log in one PostgreSQL database: one chain for every process of every machine that opens it."""

from aegis.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
