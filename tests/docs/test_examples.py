"""The documentation runs: every example of every page, in order, in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import RUN, Reader, blocks

ROOT = Path(__file__).resolve().parents[2]
# Pages made from code show no examples of their own; the configuration's are compiled beside this test.
MADE = "<!-- Made by"
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if MADE not in path.read_text(encoding="utf-8") and path.name != "configuration.md"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_example_does_what_its_page_says(page: Path, tmp_path: Path) -> None:
    reader = Reader(place=tmp_path)
    tmp_path.chmod(0o700)
    found = list(blocks(page.read_text(encoding="utf-8")))
    try:
        for block in found:
            reader.run(block)
    finally:
        reader.close()
    assert reader.done == len(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_names_its_language(page: Path) -> None:
    known = {*RUN, "yaml", "ini", "json", "toml", "text", "http", "mermaid", "js", "ts", "go"}
    assert [block.line for block in blocks(page.read_text(encoding="utf-8")) if block.language not in known] == []
