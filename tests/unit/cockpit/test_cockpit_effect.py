"""What a held call does, in words, from what was seen when it was tried."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.approvals.effect import reach, sentence
from aegis.cockpit.text import hint


def files(
    change: str, *paths: str, kind: str = "file", count: int | None = None, place: str = "/srv"
) -> dict[str, Any]:
    listed = [{"path": path, "change": change, "kind": kind} for path in paths]
    return {"workspace": place, change: len(paths) if count is None else count, "files": listed}


def told(preview: dict[str, Any], *, irreversible: bool = False) -> str:
    return sentence({"preview": preview}, [], irreversible, ["exec"])


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        (files("deleted", "app/a.log", "app/b.log"), "Deletes 2 files under /srv/app"),
        (files("changed", "app/settings.ini"), "Changes /srv/app/settings.ini"),
        (files("created", "a.txt", "deep/b.txt"), "Creates 2 files under /srv"),
        (files("deleted", "a", "b", kind="folder"), "Deletes 2 folders under /srv"),
        (files("deleted", "app/a.log", count=900), "Deletes 900 paths under /srv"),
    ],
)
def test_changed_files_are_counted_by_kind_under_the_deepest_folder(workspace: dict[str, Any], words: str) -> None:
    assert told({"kind": "shell", "effect": {"workspaces": [workspace]}}) == words


def test_files_and_folders_are_told_apart() -> None:
    listed = [{"path": "app", "change": "deleted", "kind": "folder"}]
    listed += [{"path": f"app/{n}", "change": "deleted", "kind": "file"} for n in range(212)]
    preview = {"kind": "shell", "effect": {"workspaces": [{"workspace": "/srv", "deleted": 213, "files": listed}]}}
    assert told(preview, irreversible=True) == "Deletes 212 files and 1 folder under /srv/app; cannot be undone"
    assert reach(preview) == 213


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        ({"touched": {"orders": {"update": 19}}}, "Updates 19 rows of orders"),
        (
            {"touched": {"orders": {"insert": 1}, "log": {"delete": 2}}},
            "Inserts 1 row into orders; deletes 2 rows of log",
        ),
        ({"touched": {"orders": {"removed": 41}}}, "Removes the table orders with its 41 rows"),
        ({"touched": {}, "rows": 3}, "Gives 3 rows, changes none"),
        ({"touched": {}, "rows": 1000, "rows_cut": True}, "Gives 1\u202f000 rows or more, changes none"),
    ],
)
def test_touched_rows_are_told_by_what_happened_to_them(effect: dict[str, Any], words: str) -> None:
    assert told({"kind": "sql", "effect": effect}) == words


def test_a_hint_is_a_sentence_whose_names_are_code_and_stay_text() -> None:
    assert hint("use `<b>x</b>`") == "Use <code>&lt;b&gt;x&lt;/b&gt;</code>."
