"""What somebody wrote into the store past Aegis gives nobody anything: through the doors that people and agents use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from aegis.bootstrap import Deployment
from aegis.bootstrap.credentials import alter_account, create_account, create_key, revoke_key
from aegis.bootstrap.state import State, open_state
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.errors import StoreCorrupt
from aegis.gate.control import set_agent
from aegis.keys.accounts import find_account
from aegis.keys.api import ApiKeys
from aegis.log.merkle import leaf_hash
from support.approvals import person, resolve
from support.deployments import deployment
from support.missions import Desk
from support.postgres import Server
from support.store_breaks import Outside, row_of

CALL = ToolCall(tool="send_email", arguments={"to": "a@example.com", "body": "x"}, call_id="c-1")
HARMLESS = ToolCall(tool="read_file", arguments={"path": "a.txt"})


@dataclass(kw_only=True)
class World:
    home: Path
    config: str
    outside: Outside
    running: Deployment

    def again(self) -> Deployment:
        """The same home, opened by a process that remembers nothing."""
        self.running.close()
        self.running = deployment(self.home, self.config)
        return self.running

    def state(self) -> State:
        self.running.close()
        return open_state(self.home / "aegis.yaml", self.home)


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    home = tmp_path / "home"
    tools = (
        "tools:\n  read_file: {risk: low, effects: [read]}\n"
        "  send_email: {risk: high, irreversible: true, effects: [external_send]}\n"
    )
    config = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{tools}"
    outside = Outside(home / "aegis.db")
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres_server")
        url = server.database()
        config += f"store: {url!r}\n"
        outside = Outside(url)
    made = World(home=home, config=config, outside=outside, running=deployment(home, config))
    yield made
    made.running.close()


def refused(decision: Decision) -> bool:
    return (decision.outcome.word, decision.reason.word) == ("block", "unavailable")


@pytest.mark.claim("LOG-19")
def test_an_agent_whose_revocation_was_deleted_stays_stopped(world: World) -> None:
    world.running.gate.record(set_agent("bot", state="revoked", reason="", principal="ann"))
    gate = world.again().gate
    assert gate.decide(HARMLESS).reason.word == "revoked"
    world.outside.put("agents", "bot", None)
    assert refused(world.again().gate.decide(HARMLESS))


@pytest.mark.claim("LOG-19")
def test_an_agent_whose_standing_was_rewritten_stays_stopped(world: World) -> None:
    world.running.gate.record(set_agent("bot", state="revoked", reason="", principal="ann"))
    gate = world.again().gate
    version, _, body = row_of(world.outside, "agents", "bot")
    world.outside.put("agents", "bot", (version, "active", body.replace(b"revoked", b"active")))
    assert refused(world.again().gate.decide(HARMLESS))
    assert gate is not world.running.gate


@pytest.mark.claim("LOG-19")
def test_a_revocation_that_is_undone_behind_a_running_gate_moves_nothing(world: World) -> None:
    before = {name: world.outside.get("agents", name) for name in ("bot",)}
    epoch = world.running.store.epoch()
    other = deployment(world.home, world.config)
    other.gate.record(set_agent("bot", state="revoked", reason="", principal="ann"))
    other.close()
    world.outside.put("agents", "bot", before["bot"])
    world.outside.run("UPDATE {control} SET epoch = ?", (epoch,))
    assert refused(world.running.gate.decide(HARMLESS))


@pytest.mark.claim("LOG-19")
@pytest.mark.parametrize("how", ["approved", "deleted"])
def test_an_approval_that_somebody_wrote_opens_nothing(world: World, how: str) -> None:
    held = world.running.gate.decide(CALL)
    assert held.approval is not None
    person(world.running.store, "ann")
    version, _, body = row_of(world.outside, "approvals", held.approval.id)
    members = orjson.loads(body) | {"state": "approved", "resolved_by": "ann"}
    row = (version, "approved", orjson.dumps(members)) if how == "approved" else None
    world.outside.put("approvals", held.approval.id, row)
    assert refused(world.again().gate.decide(CALL))


@pytest.mark.claim("LOG-19")
def test_an_approval_that_was_used_is_not_put_back(world: World) -> None:
    held = world.running.gate.decide(CALL)
    assert held.approval is not None
    resolve(world.running.gate, held.approval.id)
    approved = row_of(world.outside, "approvals", held.approval.id)
    assert world.running.gate.decide(CALL).outcome.word == "allow"
    redeemed = row_of(world.outside, "approvals", held.approval.id)
    assert redeemed != approved
    world.outside.put("approvals", held.approval.id, approved)
    assert refused(world.again().gate.decide(CALL))


@pytest.mark.claim("LOG-19")
@pytest.mark.parametrize("how", ["another role", "unrevoked", "invented"])
def test_a_key_that_somebody_wrote_opens_nothing(world: World, how: str) -> None:
    state = world.state()
    issued = create_key(state, roles=["agent"], by="ann", agent="bot")
    key = issued.key.id
    first = row_of(world.outside, "api_keys", key)
    revoke_key(state, key, by="ann")
    row: dict[str, Callable[[], None]] = {
        "another role": lambda: world.outside.put(
            "api_keys", key, (2, "active", orjson.dumps(orjson.loads(first[2]) | {"roles": ["admin"]}))
        ),
        "unrevoked": lambda: world.outside.put("api_keys", key, first),
        "invented": lambda: world.outside.put("api_keys", "k0", first),
    }
    row[how]()
    text = issued.text if how != "invented" else issued.text.replace(key, "k0")
    try:
        with pytest.raises(StoreCorrupt):
            ApiKeys(state.store).authenticate(text)
    finally:
        state.close()


@pytest.mark.claim("LOG-19")
def test_an_account_whose_password_or_roles_were_written_signs_nobody_in(world: World) -> None:
    state = world.state()
    create_account(state, "ann", roles=["approver"], password="a long password of hers", by="op")
    first = row_of(world.outside, "accounts", "ann")
    alter_account(state, "ann", "disable", by="op", to="disabled")
    changed = orjson.dumps(orjson.loads(first[2]) | {"roles": ["admin"]})
    for row in (first, (2, first[1], changed), None):
        world.outside.put("accounts", "ann", row)
        with state.store.reader() as reader, pytest.raises(StoreCorrupt):
            find_account(reader, "ann")
    state.close()


@pytest.mark.claim("LOG-19")
@pytest.mark.parametrize("collection", ["budgets", "mission_sessions", "missions"])
@pytest.mark.parametrize("how", ["deleted", "put back"])
def test_what_a_mission_has_spent_and_seen_is_not_forgotten(world: World, collection: str, how: str) -> None:
    desk = Desk(home=world.running)
    mission = desk.issue(budgets={"calls": 5})
    desk.open(mission)
    names = world.outside.run("SELECT key FROM {document} WHERE collection = ?", (collection,))
    call = ToolCall(tool="read_file", arguments={"path": "/ws/a.txt"}, session="s-1")
    first = {}
    if names:
        key = names[0][0].decode() if isinstance(names[0][0], bytes) else names[0][0]
        first[key] = world.outside.get(collection, key)
    assert world.running.gate.decide(call).outcome.word == "allow"
    world.again()
    rows = world.outside.run("SELECT key FROM {document} WHERE collection = ?", (collection,))
    key = rows[0][0].decode() if isinstance(rows[0][0], bytes) else rows[0][0]
    row = row_of(world.outside, collection, key)
    older = first.get(key)
    if how == "put back" and (older is None or older == row):
        older = (row[0], row[1], row[2] + b" ")
    world.outside.put(collection, key, None if how == "deleted" else older)
    assert refused(world.again().gate.decide(call))


@pytest.mark.claim("LOG-20")
def test_a_receipt_that_was_rewritten_answers_no_repeated_call(world: World) -> None:
    call = ToolCall(tool="run_shell", arguments={"command": "rm -rf /"}, call_id="c-9")
    blocked = world.running.gate.decide(call)
    assert blocked.outcome.word == "block"
    assert blocked.receipt is not None
    index = blocked.receipt.index
    world.again()
    ((body,),) = world.outside.run("SELECT body FROM {leaf} WHERE idx = ?", (index,))
    forged = body.replace(b'"decision":"block"', b'"decision":"allow"')
    assert forged != body
    world.outside.run(
        "UPDATE {leaf} SET body = ?, leaf_hash = ?, decision = ? WHERE idx = ?",
        (forged, leaf_hash(forged), "allow", index),
    )
    assert refused(world.running.gate.decide(call))
    with pytest.raises(StoreCorrupt, match="another history"):
        world.again()


@pytest.mark.claim("LOG-20")
def test_the_payload_of_another_receipt_answers_no_repeated_call(world: World) -> None:
    first = world.running.gate.decide(ToolCall(tool="read_file", arguments={"path": "a.txt"}, call_id="c-1"))
    second = world.running.gate.decide(ToolCall(tool="read_file", arguments={"path": "b.txt"}, call_id="c-2"))
    assert first.receipt is not None
    assert second.receipt is not None
    world.again()
    table, column = ("leaf", "payload") if (world.home / "aegis.db").exists() else ("payload", "body")
    sealed = world.outside.run(f"SELECT salt, key, {column} FROM {{{table}}} WHERE idx = ?", (second.receipt.index,))[0]
    world.outside.run(
        f"UPDATE {{{table}}} SET salt = ?, key = ?, {column} = ? WHERE idx = ?", (*sealed, first.receipt.index)
    )
    again = ToolCall(tool="read_file", arguments={"path": "b.txt"}, call_id="c-1")
    assert refused(world.again().gate.decide(again))
