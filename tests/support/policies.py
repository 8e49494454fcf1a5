"""The built-in configuration's policy, asked about one call at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aegis.config.compile import compile_policy
from aegis.config.config import load_config
from aegis.core.combine import Combined
from aegis.core.outcome import Outcome
from aegis.core.principal import Principal
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.model import Incoming
from aegis.policy.policy import Policy

_PRINCIPAL = Principal(id="key-1", roles=frozenset({"agent"}), agent="bot")


def built_in(protected: Sequence[Path] = ()) -> Policy:
    """The policy of the built-in configuration, around the paths `protected`."""
    return compile_policy(load_config(), cache=default_cache_folder(), protected=protected)


def combined(policy: Policy, tool: str, arguments: dict[str, Any]) -> Combined:
    """What the policy's guards make of a call together; nothing is charged or recorded."""
    incoming = Incoming(
        tool=tool, server=None, arguments=arguments, principal=_PRINCIPAL, agent="bot", session="", call_id="c", now=0,
        charge=False,
    )  # fmt: skip
    return policy.evaluate(incoming).combined


def asker(policy: Policy) -> Callable[..., Outcome]:
    """A function from a tool and its arguments to what the policy decides."""

    def ask(tool: str, /, **arguments: Any) -> Outcome:
        return combined(policy, tool, arguments).outcome

    return ask
