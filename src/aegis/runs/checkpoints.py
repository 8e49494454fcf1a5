"""Where runs pause: LangGraph's checkpoints in a SQLite file of the home, sealed under the deployment's keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiosqlite
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from aegis.errors import StoreCorrupt
from aegis.runs.claims import Box, pack, unpack

FILE: Final = "runs.db"
_CIPHER: Final = "aegis"


class _Cipher(CipherProtocol):
    def __init__(self, box: Box) -> None:
        self._box = box

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return _CIPHER, pack(*self._box.seal(plaintext))

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        if ciphername != _CIPHER:
            raise StoreCorrupt("a checkpoint is not sealed by this deployment")
        return self._box.open_payload(*unpack(ciphertext))


class _Sealed(EncryptedSerializer):
    """Opens nothing that was not sealed here: a checkpoint that somebody wrote into the file is refused."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if not data[0].endswith(f"+{_CIPHER}"):
            raise StoreCorrupt("a checkpoint is not sealed by this deployment")
        return super().loads_typed(data)


@asynccontextmanager
async def open_checkpoints(home: Path, box: Box) -> AsyncIterator[AsyncSqliteSaver]:
    """The saver over `runs.db` in `home`; its file is readable by its owner alone."""
    path = home / FILE
    path.touch(mode=0o600, exist_ok=True)
    # Values are plain JSON: nothing but the library's own safe types is ever made from a checkpoint.
    serializer = _Sealed(_Cipher(box), JsonPlusSerializer(allowed_msgpack_modules=None))
    async with aiosqlite.connect(path) as connection:
        await connection.execute("PRAGMA journal_mode=WAL")
        # After a power cut a run goes on from an older checkpoint: what ran is claimed in the store, durably.
        await connection.execute("PRAGMA synchronous=NORMAL")
        await connection.execute("PRAGMA busy_timeout=5000")
        yield AsyncSqliteSaver(connection, serde=serializer)
