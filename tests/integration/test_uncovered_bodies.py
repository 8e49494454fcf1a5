"""A framework's tool over a real gate: the log tells what was refused, what ran, and what ran past every seam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.tools import tool

import aegis
from aegis.store import open_store


def entries(home: Path) -> list[Any]:
    store = open_store("sqlite:///aegis.db", home=home)
    try:
        with store.reader() as reader:
            return list(reader.entries(0, reader.head().size))
    finally:
        store.close()


def test_a_body_without_a_decision_is_an_alarm_on_the_record(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool
    def find_customer(name: str) -> str:
        """Find a customer."""
        ran.append(name)
        return "found"

    aegis.auto(home=tmp_path / "home", agent="bot", on_unhooked="warn")
    try:
        assert find_customer.invoke({"name": "Ann"}) == "found"
        assert "was not run" in find_customer.invoke({"name": "x' OR '1'='1' --"})
        assert ran == ["Ann"]
        find_customer._run("Bob", config={})
    finally:
        aegis.unhook()
    kinds = [(one.kind, one.tool) for one in entries(tmp_path / "home") if one.kind in ("decision", "alarm")]
    assert kinds == [("decision", "find_customer"), ("decision", "find_customer"), ("alarm", "find_customer")]
