"""The person of the demonstration: says yes to one call, over the same API that a real one uses."""

from __future__ import annotations

import threading
from typing import Any, Final

from aegis.cli.demo.stage import Stage

_LOOK_S: Final = 0.1


class Approver(threading.Thread):
    """Approves the held call `call_id` as soon as it is in the queue; leaves every other one alone."""

    def __init__(self, stage: Stage, call_id: str):
        super().__init__(name="demo-approver", daemon=True)
        self._stage = stage
        self._call_id = call_id
        self._done = threading.Event()

    def run(self) -> None:
        """Look at the queue until the call is there and answered."""
        gateway, key = self._stage.gateway, self._stage.approver_key
        while not self._done.wait(_LOOK_S):
            listed: dict[str, Any] = gateway.ask("GET", "/v1/approvals", key)
            for item in listed["items"]:
                if item["call_id"] == self._call_id and item["state"] == "pending":
                    answer = {"decision": "approve", "reason": "the customer asked for it"}
                    gateway.ask("POST", f"/v1/approvals/{item['id']}", key, answer)
                    return

    def stop(self) -> None:
        """Stop looking."""
        self._done.set()
        self.join()
