"""The file of accepted tools, shared with `aegis tools`: read for every list, added to under a lock."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from aegis.core.strict_json import parse
from aegis.core.tool_description import ToolDescription
from aegis.errors import InvalidCall
from aegis.guards.descriptions import Pins


class PinFile:
    """Pins on disk; a damaged file pins nothing and is an error."""

    def __init__(self, path: Path):
        self._path = path

    def read(self) -> Pins:
        """The pins as they are now; raises `InvalidCall` for a damaged file."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Pins()
        try:
            return Pins.from_document(parse(data))
        except InvalidCall as error:
            raise InvalidCall(f"the pins in `{self._path}` cannot be read: {error.message}", hint=error.hint) from error

    def add(self, tools: Sequence[ToolDescription]) -> None:
        """Pin tools that have no pin; one that has keeps it, whoever came first."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pins = self.read()
            fresh = [tool for tool in tools if tool.identity not in pins.tools]
            if not fresh:
                return
            partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(pins.merged(fresh).document(), file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
