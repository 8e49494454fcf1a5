"""People at MCP clients over HTTP, asked about a held call while it waits, by the protocol's own elicitation.

A question goes out on the stream that answers the call; the answer comes in with a request of its own. It counts as the
approver's whose key came with the call (`aegis-approver-key`), by the gate's rules: nobody approves for themselves.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from aegis.adapters._memory import Bounded
from aegis.gate.answering import Answer
from aegis.proxies.mcp.messages import Message, id_of, is_answer, params_of
from aegis.proxies.mcp.people import REASON, Said
from aegis.server.permissions import RESOLVE, permit
from aegis.server.services import Services

APPROVER: Final = "aegis-approver-key"
MAX_CLIENTS: Final = 10_000
Where = tuple[str, str, str]
"""One session of one client: principal, server, id of the session."""


class People:
    """Which clients can show a question, and the questions that wait."""

    def __init__(self, services: Services):
        self._services = services
        self._able: Bounded[Where, bool] = Bounded(MAX_CLIENTS, MAX_CLIENTS)
        self._waiting: dict[tuple[Where, str], asyncio.Future[Message]] = {}

    def greeted(self, where: Where, greeting: Message) -> None:
        """Remember what a client said of itself when it opened its session."""
        capabilities = params_of(greeting).get("capabilities")
        if where[2] and isinstance(capabilities, dict) and "elicitation" in capabilities:
            self._able.put(where, value=True)

    def can_be_asked(self, where: Where) -> bool:
        """Whether that client shows questions."""
        return bool(where[2]) and self._able.get(where) is not None

    def question(self, where: Where, params: Message) -> tuple[Message, asyncio.Future[Message]]:
        """A question as it goes to the client, and what its answer will be."""
        name = f"aegis-{secrets.token_hex(12)}"
        future = self._waiting[where, name] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._waiting.pop((where, name), None))
        return {"jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": params}, future

    def answered(self, where: Where, message: Message) -> bool:
        """Whether a message answers a question of ours, which is then settled."""
        future = self._waiting.get((where, str(id_of(message)))) if is_answer(message) else None
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    async def resolve(self, key: str, said: Said) -> None:
        """Answer an approval as the holder of `key`; raises `InvalidCall` where that one may not."""
        principal = await self._services.principal(f"Bearer {key}".encode("latin-1"))
        permit(principal, RESOLVE)
        given = Answer(
            decision=said.decision,
            reason=REASON,
            call_digest=said.call_digest,
            policy_digest=said.policy_digest,
        )
        await self._services.gate.aanswer(said.approval, given, principal=principal)
