"""The SDK proves possession by itself: at the opening of a session, and with every call of it."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import aegis
from aegis.core.call import ToolCall
from aegis.core.decision import Decision, OpenedSession
from aegis.core.outcome import Outcome, Reason
from aegis.errors import GatewayUnavailable, InvalidCall, ToolCallBlocked
from aegis.missions.holder import Holder, holder_folder
from aegis.sdk.client import Client
from aegis.sdk.runtime import Gate
from support.asking import Mode, both_modes, decide
from support.missions import ISSUER, claims
from support.served import Served
from support.shell import aegis as run
from support.threads import together

PROOFS = {"evidence": ["session_proof", "call_proof"]}
TOOLS = {"tools": {"allow": ["read_file"]}, "effects": ["read"]}


@pytest.fixture
def gateway(shared_gateway: Served) -> Served:
    return shared_gateway


def embedded(gateway: Served, home: Path) -> Any:
    return Gate(gateway.deployment.gate.parts, gateway.deployment.gate.principal, home=home)


def remote(gateway: Served, home: Path) -> Any:
    url = f"http://127.0.0.1:{gateway.port}"
    return Client(url, gateway.credentials.text("bot"), agent="bot", home=home)


@pytest.fixture(params=[embedded, remote], ids=["gate", "client"])
def host(request: pytest.FixtureRequest, gateway: Served, tmp_path: Path) -> Iterator[Any]:
    make: Callable[[Served, Path], Any] = request.param
    made = make(gateway, tmp_path)
    yield made
    if isinstance(made, Client):
        made.close()


def issue(gateway: Served, home: Path, **changes: Any) -> str:
    key = Holder(holder_folder(home), "bot").confirmation()
    return bare(gateway, cnf=key, **{**PROOFS, **changes})


def bare(gateway: Served, **changes: Any) -> str:
    gate = gateway.deployment.gate
    issued = gate.issuing.issue(ISSUER, claims={**claims(), **TOOLS, **changes})
    assert issued.unit is not None
    gate.record(issued.unit)
    return issued.declaration.mission_id


def opened(host: Any, session: str, mode: Mode, **more: Any) -> OpenedSession:
    found: OpenedSession = (
        asyncio.run(host.aopen_session(session, **more)) if mode == "async" else host.open_session(session, **more)
    )
    return found


def read(session: str, path: str = "/ws/a") -> ToolCall:
    return ToolCall(tool="read_file", arguments={"path": path}, session=session)


@both_modes
def test_a_session_and_its_calls_are_proved_without_the_developers_help(
    host: Any, gateway: Served, tmp_path: Path, mode: Mode
) -> None:
    name = f"p-{type(host).__name__}-{mode}"
    assert opened(host, name, mode, mission=issue(gateway, tmp_path)).fresh
    for _ in range(3):
        assert decide(host, read(name), mode).allowed
    assert decide(host, read(name, "/srv/b"), mode).reason is Reason.SCOPE_VIOLATION


def test_the_holder_key_is_the_agents_alone(gateway: Served, tmp_path: Path) -> None:
    issue(gateway, tmp_path)
    (file,) = holder_folder(tmp_path).rglob("*.key")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_same_credential_without_the_key_is_refused(gateway: Served, tmp_path: Path) -> None:
    mission = issue(gateway, tmp_path)
    with pytest.raises(InvalidCall) as refused:
        remote(gateway, tmp_path / "thief").open_session("t-1", mission=mission)
    assert refused.value.status in (403, 422)
    remote(gateway, tmp_path).open_session("t-2", mission=mission)
    plain = Client(f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot"))
    assert plain.decide(read("t-2")).reason is Reason.PROOF_INVALID


def test_a_host_that_starts_again_goes_on_with_its_session(gateway: Served, tmp_path: Path) -> None:
    mission = issue(gateway, tmp_path)
    first = remote(gateway, tmp_path)
    first.open_session("r-1", task="read", mission=mission)
    assert first.decide(read("r-1")).allowed
    again = remote(gateway, tmp_path)
    assert not again.open_session("r-1", task="read", mission=mission).fresh
    assert again.decide(read("r-1")).allowed


def test_one_changed_byte_and_a_moved_proof_are_refused_and_the_honest_call_passes(
    gateway: Served, tmp_path: Path
) -> None:
    client = remote(gateway, tmp_path)
    for name in ("m-1", "m-2"):
        client.open_session(name, mission=issue(gateway, tmp_path))
    proved = client._provers.prove(read("m-1"))
    for change in (
        {"arguments": {"path": "/ws/b"}},
        {"tool": "read_files"},
        {"session": "m-2"},
        {"server": "mcp:files"},
    ):
        assert ask(gateway, replace(proved, **change)).reason is Reason.PROOF_INVALID
    assert ask(gateway, proved).allowed
    assert ask(gateway, replace(proved, call_id="other")).reason is Reason.PROOF_INVALID


def ask(gateway: Served, call: ToolCall) -> Decision:
    return Client(f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot")).decide(call)


def test_calls_of_many_threads_are_each_proved_once(gateway: Served, tmp_path: Path) -> None:
    client = remote(gateway, tmp_path)
    client.open_session("many", mission=issue(gateway, tmp_path))
    outcomes: list[Outcome] = []

    def work() -> None:
        outcomes.extend(client.decide(read("many", f"/ws/{number}")).outcome for number in range(10))

    together(8, work)
    assert outcomes == [Outcome.ALLOW] * 80


def test_protected_functions_of_a_session_are_proved(gateway: Served, tmp_path: Path) -> None:
    mission = issue(gateway, tmp_path)
    seen: list[str] = []

    @aegis.protect
    def read_file(path: str) -> str:
        seen.append(path)
        return "text"

    aegis.auto(
        f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot"), "bot", home=tmp_path, on_unhooked="warn"
    )
    try:
        with aegis.session("auto-1", task="read a", mission=mission):
            assert read_file("/ws/a") == "text"
            with pytest.raises(ToolCallBlocked):
                read_file("/srv/b")
        with aegis.session("auto-1", task="read a", mission=mission):
            assert read_file("/ws/c") == "text"
    finally:
        aegis.unhook()
    assert seen == ["/ws/a", "/ws/c"]


async def test_a_session_opens_on_an_event_loop(gateway: Served, tmp_path: Path) -> None:
    @aegis.protect
    async def read_file(path: str) -> str:
        return path

    aegis.auto(
        f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot"), "bot", home=tmp_path, on_unhooked="warn"
    )
    try:
        async with aegis.session("loop-1", mission=issue(gateway, tmp_path)):
            assert await read_file("/ws/a") == "/ws/a"
    finally:
        aegis.unhook()


def test_the_task_that_a_host_names_is_on_record_as_trusted(gateway: Served, tmp_path: Path) -> None:
    aegis.auto(
        f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot"), "bot", home=tmp_path, on_unhooked="warn"
    )
    try:
        with aegis.session("task-1", task="answer the customer"):
            pass
        with pytest.raises(InvalidCall, match="another task"), aegis.session("task-1", task="wire the money"):
            pass
    finally:
        aegis.unhook()
    trace = gateway.ask("GET", "/v1/sessions/task-1", key="auditor").json
    assert [item["kind"] for item in trace["items"]] == ["session"]


def test_a_session_that_cannot_be_opened_begins_no_block(tmp_path: Path) -> None:
    aegis.auto("http://127.0.0.1:9", "k", "bot", home=tmp_path, on_unhooked="warn")
    try:
        with pytest.raises(GatewayUnavailable), aegis.session("gone", task="x"):
            pytest.fail("the block began")
    finally:
        aegis.unhook()


def test_a_holder_key_is_made_at_the_command_line(gateway: Served, tmp_path: Path) -> None:
    told = run("missions", "holder", "--agent", "bot", "--home", str(tmp_path))
    assert told.returncode == 0, told.stderr
    client = remote(gateway, tmp_path)
    client.open_session("cli-1", mission=bare(gateway, cnf=orjson.loads(told.stdout), **PROOFS))
    assert client.decide(read("cli-1")).allowed


def test_a_mission_without_a_holder_key_asks_for_no_proof(host: Any, gateway: Served) -> None:
    name = f"bare-{type(host).__name__}"
    assert host.open_session(name, mission=bare(gateway), tools=["read_file"]).audience is None
    assert host.decide(read(name)).allowed
