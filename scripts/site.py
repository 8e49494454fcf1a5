"""What the documentation needs to be a site: a table of contents from `docs/README.md`, and links that stay inside.

A hook of MkDocs. Pages are the files of `docs` as they are; a link to code outside of it is shown as the path that it
names, because a site has no such page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_SECTION: Final = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE)
_TITLES: Final = {
    "Start": "Tutorial",
    "How to": "How-to",
    "Why it is as it is": "Explanation",
    "Reference": "Reference",
}


def on_config(config: Any) -> Any:
    """Make the navigation from the sections of the table of contents; every page has a place in it."""
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    parts = _SECTION.split(text)[1:]
    nav: list[Any] = [{"Home": "README.md"}]
    placed = {"README.md"}
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        pages = []
        for target in (match.group(2).partition("#")[0] for match in _LINK.finditer(body)):
            if target.endswith(".md") and target not in placed and (DOCS / target).is_file():
                placed.add(target)
                pages.append(target)
        if title.startswith("Why"):
            pages += sorted({path.relative_to(DOCS).as_posix() for path in (DOCS / "adr").glob("*.md")} - placed)
            placed |= set(pages)
        nav.append({_TITLES[title]: pages})
    config.nav = nav
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Show a link that leaves the folder as the words of it alone."""
    place = (DOCS / page.file.src_uri).parent

    def kept(match: re.Match[str]) -> str:
        target = match.group(2).partition("#")[0]
        if "://" in target or not target or target.startswith("mailto:"):
            return match.group(0)
        path = (place / target).resolve()
        if path.is_relative_to(DOCS) and path.suffix != ".yaml" and not path.is_dir():
            return match.group(0)
        return match.group(1)

    return _LINK.sub(kept, markdown)
