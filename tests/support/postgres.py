"""A PostgreSQL server of its own for tests: on a socket in a private folder, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_ACCOUNT = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root


@contextmanager
def postgres() -> Iterator[str]:
    """The folder of a running server's socket; connect with `postgresql://USER@/DATABASE?host=FOLDER`."""
    folder = Path(tempfile.mkdtemp(prefix="aegis-postgres-"))
    if _ACCOUNT is not None:
        known = pwd.getpwnam(_ACCOUNT)
        os.chown(folder, known.pw_uid, known.pw_gid)
    bin_folder, data = _PROGRAMS[-1], folder / "data"
    quick: list[str] = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    subprocess.run(
        [str(bin_folder / "initdb"), "-D", str(data), "-U", "admin", "-A", "trust", "--no-sync"],
        user=_ACCOUNT, check=True, capture_output=True, cwd=folder,
    )  # fmt: skip
    server = subprocess.Popen(
        [bin_folder / "postgres", "-D", data, *quick], user=_ACCOUNT, cwd=folder, stderr=subprocess.DEVNULL
    )
    try:
        ready = [str(bin_folder / "pg_isready"), "-h", str(folder), "-U", "admin"]
        until = time.monotonic() + 60
        while subprocess.run(ready, capture_output=True).returncode != 0:
            assert server.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        yield str(folder)
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder)
