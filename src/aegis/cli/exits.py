"""The exit codes, a closed set that scripts rely on."""

from __future__ import annotations

from typing import Final

DONE: Final = 0  # done, allowed or verified
REFUSED: Final = 1  # refused, blocked or not verified
USAGE: Final = 2  # the command line or the configuration is wrong; nothing was done
HELD: Final = 3  # a person has to approve first
INTERRUPTED: Final = 130  # the shell's word for Ctrl-C
