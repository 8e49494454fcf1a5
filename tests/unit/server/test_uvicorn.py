"""What the server takes of uvicorn that is not public: an update that changes it is noticed here first."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from uvicorn import Server
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

# Members that `aegis.server.protocol` and `serve` override, with their parameters, and those that they read or set.
OVERRIDDEN = {
    "_start_asgi_task": ["self", "cycle", "app"],
    "_unsupported_upgrade_warning": ["self"],
    "connection_lost": ["self", "exc"],
    "connection_made": ["self", "transport"],
    "data_received": ["self", "data"],
    "on_body": ["self", "body"],
    "on_headers_complete": ["self"],
    "on_message_begin": ["self"],
    "on_message_complete": ["self"],
    "on_response_complete": ["self"],
    "send_400_response": ["self", "msg"],
}
OF_THE_PROTOCOL = {
    "connections", "cycle", "expect_100_continue", "headers", "loop", "parser", "pipeline", "scope", "transport", "url",
}  # fmt: skip
OF_THE_SERVER = {
    "capture_signals": ["self"],
    "shutdown": ["self", "sockets"],
    "startup": ["self", "sockets"],
}
# The last row is what an answer in one write does by itself.
OF_THE_CYCLE = {
    "keep_alive", "response_complete", "response_started",
    "default_headers", "disconnected", "flow", "message_event", "on_response", "transport", "waiting_for_100_continue",
}  # fmt: skip


def members(of: type) -> set[str]:
    """Return the members that the class sets on itself anywhere in its source."""
    return set(re.findall(r"\bself\.(\w+)\b[^=\n]*?=[^=]", inspect.getsource(of)))


def test_the_members_of_uvicorn_that_are_used_are_there() -> None:
    for name, parameters in OVERRIDDEN.items():
        assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters) == parameters, name
    for name, parameters in OF_THE_SERVER.items():
        assert list(inspect.signature(getattr(Server, name)).parameters) == parameters, name
    assert members(HttpToolsProtocol) >= OF_THE_PROTOCOL
    assert members(RequestResponseCycle) >= OF_THE_CYCLE
    assert STATUS_LINE[503].startswith(b"HTTP/1.1 503 ")


def test_the_version_of_uvicorn_has_an_upper_bound() -> None:
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    server = map(Requirement, declared["project"]["optional-dependencies"]["server"])
    found = [one for one in server if one.name == "uvicorn"]
    assert found
    assert all(any(bound.operator == "<" for bound in one.specifier) for one in found)
