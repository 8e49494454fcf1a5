"""Who may release a held call, and how long it waits; read from the configuration, resolved per tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Notifier:
    """Where word of a held call is sent. `url` and `secret` are references or plain text, never resolved here."""

    kind: Literal["webhook", "slack"]
    url: str
    secret: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalPolicy:
    """How one held call is released.

    `approvers` are `role:NAME`, `group:NAME` or `user:NAME`, in the order in which `on_timeout: next`
    passes the call on; `quorum` is how many different ones must agree. No value of `on_timeout`
    allows anything. `always` holds every call of the tool, whatever its risk.
    """

    timeout_seconds: int
    on_timeout: Literal["block", "next"]
    approvers: tuple[str, ...]
    quorum: int = 1
    notify: tuple[Notifier, ...] = ()
    always: bool = False
