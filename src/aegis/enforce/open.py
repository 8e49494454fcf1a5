"""Calls of models that a framework is going to decide where it runs them, until their results go back to the model.

A body that runs beside every decision is an alarm at once, but which call it ran for is not known there. So every open
call of that tool is marked: what comes back for it, and was not judged under a decision, does not reach the model.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import Final

MAX_CALLS: Final = 10_000  # models can ask for calls without end; the oldest is forgotten, and known by its decision


class OpenCalls:
    """The open calls of a process, by session and id; safe for threads and forks."""

    def __init__(self, max_calls: int = MAX_CALLS) -> None:
        self._lock = threading.Lock()
        self._tools: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._marked: set[tuple[str, str]] = set()
        self._max_calls = max_calls
        renew = weakref.WeakMethod(self._renew)
        os.register_at_fork(after_in_child=lambda: (method := renew()) and method())

    def opened(self, session: str, call_id: str, tool: str) -> None:
        """A model asked for a call that is going to be decided where it runs; one without an id cannot be known."""
        if not call_id:
            return
        with self._lock:
            self._marked.discard((session, call_id))
            self._tools[session, call_id] = tool
            self._tools.move_to_end((session, call_id))
            if len(self._tools) > self._max_calls:
                oldest, _ = self._tools.popitem(last=False)
                self._marked.discard(oldest)

    def ran_beside(self, session: str, tool: str) -> None:
        """A body of this tool ran, or would have, beside every decision."""
        with self._lock:
            self._marked.update(key for key, name in self._tools.items() if key[0] == session and name == tool)

    def closed(self, session: str, call_id: str) -> bool:
        """A result of the call is about to reach the model; whether a body of its tool ran beside the decisions."""
        with self._lock:
            self._tools.pop((session, call_id), None)
            marked = (session, call_id) in self._marked
            self._marked.discard((session, call_id))
            return marked

    def _renew(self) -> None:
        # The thread that held the lock does not exist in the child.
        self._lock = threading.Lock()
