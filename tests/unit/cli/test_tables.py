"""Tables fit a terminal: columns go by weight, ids are shortened as far as they stay distinct."""

from __future__ import annotations

import re

import pytest

from aegis.cli.output import Column, shortened, show_list

STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLUMNS = (
    Column(title="NAME", member="name"),
    Column(title="EXTRA", member="extra", weight=2),
    Column(title="MORE", member="more", weight=1),
    Column(title="ID", member="id", is_id=True),
)
ITEM = {"name": "n" * 20, "extra": "e" * 30, "more": "m" * 20, "id": "0123456789abcdef" * 2}


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, wide: bool, width: int) -> str:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    show_list([ITEM], COLUMNS, as_json=False, empty="", wide=wide)
    return STYLE.sub("", capsys.readouterr().out)


@pytest.mark.parametrize(("width", "left"), [(200, "NAME EXTRA MORE ID"), (62, "NAME MORE ID"), (40, "NAME ID")])
def test_the_heaviest_columns_go_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, left: str
) -> None:
    text = shown(monkeypatch, capsys, wide=False, width=width)
    assert text.splitlines()[0].split() == left.split()
    assert max(map(len, text.splitlines())) <= width
    assert ITEM["id"][:14] in text
    assert ITEM["id"] not in text


def test_wide_shows_everything_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(monkeypatch, capsys, wide=True, width=40)
    assert all(value in text for value in ITEM.values())


def test_ids_stay_distinct() -> None:
    assert shortened(["a" * 32, "b" * 32]) == ["a" * 14, "b" * 14]
    assert shortened(["a" * 20 + "x" * 12, "a" * 20 + "y" * 12]) == ["a" * 20 + "xx", "a" * 20 + "yy"]
    assert shortened([]) == []
