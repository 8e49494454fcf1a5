"""The first process inside the sandbox of `aegis run --strict-network`: it passes the gateway in, and runs the command.

`python -m aegis.cli.running.inside PORT SOCKET COMMAND...`. Signals go on to the command; orphans are waited for.
"""

from __future__ import annotations

import os
import sys

from aegis.cli.running.process import start, wait
from aegis.cli.running.relay import Relay


def main() -> None:
    """Run the command and leave as it left; a signal that ended it becomes 128 and its number."""
    port, target, *command = sys.argv[1:]
    Relay(target, port=int(port)).start()
    child = start(command, dict(os.environ))
    code = wait(child, init=True)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
