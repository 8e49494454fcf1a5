"""Writes everything that is generated; with `--check`, only says what is not as it would be written.

A generator is a script of this folder with `--check`; add it to the list.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

GENERATORS: Final = ("configuration_page.py", "reference_pages.py", "map.py", "vectors.py")


def main() -> int:
    """Run every generator; 1 where one of them says that its file differs."""
    folder = Path(__file__).resolve().parent
    results = [subprocess.run([sys.executable, folder / name, *sys.argv[1:]], check=False) for name in GENERATORS]
    return int(any(result.returncode for result in results))


if __name__ == "__main__":
    sys.exit(main())
