"""What a policy makes of a call that nobody made: nothing is recorded, charged or run."""

from __future__ import annotations

from typing import Any

from aegis.core.principal import Principal
from aegis.pipeline.compile import Policy
from aegis.pipeline.model import Evaluation, Incoming

WHO = "playground"  # the principal and, where none is named, the agent of such a call


def tried(policy: Policy, call: dict[str, Any], *, now: int) -> Evaluation:
    """The evaluation of `call`, which holds `tool` and `arguments`, and may hold what else a call has."""
    agent = call.get("agent") or WHO
    return policy.evaluate(
        Incoming(
            tool=call["tool"],
            server=call.get("server"),
            arguments=call["arguments"],
            principal=Principal(id=WHO, roles=frozenset({"agent"}), agent=agent),
            agent=agent,
            session=call.get("session", ""),
            call_id=WHO,
            now=now,
            task=call.get("task"),
            charge=False,
        )
    )
