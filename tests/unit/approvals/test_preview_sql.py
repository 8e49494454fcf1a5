"""SQL tried on the operator's database for previews: what it touches is shown, and nothing of it stays."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from aegis.approvals.previews.dryrun import DryRuns
from aegis.approvals.previews.look import look_at
from aegis.approvals.previews.sql import STATEMENTS
from aegis.core.approval import Looked, Preview, PreviewRules
from support.postgres import postgres

TABLES = (
    "CREATE TABLE people (id integer PRIMARY KEY, name text)",
    "CREATE TABLE orders (id integer PRIMARY KEY, person integer REFERENCES people (id) ON DELETE CASCADE)",
    "INSERT INTO people VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "INSERT INTO orders VALUES (10, 1), (11, 1), (12, 2)",
)


def tried(database: str, text: str, allowed: frozenset[str] = frozenset(STATEMENTS), seconds: float = 10) -> Preview:
    rules = PreviewRules(database=database, statements=allowed, seconds=seconds)
    looked = Looked(tool="run_sql", server=None, arguments={"query": text}, mounts=(), dryrun=False, rules=rules)
    return look_at(looked, DryRuns())


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    file = tmp_path / "preview.db"
    connection = sqlite3.connect(file)
    for line in TABLES:
        connection.execute(line)
    connection.commit()
    connection.close()
    return f"sqlite:///{file}"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as running:
        folder = str(running.folder)
        with psycopg.connect(f"postgresql://admin@/postgres?host={folder}", autocommit=True) as admin:
            admin.execute("CREATE ROLE previews LOGIN")
            admin.execute("CREATE DATABASE shop OWNER previews")
        with psycopg.connect(f"postgresql://previews@/shop?host={folder}", autocommit=True) as owner:
            for line in TABLES:
                owner.execute(line)
            owner.execute("CREATE PROCEDURE sneak() LANGUAGE plpgsql AS 'BEGIN DELETE FROM people; COMMIT; END'")
        yield folder


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        url: str = request.getfixturevalue("sqlite_url")
        return url
    return f"postgresql://previews@/shop?host={request.getfixturevalue('server')}"


def people(database: str) -> int:
    query = "SELECT count(*) FROM people"
    if database.startswith("sqlite"):
        return int(sqlite3.connect(database.removeprefix("sqlite:///")).execute(query).fetchone()[0])
    with psycopg.connect(database) as connection:
        row = connection.execute(query).fetchone()
        return int(row[0]) if row else -1


def short(preview: Preview) -> dict[str, dict[str, int]]:
    assert preview.state == "done", preview.why
    return {name.rpartition(".")[2]: counts for name, counts in preview.effect["touched"].items()}


def test_rows_are_counted_by_table_with_what_cascades(database: str) -> None:
    assert short(tried(database, "DELETE FROM people WHERE id = 1")) == {
        "people": {"delete": 1},
        "orders": {"delete": 2},
    }
    assert short(tried(database, "UPDATE people SET name = 'x'")) == {"people": {"update": 3}}
    assert short(tried(database, "INSERT INTO people VALUES (9, 'z')")) == {"people": {"insert": 1}}
    assert people(database) == 3


def test_a_query_shows_its_rows_and_its_plan(database: str) -> None:
    preview = tried(database, "SELECT * FROM people WHERE id > 1")
    assert (preview.effect["rows"], preview.effect["columns"]) == (2, ["id", "name"])
    assert preview.effect["plan"]


def test_what_a_drop_would_take_is_counted(database: str) -> None:
    assert short(tried(database, "DROP TABLE orders"))["orders"] == {"removed": 3}
    assert people(database) == 3


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM people; COMMIT", "COMMIT", "BEGIN", "SELECT 1; DROP TABLE people", "DO $$ BEGIN COMMIT; END $$",
        "CALL sneak()", "SET ROLE admin", "ATTACH 'other.db' AS other", "PRAGMA writable_schema = 1",
        "COPY people TO PROGRAM 'sh'", "SELECT pg_read_file('/etc/passwd')", "VACUUM", "not sql at all (",
    ],
)  # fmt: skip
def test_what_could_leave_the_transaction_is_not_tried(database: str, text: str) -> None:
    preview = tried(database, text)
    assert preview.state == "none", preview
    assert preview.why.startswith("no preview: ")
    assert people(database) == 3


def test_only_the_kinds_that_are_allowed_are_tried(database: str) -> None:
    assert "`delete`" in tried(database, "DELETE FROM people", frozenset({"select"})).why


def test_a_statement_that_takes_too_long_is_ended(database: str) -> None:
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    assert tried(database, endless, seconds=0.7).state == "failed"


def test_an_error_of_the_database_is_no_preview(database: str) -> None:
    assert tried(database, "SELECT * FROM missing").state == "failed"


def test_a_role_that_can_step_out_is_refused(server: str) -> None:
    preview = tried(f"postgresql://admin@/shop?host={server}", "DELETE FROM people")
    assert preview.why == "no preview: the role for previews has rights that a rollback does not undo"


def test_a_missing_database_is_said(tmp_path: Path) -> None:
    assert tried("", "SELECT 1").why == "no preview: no database for previews is configured"
    assert tried(f"sqlite:///{tmp_path}/none.db", "SELECT 1").why.endswith("cannot be read")
    assert tried(f"postgresql://x@/y?host={tmp_path}", "SELECT 1").why.endswith("cannot be reached")
    assert tried("${env:AEGIS_NOT_SET}", "SELECT 1").why.startswith("no preview: the environment variable")
