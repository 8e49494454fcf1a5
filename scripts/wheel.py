"""Check that the one wheel in a directory holds every rule, policy and program of the repository, byte for byte."""

from __future__ import annotations

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = {
    "rules": "rules",
    "policies": "policies",
    "data/hosts": "hosts",
    "data/programs": "programs",
    "data/resources": "resources",
    "data/tools": "tools",
    "data/calls": "calls",
    "data/bench": "bench",
}  # folders, by their names in the wheel


def problems(wheel: Path) -> list[str]:
    """What is missing from the wheel or differs from the repository, one sentence each."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for folder, shipped in SHIPPED.items():
            for file in sorted((ROOT / folder).rglob("*")):
                name = f"aegis/_data/{shipped}/{file.relative_to(ROOT / folder).as_posix()}"
                if not file.is_file() or file.name.startswith("."):
                    continue
                if name not in names:
                    found.append(f"the wheel lacks `{name}`")
                elif archive.read(name) != file.read_bytes():
                    found.append(f"`{name}` differs in the wheel")
        if find_spec("hyperscan") is not None and not any(name.startswith("aegis/_data/compiled/") for name in names):
            found.append("the wheel lacks the compiled rules")
        found.extend(
            f"the wheel lacks `{name}`" for name in ("aegis/py.typed", "aegis/__init__.py") if name not in names
        )
    return found


def main() -> int:
    wheels = list(Path(sys.argv[1]).glob("*.whl"))
    if len(wheels) != 1:
        print("expected exactly one wheel", file=sys.stderr)
        return 1
    found = problems(wheels[0])
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
