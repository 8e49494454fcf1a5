"""The documentation builds as a site: strictly, with every page in its navigation, and with nothing from elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import re2

ROOT: Final = Path(__file__).resolve().parents[2]
LOADED: Final = re2.compile(r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(https?:)?//""")


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home = (site / "index.html").read_text(encoding="utf-8")
    assert all(f">{part}<" in home.replace("\n", "").replace("  ", "") for part in ("Tutorial", "How-to", "Reference"))
    pages = sorted(site.rglob("*.html"))
    sources = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix("").as_posix() for path in pages}
    assert {name.replace("README", "index") for name in sources} <= built
    assert [page.name for page in pages if LOADED.search(page.read_text(encoding="utf-8")) is not None] == []
