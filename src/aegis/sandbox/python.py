"""Our own interpreter inside a sandbox: for small programs of ours that read what nobody trusts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aegis.sandbox.values import Mount


def python_line(script: Path) -> tuple[list[str], tuple[Mount, ...]]:
    """The command line that runs `script` with this interpreter's standard library alone, and the mounts it needs."""
    base = os.path.realpath(sys.base_prefix)
    inside = "/aegis/" + script.name
    mounts = [Mount(source=str(script), target=inside)]
    if not base.startswith("/usr/"):
        mounts.append(Mount(source=base, target=base))
    interpreter = os.path.realpath(sys.executable)
    return [interpreter, "-I", "-S", "-B", inside], tuple(mounts)
