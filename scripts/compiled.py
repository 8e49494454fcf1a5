"""Compile the rules and tables that ship, so that a wheel brings them: a hook of the build, and a command.

A build in isolation has what the package needs to run, the engine with it (`require-runtime-dependencies`). Where the
engine has no wheel of its own, ours is built without them and they are compiled at the first start. What is built here
fits by its content, the engine's version and the processor, or is not used: no tag of the wheel says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
_COMPILE = """
import sys
from pathlib import Path
from aegis.detect.rules import cache
named, asked = cache._name, []
cache._machine = lambda: cache.ANY_MACHINE
cache._name = lambda *identity: asked.append(named(*identity)) or asked[-1]
from aegis.config.compile import compile_policy
from aegis.config.config import load_config
import aegis
compile_policy(load_config(), cache=cache.default_cache_folder())
gate = aegis.Gate.open(home=Path(sys.argv[1]))
for name in ("run", "query", "read"):
    gate.decide(aegis.ToolCall(tool=name, arguments={"command": "ls -la", "code": "import os", "path": "/etc/hosts"}))
gate.close()
print(*sorted(set(asked)))
"""


def compiled(place: Path) -> list[Path]:
    """Compile into a folder below `place`, or find what was compiled there; nothing where it cannot be done."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # pip isolates a build by what `PYTHONPATH` names, others by an environment of its own.
    known = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, str(place / "home")],
        env={**os.environ, "PYTHONPATH": known, "XDG_CACHE_HOME": str(place), "AEGIS_QUIET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = done.stdout.split() if done.returncode == 0 else []
    return [path for name in names if (path := place / "aegis" / "patterns" / name).is_file()]


class CompiledRules(BuildHookInterface[Any]):
    """Puts what was compiled into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folder of compiled rules to a wheel; an editable one compiles for itself."""
        if version == "editable":
            return
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        files = compiled(base / "aegis-wheel")
        if not files:
            self.app.display_warning("the wheel brings no compiled rules: what compiles them is not installed here")
        for file in files:
            build_data["force_include"][str(file)] = f"aegis/_data/compiled/{file.name}"
