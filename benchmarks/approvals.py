"""From a person's yes to the resumed caller: over loopback, with long poll, one held call after another.

Run it as `python -m benchmarks.approvals`; figures are of one run on this machine.
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall
from aegis.core.outcome import Role
from aegis.core.times import system_clock
from aegis.keys.api import issue, store_key
from aegis.sdk.client import Client
from aegis.server.app import create_app
from aegis.server.serve import GatewayServer, ServeSettings, serve

CALLS: Final = 100
CONFIG: Final = """version: 1
profile: standard
limits: {rate: unlimited}
previews: {enabled: false}
tools: {pay: {risk: high, approvals: {always: true}}}
"""


def main() -> None:
    """Measure, and print the median and the slowest in twenty."""
    with tempfile.TemporaryDirectory() as folder:
        spent = measure(Path(folder) / "home")
    spent.sort()
    print(f"approve to resumed caller: median {statistics.median(spent) * 1e3:.1f} ms,", end=" ")
    print(f"p95 {spent[int(len(spent) * 0.95)] * 1e3:.1f} ms, {len(spent)} calls")


def measure(home: Path) -> list[float]:
    """Seconds from before the approver's request to after the caller has its permit."""
    home.mkdir(mode=0o700)
    file = home / "aegis.yaml"
    file.write_text(CONFIG)
    file.chmod(0o600)
    place = open_deployment(file, home)
    keys: dict[str, str] = {}
    people: tuple[tuple[str, Role], ...] = (("bot", "agent"), ("ann", "approver"))
    for name, role in people:
        agent = name if role == "agent" else None
        issued = issue(roles=(role,), now=system_clock(), agent=agent, name=name)
        with place.store.transaction() as transaction:
            store_key(transaction, issued)
        keys[name] = issued.text
    ready: SimpleQueue[GatewayServer] = SimpleQueue()
    settings = ServeSettings(port=0, drain_seconds=1)
    thread = threading.Thread(target=serve, args=(create_app(place), settings), kwargs={"ready": ready.put})
    thread.start()
    server = ready.get(timeout=30)
    try:
        return [_once(number, server.port, keys) for number in range(CALLS)]
    finally:
        server.stop()
        thread.join()
        place.close()


def _once(number: int, port: int, keys: dict[str, str]) -> float:
    client = Client(f"http://127.0.0.1:{port}", api_key=keys["bot"])
    call = ToolCall(tool="pay", arguments={"amount": number}, call_id=f"c-{number}")
    held = client.decide(call)
    if held.approval is None:
        raise RuntimeError("the call was not held")
    approval, ended = held.approval.id, [0.0]

    def wait() -> None:
        if not client.wait(call, held, 30.0).allowed:
            raise RuntimeError("the call was not released")
        ended[0] = time.perf_counter()

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.05)  # the caller is in its long poll
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.connect()
        started = time.perf_counter()
        headers = {"authorization": f"Bearer {keys['ann']}"}
        connection.request("POST", f"/v1/approvals/{approval}", json.dumps({"decision": "approve"}), headers)
        connection.getresponse().read()
    waiter.join()
    client.close()
    return ended[0] - started


if __name__ == "__main__":
    main()
