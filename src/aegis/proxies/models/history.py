"""What a request claims to have happened before, held against the book: nothing that nobody decided gets through.

(1) forms of calls that have no id are refused: nothing could be looked up for them
(2) every call of the conversation was let through here, with these very arguments
(3) every result belongs to such a call
(4) every result is judged before the model sees it; what may not be seen is replaced
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Final, Literal

from aegis.adapters._enforce import Attempt, Enforcer, log
from aegis.adapters.context import Session
from aegis.core.call import ToolResult
from aegis.core.canonical import canonical
from aegis.core.digest import call_digest, sha256
from aegis.core.ports import Document
from aegis.dialects.model import Proposed, ProxyDialect, Wire, framed, put_all
from aegis.errors import InvalidCall
from aegis.proxies.models.book import Book, Issued, Scope

Unknown = Literal["refuse", "judge"]
_LEGACY: Final = ("functions", "function_call")


class History:
    """Checks the conversations of one scope."""

    def __init__(
        self,
        book: Book,
        enforcer: Enforcer,
        dialect: ProxyDialect,
        scope: Scope,
        session: Session | None,
        unknown: Unknown,
    ):
        self._book = book
        self._enforcer = enforcer
        self._dialect = dialect
        self._scope = scope
        self._session = session
        self._unknown = unknown

    async def checked(self, request: Wire) -> Wire:
        """The request as a model may see it; raises `InvalidCall` (400, 403) for one that claims too much."""
        # (1)
        if any(request.get(name) for name in _LEGACY):
            raise _refused("the legacy `functions` API is not proxied; use `tools`", "unsupported", status=400)
        # (2)
        known: defaultdict[str, deque[Issued]] = defaultdict(deque)
        strange: list[Proposed] = []
        for call in self._dialect.issued(request):
            found = self._look_up(call)
            if found is None:
                strange.append(call)
            else:
                known[call.call_id].append(found)
        for call, issued in zip(strange, await self._judged(strange), strict=True):
            known[call.call_id].append(issued)
        # (3)
        for call_id in self._dialect.answered(request):
            issued_to = known.get(call_id)
            if not issued_to:
                stored = self._book.issued(self._scope, call_id)
                if stored is None or not stored.allowed:
                    raise _refused("the request holds a result of a call that was never let through", "unknown_result")
                known[call_id].append(stored)
        # (4)
        return await self._observed(request, known)

    def _look_up(self, call: Proposed) -> Issued | None:
        if call.arguments is None or not call.call_id:
            return None
        try:
            digest = call_digest(server=call.server, tool=call.tool, arguments=canonical(call.arguments))
        except InvalidCall:
            return None
        found = self._book.issued(self._scope, call.call_id, digest)
        return found if found is not None and found.allowed else None

    async def _judged(self, calls: list[Proposed]) -> list[Issued]:
        """Calls that nobody decided, judged as if the model had just made them; raises where one may not run."""
        if not calls:
            return []
        if self._unknown == "refuse":
            raise _refused(
                "the request holds a tool call that was not let through here, or not with these arguments",
                "unknown_call",
            )
        attempts: list[Attempt] = []
        for call in calls:
            if call.arguments is None or not call.call_id:
                raise _refused("the request holds a tool call that cannot be read", "unknown_call")
            attempts.append(
                Attempt(tool=call.tool, server=call.server, arguments=call.arguments, call_id=f"history.{call.call_id}")
            )
        enforced = await self._enforcer.arun(self._enforcer.enforce(attempts, self._session))
        documents: list[Document] = []
        for call, one in zip(calls, enforced, strict=True):
            if not one.allowed or one.changed:
                raise _refused("the request holds a tool call that would not be let through", "unknown_call")
            decision = one.decision
            documents += self._book.alias(self._scope, call.call_id, decision.call_digest, decision.call_id)
        await self._book.write(documents)
        return [Issued(decision_id=one.decision.decision_id, allowed=True) for one in enforced]

    async def _observed(self, request: Wire, known: dict[str, deque[Issued]]) -> Wire:
        found: list[tuple[Any, str, str]] = []
        unseen: dict[tuple[str, str], Any] = {}
        for output in self._dialect.outputs(request):
            calls = known[output.call_id]
            # Servers that count ids anew repeat them: the n-th result belongs to the n-th call.
            issued = calls.popleft() if len(calls) > 1 else calls[0]
            try:
                digest = sha256(canonical(output.value))
            except InvalidCall as error:
                raise _refused("the request holds a result that is not valid JSON", "malformed", status=400) from error
            found.append((output, issued.decision_id, digest))
            if self._book.seen(issued.decision_id, digest) is None:
                unseen[issued.decision_id, digest] = output.value
        results = [ToolResult(decision_id=decision_id, result=value) for (decision_id, _), value in unseen.items()]
        observed = await self._enforcer.arun(self._enforcer.observe(results))
        now: dict[tuple[str, str], tuple[bool, Any]] = {}
        for key, seen in zip(unseen, observed, strict=True):
            now[key] = (seen.changed, seen.value)
            if seen.decision.receipt is not None:  # what could not be recorded is asked again the next time
                self._book.learn(*key, seen.changed, seen.value)
        changes = []
        for output, decision_id, digest in found:
            changed, value = now.get((decision_id, digest)) or self._book.seen(decision_id, digest) or (True, _GONE)
            if changed:
                changes.append((output.path, framed(output, value)))
        return put_all(request, changes) if changes else request


_GONE: Final = "the result was withheld: it could not be checked"


def _refused(message: str, code: str, *, status: int = 403) -> InvalidCall:
    log.warning("a request was refused: %s", message)
    return InvalidCall(message, code=code, hint="start the conversation anew through this gateway", status=status)
