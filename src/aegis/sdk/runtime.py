"""What `auto`, `protect` and `unhook` share: the decider of this process and what is hooked to it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, cast, get_args

from aegis.core.decider import Decider, SessionHost
from aegis.enforce.enforcement import Enforcer, OnApproval
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.errors import InvalidCall

EMBEDDED: Final = "embedded"


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeSettings:
    """Where decisions come from; what is not given is taken from the environment."""

    url: str | None = None
    api_key: str | None = None
    agent: str | None = None
    config: str | Path | None = None
    home: str | Path | None = None
    on_approval: OnApproval | None = None
    approval_timeout: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """One opened decider, which is also the `host` of sessions.

    `gateway` is its address or `embedded`; `authenticated` is `None` where it is embedded.
    """

    enforcer: Enforcer
    host: SessionHost
    memory: Memory
    gateway: str
    authenticated: bool | None
    patches: list[Patches] = field(default_factory=list)

    def close(self) -> None:
        """Take the hooks off and release the decider."""
        for patches in self.patches:
            patches.undo()
        self.enforcer.decider.close()


_lock: Final = threading.RLock()
_current: Runtime | None = None


def open_runtime(settings: RuntimeSettings) -> Runtime:
    """A runtime with nothing hooked yet; raises what opening the gate or making the client raises."""
    url = settings.url or os.environ.get("AEGIS_URL")
    agent = settings.agent or os.environ.get("AEGIS_AGENT")
    decider, gateway, authenticated = _decider(settings, url, agent)
    enforcer = Enforcer(
        decider,
        agent=agent if url else None,
        on_approval=_on_approval(settings.on_approval or os.environ.get("AEGIS_ON_APPROVAL") or "wait"),
        approval_timeout=settings.approval_timeout,
        # A gateway's client has no way to say so: there it is a line of the log alone.
        on_uncovered=getattr(decider, "alarm", None),
    )
    return Runtime(enforcer=enforcer, host=decider, memory=Memory(), gateway=gateway, authenticated=authenticated)


def replace_runtime(runtime: Runtime | None) -> None:
    """Make a runtime the process's own; the one before is closed."""
    global _current
    with _lock:
        before, _current = _current, runtime
    if before is not None:
        before.close()


def current_runtime() -> Runtime:
    """The process's runtime; where `auto` has made none, one is opened from the environment."""
    global _current
    with _lock:
        if _current is None:
            _current = open_runtime(RuntimeSettings())
        return _current


class _Both(Decider, SessionHost, Protocol):
    """What `Gate` and `Client` both are."""


def _on_approval(word: str) -> OnApproval:
    if word not in get_args(OnApproval):
        raise InvalidCall(f"`on_approval` is one of {', '.join(f'`{one}`' for one in get_args(OnApproval))}")
    return cast("OnApproval", word)


def _decider(settings: RuntimeSettings, url: str | None, agent: str | None) -> tuple[_Both, str, bool | None]:
    if url:
        from aegis.sdk.client import Client

        api_key = settings.api_key or os.environ.get("AEGIS_API_KEY") or ""
        client = Client(url, api_key, agent=agent, home=settings.home)
        return client, url, client.authenticated
    from aegis.sdk.gate import Gate

    return Gate.open(settings.config, home=settings.home, agent=agent), EMBEDDED, None
