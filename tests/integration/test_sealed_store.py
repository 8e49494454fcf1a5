"""Documents that somebody wrote past Aegis, in both engines: refused at use, and named by `doctor` and `log verify`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import aegis
from aegis.bootstrap import open_state
from aegis.cli.doctor import Patient
from aegis.cli.doctor.home import log
from aegis.cli.verifying import verify_home
from aegis.core.call import ToolCall
from aegis.core.ports import Document, Store
from aegis.errors import StoreCorrupt
from aegis.store.sealed import SealedStore
from support.deployments import deployment
from support.postgres import Server
from support.shell import aegis as run_aegis
from support.shell import read_json
from support.store_breaks import BREAKS, Outside

SOURCES = Path(aegis.__file__).parent
_CONSTANT = re.compile(r"^([A-Z_]+): Final(?:\[str\])? = \"([a-z_-]+)\"", re.MULTILINE)
_USED = re.compile(r"(?:collection=|document\(|documents\()([A-Z_]+)\b")


@cache
def collections() -> list[str]:
    """Every collection that a module writes documents of."""
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        constants = dict(_CONSTANT.findall(text))
        found.update(constants[name] for name in _USED.findall(text) if name in constants)
    return sorted(found - {"seal"})


def test_the_collections_are_found() -> None:
    assert {"agents", "accounts", "api_keys", "approvals", "approval_grants", "budgets", "keys", "mission_sessions",
            "missions", "results", "sessions", "meta", "previews", "runs"} <= set(collections())  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Place:
    home: Path
    outside: Outside


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("home") / "h"
    config = "version: 1\nprofile: standard\n"
    outside = Outside(home / "aegis.db")
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres_server")
        url = server.database()
        config += f"store: {url!r}\n"
        outside = Outside(url)
    running = deployment(home, config)
    running.gate.decide(ToolCall(tool="read_file", arguments={"path": "a"}, session="s", call_id="c"))
    for collection in collections():
        with running.store.transaction() as transaction:
            for key in ("one", "two"):
                for version, word in ((1, "first"), (2, "second")):
                    body = f"{word} of {key}".encode()
                    transaction.put_document(
                        Document(collection=collection, key=key, version=version, state="open", body=body)
                    )
    running.close()
    yield Place(home=home, outside=outside)


def named(home: Path) -> tuple[list[str], list[str]]:
    """What `log verify` and `doctor` say is wrong."""
    _, breaks = verify_home(home, home / "aegis.yaml")
    found = log(Patient(home=home, config=home / "aegis.yaml", url=None, api_key=""))
    return [one.detail for one in breaks], [one.found for one in found if one.state == "fail"]


def test_an_honest_store_has_no_defects(place: Place) -> None:
    assert named(place.home) == ([], [])


@pytest.mark.parametrize("collection", collections())
def test_a_document_that_was_written_past_aegis_is_refused_when_it_is_used(place: Place, collection: str) -> None:
    with closing(open_state(place.home / "aegis.yaml", place.home)) as state:
        for kind in BREAKS:
            _refused(place.outside, state.store, collection, kind)


def _refused(outside: Outside, store: Store, collection: str, kind: str) -> None:
    """Break a document of the collection, see that it is refused and told of, and put it back."""
    spoil, key, said = BREAKS[kind]
    before = {name: outside.get(collection, name) for name in ("one", "two", "three")}
    assert isinstance(store, SealedStore)
    try:
        spoil(outside, collection)
        with store.reader() as reader, pytest.raises(StoreCorrupt, match=f"document of `{collection}` {said}"):
            reader.document(collection, key)
        with store.transaction() as transaction, pytest.raises(StoreCorrupt):
            transaction.document(collection, key)
        with store.reader() as reader, pytest.raises(StoreCorrupt):
            reader.documents(collection)
        if kind != "copied to another key":
            with store.reader() as reader, pytest.raises(StoreCorrupt):
                reader.documents(collection, state="open")
        assert (key, said) in {(one.key, one.wrong) for one in store.defects()}, kind
    finally:
        for name, row in before.items():
            outside.put(collection, name, row)
    with store.reader() as reader:
        assert {one.key for one in reader.documents(collection)} >= {"one", "two"}, kind


@pytest.mark.parametrize("kind", BREAKS)
def test_a_document_that_was_written_past_aegis_is_named_by_doctor_and_log_verify(place: Place, kind: str) -> None:
    spoil, key, said = BREAKS[kind]
    collection = "approvals"
    before = {name: place.outside.get(collection, name) for name in ("one", "two", "three")}
    spoil(place.outside, collection)
    try:
        verified, examined = named(place.home)
        assert f"`{collection}/{key}` {said}" in verified
        assert any(f"`{collection}/{key}` {said}" in one for one in examined)
        finished = run_aegis("log", "verify", "--home", place.home, "--config", place.home / "aegis.yaml", "--json")
        assert finished.returncode == 1
        value = read_json(finished)
        assert value["break"] == "document_changed"
        assert run_aegis("doctor", "--home", place.home, "--json").returncode == 1
    finally:
        for name, row in before.items():
            place.outside.put(collection, name, row)
    assert named(place.home) == ([], [])


@pytest.mark.parametrize("how", ["gone", "another one"])
def test_a_payload_that_is_gone_or_another_one_is_named(place: Place, how: str) -> None:
    table, column = ("leaf", "payload") if (place.home / "aegis.db").exists() else ("payload", "body")
    rows = f"SELECT idx, salt, key, {column} FROM {{{table}}} WHERE key IS NOT NULL ORDER BY idx"
    first = place.outside.run(rows)[0]
    if how == "gone" and table == "leaf":
        place.outside.run("UPDATE leaf SET salt = NULL, key = NULL, payload = NULL WHERE idx = ?", first[:1])
    elif how == "gone":
        place.outside.run("DELETE FROM {payload} WHERE idx = ?", first[:1])
    else:
        place.outside.run(f"UPDATE {{{table}}} SET salt = ? WHERE idx = ?", (bytes(32), first[0]))
    try:
        _, breaks = verify_home(place.home, place.home / "aegis.yaml")
        assert [(one.kind, one.index) for one in breaks] == [("payload_changed", first[0])]
    finally:
        if table == "leaf":
            place.outside.run("UPDATE leaf SET salt = ?, key = ?, payload = ? WHERE idx = ?", (*first[1:], first[0]))
        else:
            place.outside.run("DELETE FROM {payload} WHERE idx = ?", first[:1])
            place.outside.run("INSERT INTO {payload} (idx, salt, key, body) VALUES (?, ?, ?, ?)", first)


COLUMNS = {
    "agent": "other", "session": "other", "tool": "other", "decision": "block", "kind": "result",
    "principal": "other", "reason": "other", "call_id": "other", "receipt_id": "other", "parent": "other",
}  # fmt: skip


@pytest.mark.parametrize("column", [*COLUMNS, "time", "call_key"])
def test_a_column_that_differs_from_its_receipt_is_found_by_both(place: Place, column: str) -> None:
    index = place.outside.run("SELECT max(idx) FROM {leaf} WHERE kind = ?", ("decision",))[0][0]
    before = place.outside.run(f"SELECT {column} FROM {{leaf}} WHERE idx = {index}")[0][0]
    value = COLUMNS.get(column, before + 1 if column in {"time", "call_key"} else "")
    place.outside.run(f"UPDATE {{leaf}} SET {column} = ? WHERE idx = {index}", (value,))
    try:
        _, breaks = verify_home(place.home, place.home / "aegis.yaml")
        assert any(one.kind == "column_changed" and one.index == index for one in breaks)
        found = log(Patient(home=place.home, config=place.home / "aegis.yaml", url=None, api_key=""))
        assert any(one.check == "columns" and one.state == "fail" for one in found)
    finally:
        place.outside.run(f"UPDATE {{leaf}} SET {column} = ? WHERE idx = {index}", (before,))
