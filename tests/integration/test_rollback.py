"""An older, lost or foreign store is refused when a home is opened, and what is accepted is on record."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aegis
from aegis.bootstrap import Deployment, open_state
from aegis.bootstrap.mark import EVERY, NAME
from aegis.core.call import ToolCall
from aegis.core.json import parse
from aegis.core.ports import Search
from aegis.errors import StoreCorrupt
from aegis.store.sealed import SealedStore
from support.deployments import deployment
from support.postgres import Server
from support.shell import aegis as run_aegis
from support.shell import read_json
from support.store_breaks import Outside

STORE_FILES = ("aegis.db", "aegis.db-wal", "aegis.db-shm")


def used(home: Path, count: int = 3, config: str = "") -> None:
    """A home that decided some calls and was closed."""
    running = deployment(home, config)
    decide(running, count)
    running.close()


def decide(running: Deployment, count: int) -> None:
    for number in range(count):
        running.gate.decide(ToolCall(tool="read_file", arguments={"path": f"{number}.txt"}))


def alarms(home: Path) -> list[dict[str, Any]]:
    """Actions of the alarms on record, oldest first, with what their payloads say."""
    state = open_state(home / "aegis.yaml", home)
    try:
        with state.store.reader() as reader:
            found: list[dict[str, Any]] = []
            for entry in reversed(reader.search(Search(kind="alarm"))):
                stored = reader.payload(entry.index)
                said = {} if stored is None else parse(state.keyring.open_payload(stored.key, stored.body))
                found.append({"action": parse(entry.body)["action"], **said})
            return found
    finally:
        state.close()


def keep(home: Path, kept: Path) -> Callable[[], None]:
    """Copy the store as it is now; what puts it back."""
    kept.mkdir()
    for name in STORE_FILES:
        if (home / name).exists():
            shutil.copy2(home / name, kept / name)

    def put_back() -> None:
        for name in STORE_FILES:
            (home / name).unlink(missing_ok=True)
            if (kept / name).exists():
                shutil.copy2(kept / name, home / name)

    return put_back


def shorter(home: Path, tmp_path: Path) -> None:
    put_back = keep(home, tmp_path / "kept")
    used(home)
    put_back()


def another_history(home: Path, tmp_path: Path) -> None:
    put_back = keep(home, tmp_path / "kept")
    used(home)
    mark = (home / NAME).read_bytes()
    put_back()
    (home / NAME).unlink()
    used(home, 6)
    (home / NAME).write_bytes(mark)


def foreign(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(home / "keys", other / "keys")
    used(other, 9)
    keep(other, tmp_path / "kept")
    for name in STORE_FILES:
        (home / name).unlink(missing_ok=True)
        if (other / name).exists():
            shutil.copy2(other / name, home / name)


def lost(home: Path, tmp_path: Path) -> None:
    for name in STORE_FILES:
        (home / name).unlink(missing_ok=True)


def other_keys(home: Path, tmp_path: Path) -> None:
    used(tmp_path / "other", 9)
    (home / NAME).unlink()
    for name in STORE_FILES:
        (home / name).unlink(missing_ok=True)
        if (tmp_path / "other" / name).exists():
            shutil.copy2(tmp_path / "other" / name, home / name)


def unsealed(home: Path, tmp_path: Path) -> None:
    outside = Outside(home / "aegis.db")
    outside.run("UPDATE leaf SET seal = NULL")
    outside.run("DELETE FROM document WHERE collection = 'seal'")


def cut(home: Path, tmp_path: Path) -> None:
    Outside(home / "aegis.db").run("DELETE FROM leaf WHERE idx > 4")


ATTACKS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "shorter": (shorter, "the log is older than this home"),
    "another history": (another_history, "another history"),
    "foreign": (foreign, "the log is another one than this home's"),
    "lost": (lost, "the log is gone"),
    "other keys": (other_keys, "belongs to another home"),
    "unsealed": (unsealed, "the seal of the log's head is gone"),
    "cut": (cut, "the log"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_store_that_does_not_continue_what_the_home_saw_is_refused(tmp_path: Path, attack: str) -> None:
    home = tmp_path / "home"
    used(home)
    spoil, said = ATTACKS[attack]
    spoil(home, tmp_path)
    with pytest.raises(StoreCorrupt, match=said):
        open_state(home / "aegis.yaml", home)
    with pytest.raises(StoreCorrupt, match=said):
        aegis.Gate.open(home / "aegis.yaml", home=home)
    assert run_aegis("doctor", "--home", home, "--json").returncode == 1
    assert run_aegis("log", "verify", "--home", home, "--json").returncode == 1


@pytest.mark.parametrize("attack", ["shorter", "another history", "foreign", "lost", "unsealed"])
def test_an_accepted_store_is_on_record_with_the_reason_and_goes_on(tmp_path: Path, attack: str) -> None:
    home = tmp_path / "home"
    used(home)
    ATTACKS[attack][0](home, tmp_path)
    finished = run_aegis("log", "checkpoint", "--home", home)
    assert finished.returncode != 0
    assert "--accept-rollback" in finished.stderr
    assert run_aegis("log", "checkpoint", "--home", home, "--accept-rollback", "  ").returncode != 0
    assert run_aegis("log", "checkpoint", "--home", home, "--accept-rollback", "the disk died").returncode == 0
    used(home)
    found = [one for one in alarms(home) if one["action"] == "rollback_accepted"]
    assert [one["reason"] for one in found] == ["the disk died"]
    assert found[0]["found"]
    assert run_aegis("log", "verify", "--home", home).returncode == 0


def test_a_gate_in_the_process_can_accept_as_well(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    lost(home, tmp_path)
    gate = aegis.Gate.open(home / "aegis.yaml", home=home, accept_rollback="moved by hand")
    assert gate.decide(ToolCall(tool="read_file", arguments={"path": "a"})).outcome.word == "allow"
    gate.close()
    assert [one["action"] for one in alarms(home)] == ["rollback_accepted"]


def test_documents_that_were_changed_can_be_accepted_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    outside = Outside(home / "aegis.db")
    outside.run("UPDATE document SET body = x'7b7d' WHERE collection = 'policies'")
    with pytest.raises(StoreCorrupt, match="document of `policies` was changed"):
        deployment(home)
    state = open_state(home / "aegis.yaml", home, accept_rollback="edited by hand")
    state.close()
    used(home)
    assert alarms(home)[0]["action"] == "rollback_accepted"


def test_accepting_what_is_right_records_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    open_state(home / "aegis.yaml", home, accept_rollback="to be sure").close()
    assert alarms(home) == []


def test_a_mark_that_was_lost_is_on_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    (home / NAME).unlink()
    used(home)
    used(home)
    assert [one["action"] for one in alarms(home)] == ["mark_missing"]


@pytest.mark.parametrize("content", ["{}", "nonsense", '{"v":1}'])
def test_a_mark_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    home = tmp_path / "home"
    used(home)
    (home / NAME).write_text(content)
    with pytest.raises(StoreCorrupt, match="the mark of the log is malformed"):
        open_state(home / "aegis.yaml", home)


def test_a_mark_that_somebody_changed_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    mark = parse((home / NAME).read_bytes())
    (home / NAME).write_text(str(mark | {"time": 1}).replace("'", '"'))
    with pytest.raises(StoreCorrupt, match="not signed by its key"):
        open_state(home / "aegis.yaml", home)


def test_the_mark_stays_good_when_the_key_of_the_log_is_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    mark = (home / NAME).read_bytes()
    state = open_state(home / "aegis.yaml", home)
    state.introductions.rotate("log")
    state.close()
    (home / NAME).write_bytes(mark)
    used(home)
    assert alarms(home) == []


def test_a_home_from_before_there_were_seals_is_taken_up_once_on_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    unsealed(home, tmp_path)
    (home / NAME).unlink()
    used(home)
    used(home)
    assert [one["action"] for one in alarms(home)] == ["documents_adopted"]
    assert run_aegis("doctor", "--home", home, "--json").returncode == 0


def test_the_mark_follows_the_log_while_it_grows(tmp_path: Path) -> None:
    home = tmp_path / "home"
    running = deployment(home)
    first = parse((home / NAME).read_bytes())["size"]
    decide(running, EVERY + 5)
    after = parse((home / NAME).read_bytes())["size"]
    assert first < after
    put_back = (home / NAME).read_bytes()
    running.close()
    assert parse((home / NAME).read_bytes())["size"] > parse(put_back)["size"]


def test_documents_put_back_under_the_same_receipt_are_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    used(home)
    outside = Outside(home / "aegis.db")
    running = deployment(home)
    before = outside.tables()
    with running.store.transaction() as transaction:
        transaction.delete_document("meta", "nothing")
    assert isinstance(running.store, SealedStore)
    for name in ("control", "document", "leaf"):  # the seal stands in the last row of them
        outside.run(f"DELETE FROM {name}")
        for row in before[name]:
            outside.run(f"INSERT INTO {name} VALUES ({','.join('?' * len(row))})", row)
    with running.store.reader() as reader, pytest.raises(StoreCorrupt, match="put back to an older state"):
        reader.document("meta", "log")
    running.close()


def test_a_database_that_was_set_back_is_refused_by_every_gateway_at_start(
    tmp_path: Path, postgres_server: Server
) -> None:
    url = postgres_server.database()
    config = f"version: 1\nprofile: standard\nstore: {url!r}\n"
    one, two = tmp_path / "one", tmp_path / "two"
    used(one, config=config)
    two.mkdir(mode=0o700)
    shutil.copytree(one / "keys", two / "keys")
    used(two, config=config)
    assert [entry["action"] for entry in alarms(two)] == ["mark_missing"]
    outside = Outside(url)
    before = outside.tables()
    used(one, config=config)
    used(two, config=config)
    outside.put_back(before)
    for home in (one, two):
        with pytest.raises(StoreCorrupt, match="the log is older than this home"):
            open_state(home / "aegis.yaml", home)
    open_state(one / "aegis.yaml", one, accept_rollback="restored from the backup").close()
    used(one, config=config)


WORKER = """
import sys
from pathlib import Path
from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall, ToolResult

