"""Calls whose server asks back before it answers (protocol 2026-07-28): one call in several rounds, decided once.

The server's answer says what it wants and holds a state; the client makes the same request again with the state and
what was asked. Such a round goes on under the decision of the first one, as long as that stands: once for each
state, for exactly the same request, and not for long. Any other request with a state is a call like every call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aegis.core.bounded import Bounded
from aegis.core.canonical import canonical, sha256
from aegis.errors import InvalidCall
from aegis.proxies.mcp.messages import Message, params_of

MAX_ROUNDS: Final = 10_000  # what a server that only asks back can make us remember
MAX_BYTES: Final = 33_554_432
ROUND_S: Final = 900.0  # a decision is of its time: what was allowed or approved long ago is decided anew
_ASKING: Final = frozenset({"resultType", "inputRequests", "requestState", "_meta"})
_ANSWERING: Final = frozenset({"inputResponses", "requestState", "_meta"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """A request that goes on under the decision of a call, with other arguments if a guard changed them."""

    decision_id: str
    call_id: str
    arguments: dict[str, Any] | None


class Rounds:
    """The rounds that are open with one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: Bounded[str, tuple[Round, float]] = Bounded(MAX_ROUNDS, MAX_BYTES)

    def asked(self, request: Message, result: object, following: Round) -> bool:
        """Whether a result asks back and holds nothing else; then the `following` round of the request is open."""
        if not isinstance(result, dict) or result.get("resultType") != "input_required" or not result.keys() <= _ASKING:
            return False
        state = result.get("requestState")
        if isinstance(state, str):
            weight = 0 if following.arguments is None else len(canonical(following.arguments))
            self._open.put(_key(request, state), (following, self._clock() + ROUND_S), weight)
        return True

    def taken(self, request: Message) -> Round | None:
        """The round that this request goes on with, which is closed by that; `None` where there is none."""
        state = params_of(request).get("requestState")
        if not isinstance(state, str):
            return None
        try:
            key = _key(request, state)
        except InvalidCall:  # what has no canonical form was never let through
            return None
        found = self._open.get(key)
        self._open.drop(key)
        return found[0] if found is not None and self._clock() < found[1] else None


def _key(request: Message, state: str) -> str:
    params = {name: value for name, value in params_of(request).items() if name not in _ANSWERING}
    return sha256(canonical([request.get("method"), params, state]))
