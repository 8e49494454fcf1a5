from __future__ import annotations

import pytest

from aegis.detect.sql import MAX_SQL, analyse_sql


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("SELECT * FROM t WHERE a = '' OR 1 = 1", "sql.tautology"),
        ("SELECT * FROM t WHERE a = '' OR 'a' = 'a'", "sql.tautology"),
        ("SELECT 1; DROP TABLE t", "sql.stacked"),
        ("SELECT pg_sleep(5)", "sql.delay"),
        ("SELECT LOAD_FILE('/x')", "sql.file"),
        ("COPY t TO PROGRAM 'sh'", "sql.file"),
        ("SELECT a FROM t UNION SELECT b FROM information_schema.tables", "sql.catalogue-union"),
        ("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", "sql.every-row"),
        ("UPDATE t SET a = 1 WHERE 1 = 1", "sql.every-row"),
    ],
)
def test_a_statement_is_judged_by_its_tree(text: str, signal: str) -> None:
    assert signal in {name for name, _ in analyse_sql(text).signals}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT name FROM t WHERE a = 1 OR b = 2",
        "SELECT a FROM t UNION SELECT b FROM u",
        "INSERT INTO t VALUES (1, 'drop table')",
        "UPDATE t SET a = 1 WHERE id = 4",
        "DELETE FROM t WHERE id = 4",
        "not a statement at all",
    ],
)
def test_ordinary_statements_have_no_signal(text: str) -> None:
    facts = analyse_sql(text)
    assert facts.signals == []
    assert not facts.irreversible


@pytest.mark.parametrize("term", ["1", "id", "id * 1"])
def test_a_condition_of_thousands_of_terms_is_read_without_being_worked_out(term: str) -> None:
    facts = analyse_sql(f"DELETE FROM t WHERE id = {' + '.join([term] * 3_000)}")
    assert not facts.irreversible


def test_what_the_parser_must_not_read_is_said() -> None:
    assert analyse_sql("SELECT 1" + " " * MAX_SQL).too_long
    assert not analyse_sql("SELECT " + "(" * 5_000).parsed


def test_words_speak_where_no_tree_can_be_built() -> None:
    facts = analyse_sql("DROP TABLE t; EXEC xp_cmdshell 'dir'")
    assert facts.irreversible
