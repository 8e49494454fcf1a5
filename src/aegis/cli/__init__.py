"""The command line: thin commands over the same public functions that programs use.

Exit codes: 0 done or allowed, 1 refused or not verified, 2 usage or configuration, 3 held for approval.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_WHILE_LOADING: Final = 50_000  # new objects between two searches; a gateway sets its own when it has started


def main() -> None:
    """Run the command that `sys.argv` names and leave with its exit code."""
    gc.set_threshold(_WHILE_LOADING)  # a tenth of a start is a search for garbage among modules that stay
    code = _run()
    gc.freeze()  # the collection at exit would walk every module that was loaded: a third of a short command
    sys.exit(code)


def _run() -> int:
    if sys.argv[1:2] == ["hook"]:  # asked at every call of a coding agent's tool, so it loads next to nothing
        from aegis.cli.hookline import answered, inside

        code = answered(sys.argv[2:])
        if code is None:
            code = inside(sys.argv[2:])
        if code is not None:
            return code
    from aegis.cli.run import run

    return run(sys.argv[1:])
