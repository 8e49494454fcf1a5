"""A hundred callers, twenty approvers, a hundred held calls: each runs at most once, none is forgotten."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.approvals.values import COLLECTION, PENDING, from_document
from aegis.bootstrap.state import open_state
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.sdk.client import Client
from support.processes import CONFIG, gateway_process
from support.served import Credentials

CALLERS, APPROVERS, CALLS = 100, 20, 100
QUORUM = CONFIG + "  pay: {risk: high, approvals: {always: true, quorum: 2}}\n"


class Approver(threading.Thread):
    """Answers what it finds until it is told to stop: one in ten is denied, and everything is tried by everybody."""

    def __init__(self, number: int, ports: list[int], key: str, done: threading.Event):
        super().__init__(daemon=True)
        self._number, self._ports, self._key, self._done = number, ports, key, done
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        port = self._ports[self._number % len(self._ports)]
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            while not self._done.is_set():
                listed = self._ask(connection, "GET", "/v1/approvals?limit=20")
                items = listed["items"]
                for item in items[self._number % 7 :: 3]:
                    wrong = int(item["call_id"]) % 10 == 0
                    body = {"decision": "deny" if wrong else "approve", "call_digest": item["call_digest"]}
                    self._ask(connection, "POST", f"/v1/approvals/{item['id']}", body)
                self._done.wait(0.1)

    def _ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        self.statuses[answer.status] += 1
        return json.loads(answer.read())


async def caller(number: int, clients: list[Client], ran: list[tuple[str, Decision]]) -> None:
    """One of many callers: makes its call, and waits for it twice."""
    client, other = clients[number % len(clients)], clients[(number + 1) % len(clients)]
    for call_id in map(str, range(number, CALLS, CALLERS)):
        call = ToolCall(tool="pay", arguments={"amount": 5, "to": f"account {call_id}"}, call_id=call_id)
        held = await client.adecide(call)
        assert held.outcome is Outcome.REQUIRE_APPROVAL, held
        # The same call waits twice, on two gateways where there are two: of both one may run it.
        answers = await asyncio.gather(
            client.await_decision(call, held, 120.0), other.await_decision(call, held, 120.0)
        )
        ran.extend((call_id, answer) for answer in answers)


@pytest.mark.parametrize("processes", [1, 2])
def test_each_call_runs_at_most_once_and_nothing_is_stuck(tmp_path: Path, processes: int) -> None:
    home = tmp_path / "home"
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(gateway_process(home, QUORUM, log=tmp_path / f"{number}.log"))
            for number in range(processes)
        ]
        with closing(open_state(home / "aegis.yaml", home)) as state:
            people = Credentials(state.store)
            for number in range(APPROVERS):
                people.add(f"person-{number}", "approver")
        ports = [gateway.port for gateway in gateways]
        done = threading.Event()
        approvers = [Approver(number, ports, people.text(f"person-{number}"), done) for number in range(APPROVERS)]
        for approver in approvers:
            approver.start()
        ran: list[tuple[str, Decision]] = []

        async def callers() -> None:
            clients = [
                Client(f"http://127.0.0.1:{port}", api_key=gateways[0].keys["bot"], timeout=60) for port in ports
            ]
            await asyncio.gather(*(caller(number, clients, ran) for number in range(CALLERS)))
            for client in clients:
                client.close()

        try:
            asyncio.run(callers())
        finally:
            done.set()
            for approver in approvers:
                approver.join(60)
    runs = Counter(call_id for call_id, answer in ran if answer.allowed)
    refused = Counter(answer.reason for _, answer in ran if not answer.allowed)
    wanted = {str(number) for number in range(CALLS) if number % 10}
    assert runs == Counter(dict.fromkeys(wanted, 1))
    assert refused == {Reason.CONFLICT: len(wanted), Reason.APPROVAL_DENIED: 2 * (CALLS - len(wanted))}
    statuses = sum((approver.statuses for approver in approvers), Counter())
    assert set(statuses) <= {200, 409}
    with closing(open_state(home / "aegis.yaml", home)) as state, state.store.reader() as reader:
        approvals = [from_document(one) for one in reader.documents(COLLECTION, limit=2 * CALLS)]
        assert Counter(one.state for one in approvals) == {"redeemed": len(wanted), "denied": CALLS - len(wanted)}
        assert all(len(set(one.voters)) >= 2 for one in approvals if one.state == "redeemed")
        (pending,) = reader.documents(PENDING)
        assert orjson.loads(pending.body) == 0
        actions: Counter[tuple[str, str]] = Counter()
        for entry in reader.entries(0, reader.head().size):
            if entry.kind in ("approval", "redemption"):
                body = orjson.loads(entry.body)
                actions[(body["approval_id"], body["action"])] += 1
        assert all(count == 1 for (_, action), count in actions.items() if action != "voted")
        assert sum(1 for _, action in actions if action == "redeemed") == len(wanted)
