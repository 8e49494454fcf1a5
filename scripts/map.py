"""Draws the map of `CONTRIBUTING.md` from the imports; with `--check`, only says whether it is the one that is there.

An arrow leads from a folder of the package to those that most of its modules import, `ARROWS` of them: all of them
would be a picture that nobody reads. What every folder imports (`core`, `errors`) has no arrows.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grimp

PAGE: Final = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
BEGIN: Final = "<!-- map: made by scripts/map.py -->\n"
END: Final = "<!-- end of the map -->\n"
ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "surfaces": ("bench", "cli", "server", "proxies", "sdk", "adapters", "bootstrap", "cockpit"),
    "features": ("approvals", "missions", "judges", "context", "behaviour", "reasoning", "runs"),
    "kernel": ("gate", "policy", "config", "detect", "log", "store", "keys", "enforce", "wire", "outbound", "sandbox"),
}
# What everything stands on, and what nothing that runs imports.
LEFT_OUT: Final = frozenset({"", "core", "errors", "notices", "testing", "_version"})
OF_SURFACES: Final = frozenset({"routes", "pages", "commands", "receipts", "drafting", "replay"})
ARROWS: Final = 2


def imports() -> dict[str, Counter[str]]:
    """Count by folder how many of its modules import something of each other folder."""
    graph = grimp.build_graph("aegis", exclude_type_checking_imports=False)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for module in graph.modules:
        # Routes, pages and commands belong to the surface that serves them: their imports are the surface's.
        if module.rpartition(".")[2] in OF_SURFACES:
            continue
        for another in {_folder(other) for other in graph.find_modules_directly_imported_by(module)}:
            if _folder(module) not in LEFT_OUT and another not in {_folder(module), *LEFT_OUT}:
                found[_folder(module)][another] += 1
    return found


def _folder(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def drawn() -> str:
    """Draw the map as Mermaid."""
    found = imports()
    unknown = {*found}.union(*found.values()) - {folder for folders in ROWS.values() for folder in folders}
    if unknown:
        raise SystemExit(f"scripts/map.py: no row has the folders {', '.join(sorted(unknown))}")
    lines = ["```mermaid", "flowchart TB"]
    for name, folders in ROWS.items():
        lines += [f"  subgraph {name}", *(f"    {folder}" for folder in sorted(folders)), "  end"]
    for one in sorted(found):
        most = sorted(found[one].items(), key=lambda item: (-item[1], item[0]))[:ARROWS]
        lines += [f"  {one} --> {other}" for other, _ in sorted(most)]
    return "\n".join([*lines, "```", ""])


def main() -> int:
    """Write the map into the page, or compare; 1 where it is another one."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = f"{before}{BEGIN}\n{drawn()}\n{END}{after}"
    if made == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.name}: the map is not the one of the imports; `make docs` draws it", file=sys.stderr)
        return 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
