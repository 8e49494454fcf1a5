"""An exception raised at any instruction of a caller's thread, as a signal does, leaves an embedded gate usable."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

import aegis
from aegis.approvals.answering import Answer
from aegis.bootstrap import Deployment
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from support.approvals import person, stored
from support.deployments import deployment
from support.shell import aegis as command

STRIDE = 1  # every instruction
ASYNC_STRIDE = 5  # a loop of its own each time
_LOOPS_OWN = re.compile("asyncio|_weakrefset")
END = 50_000  # more than any verb has in its caller's thread

Verb = Callable[[DeployedGate, int], Any]


class Interrupted(BaseException):
    """What a handler of a signal raises."""


class Interrupter:
    """A tracer that raises at the `at`-th instruction of this thread, once."""

    def __init__(self, at: int):
        self._left = at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Interrupter:
        frame.f_trace_opcodes = True
        # A loop's own state, its weak sets of tasks included, is not ours to keep.
        if event == "opcode" and not _LOOPS_OWN.search(frame.f_code.co_filename):
            self._left -= 1
            if not self._left:
                sys.settrace(None)
                raise Interrupted
        return self


def interrupted(at: int, verb: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether `verb` was interrupted at its `at`-th instruction, and otherwise what it returned."""
    before = sys.gettrace()
    sys.settrace(Interrupter(at))
    try:
        return False, verb()
    except Interrupted:
        return True, None
    finally:
        sys.settrace(before)


def receipts(place: Deployment, kind: str) -> list[dict[str, Any]]:
    with place.store.reader() as reader:
        entries = list(reader.entries(0, reader.head().size))
    return [orjson.loads(entry.body) for entry in entries if entry.kind == kind]


def check_log(place: Deployment, tmp_path: Path) -> None:
    out = tmp_path / "export"
    assert command("log", "export", "--home", place.home, "--out", out).returncode == 0
    (tmp_path / "keys.json").write_bytes((out / "keys.json").read_bytes())
    done = command("log", "verify", out, "--key", tmp_path / "keys.json")
    assert done.returncode == 0, done.stdout + done.stderr


def call(number: int, tool: str = "read_file", **more: Any) -> ToolCall:
    return ToolCall(tool=tool, arguments={"path": f"{number}.txt"}, call_id=f"call_{number}", session="s-1", **more)


@pytest.mark.claim("FLT-14")
def test_a_decision_may_be_interrupted_anywhere(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home")
    gate, at = place.gate, 0
    gate.decide(call(0))
    released: list[Decision] = []
    for at in range(1, END, STRIDE):
        was, answer = interrupted(at, partial(gate.decide, call(at)))
        again = gate.decide(call(at))
        assert again.outcome is Outcome.ALLOW
        released += [again] if was else [answer, again]
        if not was:
            break
    assert at > 50
    assert gate.observe(ToolResult(decision_id=released[-1].decision_id, result="text")).outcome is Outcome.ALLOW
    recorded = receipts(place, "decision")
    assert len(recorded) == at + 1  # one decision a call, whether it was interrupted before its record or after
    assert {one.receipt.id for one in released if one.receipt} <= {one["receipt_id"] for one in recorded}
    check_log(place, tmp_path)
    place.close()


@pytest.mark.claim("FLT-14")
def test_a_decision_on_an_event_loop_may_be_interrupted_anywhere(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home")
    gate = place.gate

    async def asked(at: int) -> bool:
        sys.settrace(Interrupter(at))  # from here on, the loop's own callbacks included
        try:
            await gate.adecide(call(at))
        finally:
            finished = sys.gettrace() is not None
            sys.settrace(None)
        return finished

    before = sys.gettrace()
    for at in range(1, END, ASYNC_STRIDE):
        finished = False
        try:
            with suppress(Interrupted):
                finished = asyncio.run(asked(at))
        finally:
            sys.settrace(before)
        assert gate.decide(call(at)).allowed
        assert asyncio.run(gate.adecide(call(at))).allowed
        if finished:
            break
    assert at > 50
    check_log(place, tmp_path)
    place.close()


@pytest.mark.claim("FLT-14")
def test_a_result_may_be_interrupted_anywhere(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home")
    gate = place.gate
    for at in range(1, END, STRIDE):
        result = ToolResult(decision_id=gate.decide(call(at)).decision_id, result="text")
        was, _ = interrupted(at, partial(gate.observe, result))
        assert gate.observe(result).outcome is Outcome.ALLOW
        if not was:
            break
    assert len(receipts(place, "result")) == at > 50
    check_log(place, tmp_path)
    place.close()


@pytest.mark.claim("FLT-14")
def test_an_answer_and_the_call_that_it_releases_may_be_interrupted_anywhere(tmp_path: Path) -> None:
    text = "version: 1\nlimits: {rate: unlimited}\napprovals: {max_pending: 10000, hourly_limit: 10000}\n"
    place = deployment(tmp_path / "home", text + "tools: {send_email: {risk: high, irreversible: true}}\n")
    gate, ann = place.gate, person(place.store, "ann")
    for at in range(1, END, STRIDE):
        held = gate.decide(call(at, "send_email"))
        assert held.approval is not None
        approval_id = held.approval.id
        answered, _ = interrupted(at, partial(gate.answer, approval_id, Answer(decision="approve"), principal=ann))
        if stored(place.store, approval_id).state == "pending":
            gate.answer(approval_id, Answer(decision="approve"), principal=ann)
        resumed, _ = interrupted(at, partial(gate.decide, call(at, "send_email")))
        last = gate.decide(call(at, "send_email"))
        # Released to somebody, or used up by the caller who went away: it never runs twice.
        assert last.allowed or stored(place.store, approval_id).state == "redeemed"
        if not answered and not resumed:
            break
    assert len(receipts(place, "redemption")) == at > 50
    check_log(place, tmp_path)
    place.close()


@pytest.mark.claim("FLT-14")
def test_a_redemption_may_be_interrupted_anywhere(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home")
    gate = place.gate
    for at in range(1, END, STRIDE):
        permit = gate.decide(call(at, want_permit=True)).permit
        assert permit is not None

        def redeem(text: str = permit, number: int = at) -> str:
            return gate.redeem(text, tool="read_file", arguments={"path": f"{number}.txt"})

        was, _ = interrupted(at, redeem)
        redeemed = 0 if was else 1
        try:
            redeem()
        except aegis.PermitInvalid as refusal:
            assert refusal.code == "permit_redeemed"
        else:
            redeemed += 1
        assert redeemed <= 1
        if not was:
            break
    assert len(receipts(place, "redemption")) == at > 50
    check_log(place, tmp_path)
    place.close()


@pytest.mark.claim("FLT-14")
def test_the_alarm_of_a_host_that_raises_leaves_the_gate_usable(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home")
    gate, rang = place.gate, 0

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.000_02 * (number % 40 + 1))
                gate.decide(call(number))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except TimeoutError:
                rang += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rang
    assert all(gate.decide(call(number)).allowed for number in range(400))
    assert len(receipts(place, "decision")) == 400
    check_log(place, tmp_path)
    place.close()


@pytest.mark.claim("FLT-14")
def test_without_another_thread_a_call_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = deployment(tmp_path / "home")

    def none(*_: Any) -> int:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("_thread.start_new_thread", none)
        assert threading.current_thread() is threading.main_thread()
        assert place.gate.decide(call(1)).reason is Reason.UNAVAILABLE
    assert place.gate.decide(call(1)).allowed
    place.close()
