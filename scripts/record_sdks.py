"""Run the contract of the hooks of other languages, and keep what it came to for the reference page of frameworks.

    python scripts/record_sdks.py

The SDKs have to be built, and their packages installed: `make sdk-test` does both. Nothing is kept of a run that fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests" / "frameworks" / "results"
JAVASCRIPT = ROOT / "sdk" / "js"
GO = ROOT / "sdk" / "go" / "contract"
_SUITE = re.compile(r"(?P<framework>[^ :]+): (?P<way>.+)")
_REQUIRED = re.compile(r"^\t(?P<module>\S+) (?P<version>v\S+)$", re.MULTILINE)


def main() -> int:
    (RESULTS / "javascript.json").write_text(json.dumps(_javascript(), indent=1) + "\n", encoding="utf-8")
    (RESULTS / "go.json").write_text(json.dumps(_go(), indent=1) + "\n", encoding="utf-8")
    return 0


def _javascript() -> dict[str, Any]:
    """What the hooks for JavaScript say of themselves, and their ways with the cases of each."""
    packages: dict[str, dict[str, Any]] = {}
    ways: dict[str, dict[str, dict[str, int]]] = {}
    for folder in (
        "frameworks",
        "newest",
    ):  # the packages as they run on the oldest Node, then those that want a newer one
        inside = JAVASCRIPT / "tests" / folder
        loaded = ["env", "AEGIS_URL=http://127.0.0.1:1", "node", "--import", "aegis-guard/register"]  # nobody is asked
        report = _said([*loaded, "../support/hooked.mjs"], inside)
        for one in json.loads(report.splitlines()[-1]):
            known = packages.setdefault(one["framework"], one | {"tested": []})
            if one["version"] not in known["tested"]:
                known["tested"].append(one["version"])
        files = sorted(str(path.relative_to(JAVASCRIPT)) for path in inside.glob("*.test.mjs"))
        for line in _said(
            ["node", "--test", "--test-reporter=./tests/support/count.mjs", *files], JAVASCRIPT
        ).splitlines():
            counted = json.loads(line)
            if suite := _SUITE.fullmatch(counted["suite"]):
                way = ways.setdefault(suite["framework"], {}).setdefault(suite["way"], {"cases": 0, "passed": 0})
                for name in way:
                    way[name] += counted[name]
    rows = [
        {key: one[key] for key in ("framework", "tested", "supported", "seams", "barred", "uncovered")}
        for one in sorted(packages.values(), key=lambda one: str(one["framework"]))
    ]
    return {"packages": rows, "ways": ways}


def _go() -> dict[str, Any]:
    """The released packages that the contract of Go runs over, and its ways with the cases of each."""
    direct = (GO / "go.mod").read_text().split("require (")[1].partition(")")[0]
    packages = {
        found["module"]: found["version"]
        for found in _REQUIRED.finditer(direct)
        if "aegis-guard" not in found["module"]
    }
    go = shutil.which("go") or "/usr/local/go/bin/go"
    ways: dict[str, dict[str, int]] = {}
    for line in _said([go, "test", "-count=1", "-json", "-run", "^TestContract$", "./..."], GO).splitlines():
        event = json.loads(line)
        parts = event.get("Test", "").split("/", 2)
        if event["Action"] in ("pass", "fail") and len(parts) == 3:
            way = ways.setdefault(parts[1], {"cases": 0, "passed": 0})
            way["cases"] += 1
            way["passed"] += event["Action"] == "pass"
    return {"packages": packages, "ways": dict(sorted(ways.items()))}


def _said(command: list[str], folder: Path) -> str:
    """What a command prints; it has to end well."""
    own = os.environ | {"AEGIS": str(ROOT / ".venv" / "bin" / "aegis")}
    done = subprocess.run(command, cwd=folder, env=own, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(
            f"{done.stdout}\nsdks: `{' '.join(command[:3])} ...` ended with {done.returncode}; nothing was recorded"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
