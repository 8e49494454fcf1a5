"""One event, judged: before a tool runs its call is decided, after it ran its result is observed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from msgspec import Struct

from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decider import Decider
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome
from aegis.enforce.enforcement import Enforcer, Observed
from aegis.enforce.scope import Session
from aegis.enforce.words import TurnHost
from aegis.errors import AegisError, InvalidCall
from aegis.proxies.hooks.event import HookEvent

# What one hook process has to leave for the next: files in the home, one a call, gone when they are used.

Kind = Literal["made", "held"]
MAX_AGE_S: Final = 7 * 86_400  # as long as an approval can wait; older files belong to calls that never ended
_SWEEP_ONE_IN: Final = 50


class HookState:
    """The files of one home."""

    def __init__(self, home: Path):
        self._folder = home / "hooks"

    def put(self, kind: Kind, key: str, value: dict[str, Any]) -> None:
        """Leave `value` for whoever asks for `key`; of the same key several are kept, oldest first."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{kind}-{_name(key)}-{time.time_ns():020d}-{secrets.token_hex(4)}.json"
        partial = path.with_suffix(".new")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orjson.dumps(value))
        partial.replace(path)
        if secrets.randbelow(_SWEEP_ONE_IN) == 0:
            self._sweep()

    def find(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The oldest value that was left for `key`, which stays."""
        paths = self._paths(kind, key)
        return _read(paths[0]) if paths else None

    def take(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The oldest value that was left for `key`; of several processes that ask, one gets it."""
        for path in self._paths(kind, key):
            taken = path.with_suffix(f".{secrets.token_hex(4)}")
            try:
                path.rename(taken)
            except FileNotFoundError:
                continue
            value = _read(taken)
            taken.unlink()
            return value
        return None

    def _paths(self, kind: Kind, key: str) -> list[Path]:
        return sorted(self._folder.glob(f"{kind}-{_name(key)}-*.json"))

    def _sweep(self) -> None:
        before = time.time() - MAX_AGE_S
        for path in self._folder.iterdir():
            if path.stat(follow_symlinks=False).st_mtime < before:
                path.unlink(missing_ok=True)


def _name(key: str) -> str:
    """A name that no key can steer out of the folder."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _read(path: Path) -> dict[str, Any]:
    value = orjson.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise InvalidCall("a file of the hooks' state is damaged", hint=f"remove `{path}`")
    return value


# What a host is told, in its own words: the exit code, what goes to standard output, what to standard error.
#
# Exit 2 with the reason on standard error blocks in every host; any other failure would let the call run. A yes of
# Aegis is no yes of the host: what its own rules would ask a person about, they still ask.

BLOCK: Final = 2


class HookAnswer(Struct, frozen=True, kw_only=True):
    """What the hook's process says and how it ends."""

    code: int = 0
    out: str = ""
    err: str = ""


def refused(reason: str, event: HookEvent | None = None) -> HookAnswer:
    """The call does not run, and the model is told why; some hosts take the reason from standard output."""
    out = ""
    if event is not None and event.dialect == "copilot" and event.phase == "before":
        out = json.dumps({"permissionDecision": "deny", "permissionDecisionReason": reason})
    return HookAnswer(code=BLOCK, out=out, err=f"{reason}\n")


def passed(event: HookEvent) -> HookAnswer:
    """Nothing is said against the call or the result: the host goes on with its own rules, as without this hook."""
    return HookAnswer(out="{}" if event.dialect == "cursor" else "")


def patched(event: HookEvent, arguments: dict[str, Any]) -> HookAnswer:
    """The call runs with other arguments, if the host lets it; refused where the host cannot be told of them."""
    if event.dialect in _MERGING and not event.arguments.keys() <= arguments.keys():
        return refused(f"`{event.tool}` was not run: its host cannot take an argument away", event)
    return HookAnswer(out=json.dumps(_PATCHED[event.dialect](event, arguments)))


def _claude(event: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    # `allow` would switch off the question that the host asks (code.claude.com/docs/en/hooks); without a decision some
    # versions leave the input as it was.
    output = {
        "hookEventName": event.name,
        "permissionDecision": "ask",
        "permissionDecisionReason": "Aegis changed the arguments of this call; these are the ones that run",
        "updatedInput": arguments,
    }
    return {"hookSpecificOutput": output}


def _codex(event: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    # New input counts only beside `allow`, which says nothing to the approvals and the sandbox of this host; it takes
    # any other answer for a failed hook and runs the call as it was (codex-rs/hooks/src/engine/output_parser.rs).
    output = {"hookEventName": event.name, "permissionDecision": "allow", "updatedInput": arguments}
    return {"hookSpecificOutput": output}


def _gemini(event: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event.name, "tool_input": arguments}}


def _cursor(_: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"updated_input": arguments}


def _copilot(_: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"modifiedArgs": arguments}


_PATCHED: Final = {"claude": _claude, "codex": _codex, "gemini": _gemini, "cursor": _cursor, "copilot": _copilot}
# Hosts that lay new arguments over the old ones, or do not say that they do not: what is left out would still run.
_MERGING: Final = frozenset({"gemini", "cursor"})


def replaced(event: HookEvent, notice: str, value: Any) -> HookAnswer:
    """The model sees `value` in place of the tool's result, and `notice` says why."""
    return HookAnswer(out=json.dumps(_REPLACED[event.dialect](event, notice, value)))


def _claude_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    output = {"hookEventName": event.name, "updatedToolOutput": value, "updatedMCPToolOutput": value}
    return {"decision": "block", "reason": notice, "hookSpecificOutput": output}


def _gemini_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    # A denied result is hidden, and the reason stands in its place.
    text = value if isinstance(value, str) else json.dumps(value)
    return {"decision": "deny", "reason": f"{notice}\n{text}"}


def _cursor_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    return {"updated_mcp_tool_output": value, "additional_context": notice}


def _copilot_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value)
    return {"modifiedResult": {"resultType": "success", "textResultForLlm": text}, "additionalContext": notice}


_REPLACED: Final = {
    "claude": _claude_result,
    "codex": _claude_result,
    "gemini": _gemini_result,
    "cursor": _cursor_result,
    "copilot": _copilot_result,
}


def blanked(value: Any, notice: str) -> Any:
    """`value` with its shape kept and its texts gone; the first of them is the notice."""
    left = [notice]

    def blank(inner: Any) -> Any:
        if isinstance(inner, str):
            return left.pop() if left else ""
        if isinstance(inner, list):
            return [blank(item) for item in inner]
        if isinstance(inner, dict):
            # A member that only says what kind of value this is keeps the shape valid.
            return {name: item if name == "type" else blank(item) for name, item in inner.items()}
        return inner

    found = blank(value)
    return notice if left else found


_UNSEEN: Final = "the result was withheld: nobody decided the call that it belongs to"


class HookJudge:
    """Judges events for one decider; a held call waits until `wait_until` of the monotonic clock, in seconds.

    `host` records what users say. Words that cannot be recorded are missing, which loosens nothing: prompts pass.
    `released` gives the decision by which a person let exactly a call run where its model proposed it, by the model's
    id and the digest: nobody is asked about it again.
    """

    def __init__(
        self,
        decider: Decider,
        state: HookState,
        *,
        wait_until: float,
        host: TurnHost | None = None,
        released: Callable[[str, str], str | None] | None = None,
    ):
        self._decider = decider
        self._released = released
        self._host = host
        self._state = state
        self._wait_until = wait_until

    def answer(self, event: HookEvent) -> HookAnswer:
        """What the host is told."""
        if event.phase == "said":
            enforcer = Enforcer(self._decider, host=self._host)
            enforcer.run(enforcer.say([event.said], _session_of(event)))
            return passed(event)
        if event.phase == "after":
            asked = self._result(event)
            if isinstance(asked, HookAnswer):
                return asked
            enforcer = Enforcer(self._decider)
            return _observed(event, enforcer.run(enforcer.observe([asked])))
        call, held = self._call(event)
        decision = self._decider.decide(call)
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            held = self._hold(event, call, held=held)
            decision = self._decider.wait(call, decision, self._patience())
        return self._settled(event, decision, held=held)

    async def aanswer(self, event: HookEvent) -> HookAnswer:
        """The async twin of `answer`; cancelling it leaves a held call held."""
        if event.phase == "said":
            enforcer = Enforcer(self._decider, host=self._host)
            await enforcer.arun(enforcer.say([event.said], _session_of(event)))
            return passed(event)
        if event.phase == "after":
            asked = self._result(event)
            if isinstance(asked, HookAnswer):
                return asked
            enforcer = Enforcer(self._decider)
            return _observed(event, await enforcer.arun(enforcer.observe([asked])))
        if self._released is not None and event.call_id:
            decision_id = self._released(event.call_id, _digest(event, event.arguments))
            if decision_id is not None:
                self._state.put("made", event.key, {"decision_id": decision_id})
                return passed(event)
        call, held = self._call(event)
        decision = await self._decider.adecide(call)
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            held = self._hold(event, call, held=held)
            decision = await self._decider.await_decision(call, decision, self._patience())
        return self._settled(event, decision, held=held)

    def _call(self, event: HookEvent) -> tuple[ToolCall, bool]:
        """The call, and whether a person was asked about it: then it keeps its id, so that the answer counts."""
        held = self._state.find("held", event.again)
        call_id = held["call_id"] if held is not None else event.call_id or secrets.token_hex(16)
        call = ToolCall(
            tool=event.tool,
            server=event.server,
            arguments=event.arguments,
            call_id=call_id,
            session=event.session or None,
        )
        return call, held is not None

    def _hold(self, event: HookEvent, call: ToolCall, *, held: bool) -> bool:
        if not held:
            self._state.put("held", event.again, {"call_id": call.call_id})
        return True

    def _patience(self) -> float:
        return max(0.0, self._wait_until - time.monotonic())

    def _settled(self, event: HookEvent, decision: Decision, *, held: bool) -> HookAnswer:
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            return refused(_waiting(event, decision), event)
        if held:
            self._state.take("held", event.again)
        # What is allowed must be what was asked about.
        if not decision.allowed:
            return refused(f"`{event.tool}` was not run: {decision.message} (reason: {decision.reason.value})", event)
        if not _binds(event, decision):
            return refused(f"`{event.tool}` was not run: the decision is about another call", event)
        made = {"decision_id": decision.decision_id}
        self._state.put("made", event.key, made)
        if decision.outcome is Outcome.SANITIZE and decision.arguments is not None:
            if not event.call_id:  # the host will name the result by what ran
                self._state.take("made", event.key)
                self._state.put("made", event.digest_of(decision.arguments), made)
            return patched(event, decision.arguments)
        return passed(event)

    def _result(self, event: HookEvent) -> ToolResult | HookAnswer:
        """The result to judge, or what the host is told where nobody decided its call."""
        made = self._state.take("made", event.key)
        if made is None:
            return replaced(event, _UNSEEN, blanked(event.result, _UNSEEN))
        return ToolResult(decision_id=made["decision_id"], result=event.result)


def _session_of(event: HookEvent) -> Session | None:
    return Session(name=event.session) if event.session else None


def _observed(event: HookEvent, results: Sequence[Observed]) -> HookAnswer:
    (observed,) = results
    if observed.withheld:
        return replaced(event, str(observed.value), blanked(event.result, str(observed.value)))
    if observed.changed:
        return replaced(event, "parts of the result were removed before you saw it", observed.value)
    return passed(event)


def _waiting(event: HookEvent, decision: Decision) -> str:
    approval = decision.approval
    told = f"`{event.tool}` was not run: a person has to approve it"
    if approval is None:
        return f"{told}; make the same call again after that"
    # The person who reads this sits at the terminal; what the agent itself types there is refused.
    known = f"(approval {approval.id}, open until {approval.expires_at})"
    return (
        f"{told} {known}; the person does so with `aegis approvals approve {approval.id}` in a terminal of their own, "
        "and the same call made again then runs"
    )


def _binds(event: HookEvent, decision: Decision) -> bool:
    """Whether the decision carries the digests of this very call, and of what it gives to run."""
    asked = runs = _digest(event, event.arguments)
    if decision.outcome is Outcome.SANITIZE:
        if decision.arguments is None:
            return False
        runs = _digest(event, decision.arguments)
    return decision.request_digest == asked and decision.call_digest == runs


def _digest(event: HookEvent, arguments: dict[str, Any]) -> str:
    return call_digest(server=event.server, tool=event.tool, arguments=canonical(arguments))


# A hook that cannot fail open: the work is done by a child, and whatever becomes of it, the host hears 0 or 2.
#
# A crash, a signal, a hang, an exception or an answer cut short is exit 2 with the reason on standard error: Claude
# Code
# takes every other code for a harmless mishap and runs the tool.

_CHUNK: Final = 65_536


def supervised(work: Callable[[], HookAnswer], *, seconds: float) -> HookAnswer:
    """What `work` answers within `seconds`, or the refusal that stands for its failure."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_worked(work, writing))
    os.close(writing)
    try:
        data = _read_until(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if data is None:
        return refused(f"the call was not checked within {seconds:.0f} seconds, so it was not made")
    try:
        answer = json.loads(data)
        return HookAnswer(code=int(answer["code"]), out=str(answer["out"]), err=str(answer["err"]))
    except (ValueError, KeyError, TypeError):
        return refused("the check of the call broke off, so it was not made")


def _worked(work: Callable[[], HookAnswer], writing: int) -> int:
    """The child's life: answer over the pipe, whatever happens."""
    try:
        answer = work()
    except AegisError as error:
        answer = refused(f"the call could not be checked, so it was not made: {error}")
    except BaseException as error:
        answer = refused(f"the call could not be checked, so it was not made: {type(error).__name__}")
    code = answer.code if answer.code in (0, BLOCK) else BLOCK
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps({"code": code, "out": answer.out, "err": answer.err}).encode())
    return 0


def _read_until(descriptor: int, deadline: float) -> bytes | None:
    """Everything that the child says until it closes the pipe; `None` where it takes too long."""
    chunks: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
