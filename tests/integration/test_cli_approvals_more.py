"""`aegis approvals watch | grants | revoke-grant` and `approve --scope --arguments`, as a person runs them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.shell import AEGIS, RunningGateway, aegis, aegis_python, environment, gateway, read_json

WAIT_S = 120  # for a condition, on a machine that does much else
CONFIG = """version: 1
tools:
  pay: {risk: high, approvals: {always: true}}
"""


@dataclass(frozen=True, kw_only=True)
class Office:
    """A gateway, its agent's key and an approver's environment."""

    running: RunningGateway
    agent: dict[str, str]
    approver: dict[str, str]

    def hold(self, call_id: str, amount: int = 500) -> str:
        """The approval of a new held call."""
        finished = self.decide(call_id, amount)
        assert finished.returncode == 3, finished.stderr
        approval: str = read_json(finished)["approval"]["id"]
        return approval

    def decide(self, call_id: str, amount: int = 500) -> subprocess.CompletedProcess[str]:
        call = {"tool": "pay", "arguments": {"amount": amount}, "call_id": call_id, "session": "s-1"}
        return aegis("decide", "-", stdin=json.dumps(call), env=self.agent)

    def approvals(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return aegis("approvals", *arguments, env=self.approver)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    home = tmp_path_factory.mktemp("office") / "home"
    home.mkdir(mode=0o700)
    (home.parent / "aegis.yaml").write_text(CONFIG)
    agent = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()
    approver = aegis("keys", "create", "--role", "approver", "--name", "ada", "--home", home).stdout.strip()
    with gateway(home, "--config", home.parent / "aegis.yaml") as running:
        here = {"AEGIS_URL": running.url}
        yield Office(
            running=running, agent={"AEGIS_API_KEY": agent, **here}, approver={"AEGIS_API_KEY": approver, **here}
        )


def test_a_narrower_call_is_approved_from_the_shell(office: Office) -> None:
    approval = office.hold("n-1")
    refused = office.approvals("approve", approval, "--arguments", '{"amount": 501}')
    assert refused.returncode == 2
    assert "`/amount` may only go down" in refused.stderr
    for unusable in ("[1]", "{", '{"amount": 1, "amount": 2}'):
        assert office.approvals("approve", approval, "--arguments", unusable).returncode == 2
    assert read_json(office.approvals("show", approval, "--json"))["state"] == "pending"
    answered = read_json(office.approvals("approve", approval, "--arguments", '{"amount": 5}', "--json"))
    assert (answered["state"], answered["arguments"], answered["narrowed"]) == ("approved", {"amount": 5}, True)
    shown = office.approvals("show", approval).stdout
    assert "narrowed by an approver; submitted was" in shown
    assert read_json(office.decide("n-1"))["arguments"] == {"amount": 5}


def test_a_yes_for_the_session_is_listed_and_taken_back(office: Office) -> None:
    assert office.approvals("grants").stdout == ""
    approval = office.hold("g-1", 7)
    answered = office.approvals("approve", approval, "--scope", "session")
    assert answered.returncode == 0
    (grant,) = read_json(office.approvals("grants", "--json"))["items"]
    assert grant["id"] in answered.stdout
    assert grant["state"] == "active"
    assert office.decide("g-2", 7).returncode == 0
    assert grant["id"] in office.approvals("grants").stdout
    revoked = office.approvals("revoke-grant", grant["id"])
    assert (revoked.returncode, "revoked" in revoked.stdout) == (0, True)
    assert office.approvals("revoke-grant", grant["id"]).returncode == 2
    assert office.decide("g-3", 7).returncode == 3
    assert office.approvals("approve", approval, "--scope", "always").returncode == 2


def test_every_command_wants_a_persons_key(office: Office) -> None:
    here = {"AEGIS_URL": office.running.url}
    for command in (
        ["list"],
        ["show", "x"],
        ["approve", "x"],
        ["deny", "x"],
        ["watch"],
        ["grants"],
        ["revoke-grant", "x"],
    ):
        finished = aegis("approvals", *command, env=here)
        assert finished.returncode == 2, command
        assert "approver's API key" in finished.stderr


class Watching:
    """`aegis approvals watch` while it runs, and everything that it printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], reads: int):
        self.process = process
        self._reads = reads
        self._text = b""
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._reads, 65_536)
            except OSError:  # a terminal whose other end is closed
                data = b""
            with self._changed:
                self._text += data
                self._changed.notify_all()
            if not data:
                return

    def printed(self, text: str) -> str:
        """Everything so far, once `text` is in it."""
        with self._changed:
            assert self._changed.wait_for(lambda: text.encode() in self._text, WAIT_S), self._text
            return self._text.decode()

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S)


