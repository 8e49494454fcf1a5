"""Callers that decide as long as there is somebody to ask."""

from __future__ import annotations

import http.client
import json
import uuid

Acknowledged = list[tuple[str, int]]


def load(port: int, key: str, acknowledged: Acknowledged) -> None:
    """Decide until the gateway is gone; remember what it acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    while True:
        body = json.dumps({"tool": "read_file", "arguments": {"path": "a.txt"}, "call_id": uuid.uuid4().hex})
        try:
            connection.request("POST", "/v1/decisions", body, headers)
            answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return
        assert answer["decision"] == "allow"
        acknowledged.append((answer["decision_id"], answer["receipt"]["index"]))