running = open_deployment(Path(sys.argv[1]) / "aegis.yaml", Path(sys.argv[1]), agent="bot")
print("ready", flush=True)
number = 0
while True:
    number += 1
    call = ToolCall(tool="read_file", arguments={"path": f"{number}.txt"}, session=f"s{number % 7}")
    decision = running.gate.decide(call)
    if number % 3 == 0:
        running.gate.observe(ToolResult(decision_id=decision.decision_id, result="fine"))
    print(number, flush=True)
"""


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_process_that_is_killed_leaves_no_false_alarm(tmp_path: Path, durability: str) -> None:
    home = tmp_path / "home"
    config = f"version: 1\nprofile: standard\ndurability: {durability}\nlimits: {{rate: unlimited}}\n"
    used(home, config=config)
    for lines in (2, 40, 333):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(home)],
            stdout=subprocess.PIPE,
            env=os.environ | {"AEGIS_HOME": str(home)},
        )
        assert worker.stdout is not None
        for _ in range(lines):
            worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
        state = open_state(home / "aegis.yaml", home)
        assert isinstance(state.store, SealedStore)
        assert list(state.store.defects()) == []
        state.close()
    assert alarms(home) == []
    assert read_json(run_aegis("log", "verify", "--home", home, "--json"))["verified"] is True
