"""What judges remember between calls: verdicts that may be used again, and intents that were denied.

The memory is the store's, so that every process of a deployment has the same one.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from aegis.judges.model import Ran

PROBING_S: Final = 300


class Key(NamedTuple):
    """Everything that a verdict depends on."""

    call_digest: str
    criteria: str
    judge: str
    workspace: str


class Intent(NamedTuple):
    """What is tried again in other words: who calls which tool."""

    principal: str
    server: str
    tool: str


class Memory(Protocol):
    """Verdicts of well-formed runs, and what judges denied in the last five minutes; raises `StoreError`."""

    def find(self, key: Key, judge: str) -> Ran | None:
        """The run whose verdict still holds, marked as `cached`."""
        ...

    def keep(self, key: Key, ran: Ran, seconds: int) -> None:
        """Let the verdict of a well-formed run count for so many seconds."""
        ...

    def is_probing(self, intent: Intent, call_digest: str, bound: int) -> bool:
        """Whether so many other variants were denied that this one is refused without looking."""
        ...

    def count(self, intent: Intent, call_digest: str) -> None:
        """This variant of the intent was denied."""
        ...