def test_watch_prints_into_a_pipe_as_calls_come_and_ends_with_an_interrupt(office: Office) -> None:
    reads, writes = os.pipe()
    arguments = [str(AEGIS), "approvals", "watch", "--json"]
    with subprocess.Popen(arguments, stdout=writes, env=environment(office.approver)) as process:
        os.close(writes)
        watching = Watching(process, reads)
        first = office.hold("w-1")
        second = office.hold("w-2")
        watching.printed(first)
        text = watching.printed(second)
        assert office.approvals("deny", first).returncode == 0
        third = office.hold("w-3")
        text = watching.printed(third)
        assert [text.count(f'"id": "{one}"') + text.count(f'"id":"{one}"') for one in (first, second, third)] == [
            1,
            1,
            1,
        ]
        assert watching.interrupt() != 0
    for approval in (second, third):
        office.approvals("deny", approval)


def test_watch_shows_each_call_on_a_terminal(office: Office) -> None:
    ours, theirs = pty.openpty()
    arguments = [str(AEGIS), "approvals", "watch"]
    env = environment({**office.approver, "TERM": "xterm", "COLUMNS": "120"})
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        watching = Watching(process, ours)
        approval = office.hold("t-1", 123_456)
        watching.printed(approval)
        assert "Traceback" not in watching.printed("123456")
        watching.interrupt()
    assert "Traceback" not in watching.printed(approval)
    office.approvals("deny", approval)


def test_watch_for_a_while_ends_by_itself(office: Office) -> None:
    approval = office.hold("w-9")
    finished = office.approvals("watch", "--for", "1", "--json")
    assert finished.returncode == 0
    assert approval in finished.stdout
    office.approvals("deny", approval)


def test_approving_in_a_terminal_is_the_same_as_in_a_pipe(office: Office) -> None:
    approval = office.hold("t-2")
    ours, theirs = pty.openpty()
    arguments = [str(AEGIS), "approvals", "approve", approval]
    env = environment({**office.approver, "TERM": "xterm", "COLUMNS": "120"})
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        watching = Watching(process, ours)
        watching.printed("approved")
        assert process.wait(WAIT_S) == 0
    assert office.decide("t-2").returncode == 0


HEADLESS = """
import sys
import aegis

aegis.auto(url=sys.argv[1], api_key=sys.argv[2], agent="bot", on_unhooked="warn", on_approval=sys.argv[3] or None)


@aegis.protect
def pay(amount: int) -> str:
    print("paid", amount, flush=True)
    return "done"


with aegis.session("headless-" + sys.argv[4]):
    for attempt in range(int(sys.argv[5])):
        try:
            print("result", pay(amount=1), flush=True)
        except aegis.ToolCallBlocked as refusal:
            print("refused", refusal.decision.reason.value, flush=True)
        if sys.stdin.readline() == "":
            break
"""


class Headless:
    """An agent without a terminal, in a process of its own."""

    def __init__(self, office: Office, mode: str, attempts: int = 1, env: dict[str, str] | None = None):
        reads, writes = os.pipe()
        self.process = subprocess.Popen(
            [aegis_python(), "-c", HEADLESS, office.running.url, office.agent["AEGIS_API_KEY"], mode,
             mode or "env", str(attempts)],
            stdin=subprocess.PIPE, stdout=writes, env=environment(env),
        )  # fmt: skip
        os.close(writes)
        self.output = Watching(self.process, reads)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Everything that it printed, once it ended."""
        self.process.communicate(timeout=WAIT_S)
        return self.output.printed("")


def waiting(office: Office, session: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = read_json(office.approvals("list", "--json"))["items"]
    return [one for one in items if one["session"] == session]


def test_headless_block_refuses_at_once(office: Office) -> None:
    run = Headless(office, "block")
    run.output.printed("refused approval_required")
    assert "paid" not in run.end()
    (held,) = waiting(office, "headless-block")
    office.approvals("deny", held["id"])


def test_headless_defer_runs_once_somebody_agreed(office: Office) -> None:
    run = Headless(office, "defer", attempts=3)
    run.output.printed("refused approval_required")
    (held,) = waiting(office, "headless-defer")
    assert office.approvals("approve", held["id"]).returncode == 0
    run.go_on()
    run.output.printed("result done")
    run.go_on()
    text = run.end()
    assert text.count("paid 1") == 1
    assert text.count("refused approval_required") == 2  # what was used up asks again
    (again,) = waiting(office, "headless-defer")
    office.approvals("deny", again["id"])


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_headless_wait_goes_on_with_the_answer(office: Office, answer: str) -> None:
    run = Headless(office, "wait" if answer == "approve" else "", env={"AEGIS_ON_APPROVAL": "wait"})
    session = "headless-wait" if answer == "approve" else "headless-env"
    held: list[dict[str, Any]] = []
    while not held and run.process.poll() is None:
        held = waiting(office, session)
        time.sleep(0.1)
    assert office.approvals(answer, held[0]["id"]).returncode == 0
    run.output.printed("result done" if answer == "approve" else "refused approval_denied")
    assert run.end().count("paid 1") == (answer == "approve")
