"""Held calls that nobody waits for: the same call made again later stands for the one that people were asked about."""

from __future__ import annotations

import hashlib
import threading
from typing import Final

from aegis.adapters._memory import Bounded
from aegis.core.call import ToolCall
from aegis.core.canonical import canonical

MAX_CALLS: Final = 1_000  # deferred calls remembered by this process; what is forgotten is asked about anew


class Deferred:
    """The ids of deferred calls, by session, tool and arguments."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: Bounded[str, str] = Bounded(MAX_CALLS, 0)

    def find(self, server: str | None, tool: str, session: str | None, body: bytes) -> str | None:
        """The id under which exactly this call is held, if it is."""
        with self._lock:
            return self._ids.get(_key(server, tool, session, body))

    def settle(self, call: ToolCall, body: bytes, held: str | None) -> None:
        """Remember that a call is held under the id `held`, or forget it once it came to something."""
        key = _key(call.server, call.tool, call.session, body)
        with self._lock:
            if held is None:
                self._ids.drop(key)
            else:
                self._ids.put(key, held)


def _key(server: str | None, tool: str, session: str | None, body: bytes) -> str:
    return hashlib.sha256(canonical([server, tool, session]) + b"\0" + body).hexdigest()
