"""Tools that an SDK's own runner executes: enforced right before the body runs, with its final arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aegis.core.call import ToolResult
from aegis.core.canonical import canonical, sha256
from aegis.core.json import parse
from aegis.enforce.arguments import jsonable
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer, Steps, log
from aegis.enforce.failures import failure_of
from aegis.enforce.memory import Decided, Memory
from aegis.enforce.scope import Session, current_session
from aegis.errors import InvalidCall

_UNREADABLE: Final = (
    "was not run: its arguments are missing, of another type, or unknown; call it again as its schema says"
)
_NO_JSON: Final = "the result was withheld: it has no JSON form, so it could not be checked"
_NO_WORDS: Final = "the tool failed; what it said was withheld, because it could not be checked"


class Execution(NamedTuple):
    """One call that a runner is about to execute.

    `arguments` gives the final arguments and may raise; `answer_id` tells apart answers whose ids repeat,
    `None` where the framework does not say which answer a call is from. `handoff` says that it lets another of its
    agents go on.
    """

    tool: str
    call_id: str
    answer_id: str | None
    arguments: Callable[[], Any]
    server: str | None = None
    handoff: bool = False


def comes_from(tool: Any, *modules: str) -> bool:
    """Whether a tool, or the function that it is made of, is a framework's own and stands in one of its `modules`.

    Where a framework makes the tools that hand off, no name and no annotation of a server makes one.
    """
    made = (type(tool), *(getattr(tool, name, None) for name in _MADE_OF))
    return any(getattr(one, "__module__", None) in modules for one in made)


_MADE_OF: Final = ("func", "coroutine", "real_fn", "_func")


class Judged(NamedTuple):
    """What the model may see of a result, and whether that is anything else than the result."""

    seen: Any
    changed: bool = False
    withheld: bool = False


# What of a result is judged; JSON.
View = Callable[[Any], Any]


class RunnerGate:
    """What runners ask before and after they run a tool; remembers both for the request that follows.

    `ran` says whether a call is running or has run under a decision, so that nothing of it runs again.
    """

    def __init__(self, enforcer: Enforcer, memory: Memory, ran: Callable[[str], bool] = lambda _: False) -> None:
        self.enforcer = enforcer
        self._memory = memory
        self._ran = ran

    def before(self, execution: Execution) -> Steps[Enforced | str]:
        """The enforced call where it may run, otherwise the sentence to give to the model."""
        session = current_session()
        name = "" if session is None else session.name
        known = self._memory.decision(name, execution.call_id)
        if known is not None and known.refusal:
            return self.refused(execution, known.refusal)
        try:
            arguments = jsonable(execution.arguments())
        except Exception as error:
            log.info("the arguments of `%s` were not accepted: %s", execution.tool, type(error).__name__)
            return self.refused(execution, f"`{execution.tool}` {_UNREADABLE}")
        call_id = self._memory.execution_id(name, execution.answer_id, execution.call_id)
        attempt = Attempt(
            tool=execution.tool,
            server=execution.server,
            arguments=arguments,
            call_id=call_id,
            handoff=execution.handoff,
            reasoning=self._memory.reasoning(name, execution.call_id),
        )
        enforced = None if known is None else (yield from self._again(attempt, known, session))
        if enforced is None:
            (enforced,) = yield from self.enforcer.enforce([attempt], session)
            if enforced.decision.call_id != call_id:
                used = enforced.decision.call_id
                self._memory.learn_execution_id(name, execution.answer_id, execution.call_id, used)
        if not enforced.allowed:
            return self.refused(execution, enforced.refusal)
        # A call that is run again keeps what is known of its result.
        if known is None or known.decision_id != enforced.decision.decision_id:
            known = Decided(decision_id=enforced.decision.decision_id, allowed=True)
        known.enforced, known.begun = enforced, True
        self._memory.learn_decision(name, execution.call_id, known)
        return enforced

    def _again(self, attempt: Attempt, known: Decided, session: Session | None) -> Steps[Enforced | None]:
        """The very call as it was decided before, if it still may run; people who approved it are not asked twice.

        An approval is for one execution: what failed is asked about anew.
        """
        before = known.enforced
        if before is None or (before.tool, before.decision.call_id) != (attempt.tool, attempt.call_id):
            return None
        if known.begun and not self._ran(known.decision_id):
            return None
        try:
            body = canonical(attempt.arguments)
        except InvalidCall:
            return None
        if body not in (before.asked, before.body):
            return None
        again = yield from self.enforcer.again(
            attempt._replace(arguments=parse(before.asked)), known.decision_id, session
        )
        return before if again is None else again

    def after(self, execution: Execution, enforced: Enforced, result: Any) -> Steps[Any]:
        """What the model may see of the result."""
        judged = yield from self.judged(execution, enforced, result, jsonable)
        return judged.seen if judged.changed else result

    def judged(self, execution: Execution, enforced: Enforced, result: Any, view: View) -> Steps[Judged]:
        """The judgement of a result by its `view`, which is what the model would see."""
        session = current_session()
        name = "" if session is None else session.name
        try:
            value = jsonable(view(result))
            body = canonical(value)
        except (ValueError, InvalidCall):
            judged = Judged(seen=_NO_JSON, changed=True, withheld=True)
        else:
            asked = ToolResult(decision_id=enforced.decision.decision_id, result=value)
            (observed,) = yield from self.enforcer.observe([asked])
            judged = Judged(seen=observed.value, changed=observed.changed, withheld=observed.withheld)
            if not observed.changed:
                self._remember(name, execution.call_id, sha256(body), value)
                return judged
        self._learn(name, execution.call_id, judged.seen)
        return judged

    def waiting(self, execution: Execution, told: str) -> None:
        """Know `told` again: the model is given it for a call that has no result yet, and it is no result."""
        session = current_session()
        self._learn("" if session is None else session.name, execution.call_id, told)

    def failed(self, execution: Execution, enforced: Enforced, error: Exception) -> Steps[Judged]:
        """The judgement of what a body's exception says: a tool's words like any other.

        A call that failed may be run again and then has its result, so this is a further text of it.
        """
        session = current_session()
        name = "" if session is None else session.name
        try:
            asked = failure_of(enforced.decision, error)
            body = canonical(asked.result)
        except (ValueError, InvalidCall):
            judged = Judged(seen=_NO_WORDS, changed=True, withheld=True)
        else:
            (observed,) = yield from self.enforcer.observe([asked])
            if not observed.changed:
                self._remember(name, execution.call_id, sha256(body), asked.result)
                return Judged(seen=asked.result)
            # Whatever may be seen, the exception itself may not: it holds the words as they were.
            judged = Judged(seen=observed.value, changed=True, withheld=True)
        self._learn(name, execution.call_id, judged.seen)
        return judged

    def refused(self, execution: Execution, refusal: str) -> str:
        """The sentence that the model is given in place of a result, which is known again in the next request."""
        session = "" if (current := current_session()) is None else current.name
        self._memory.learn_decision(session, execution.call_id, Decided(decision_id="", allowed=False, told=refusal))
        self._learn(session, execution.call_id, refusal)
        return refusal

    def _learn(self, session: str, call_id: str, seen: Any) -> None:
        """What the model is given here passes in the next request as it is."""
        try:
            digest = sha256(canonical(jsonable(seen)))
        except (ValueError, InvalidCall):
            return
        self._remember(session, call_id, digest, seen)

    def _remember(self, session: str, call_id: str, digest: str, seen: Any) -> None:
        decided = self._memory.decision(session, call_id)
        if decided is not None:
            self._memory.learn_result(decided, digest, False, seen)
