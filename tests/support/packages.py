"""Packages of other people: a module with the metadata by which an installer would have left it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def install(
    monkeypatch: pytest.MonkeyPatch,
    place: Path,
    code: str,
    *,
    points: str,
    name: str = "acme-guards",
    version: str = "1.2",
) -> None:
    """Put a package on the path with this code; `points` are the lines of its entry points."""
    module = name.replace("-", "_")
    info = place / f"{module}-{version}.dist-info"
    info.mkdir(parents=True)
    (place / f"{module}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, module, raising=False)
