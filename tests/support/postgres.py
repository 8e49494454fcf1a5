"""A PostgreSQL server of its own for tests: on a socket in a private folder, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_ACCOUNT = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root


class Server:
    """A server with its data and its socket in `folder`; connect with `postgresql://USER@/DATABASE?host=FOLDER`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._bin = _PROGRAMS[-1]
        self._process: subprocess.Popen[bytes] | None = None
        if _ACCOUNT is not None:
            known = pwd.getpwnam(_ACCOUNT)
            os.chown(folder, known.pw_uid, known.pw_gid)
        subprocess.run(
            [str(self._bin / "initdb"), "-D", str(folder / "data"), "-U", "admin", "-A", "trust", "--no-sync"],
            user=_ACCOUNT, check=True, capture_output=True, cwd=folder,
        )  # fmt: skip

    def start(self) -> None:
        """Run, and return once it answers."""
        settings = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}"]
        self._process = subprocess.Popen(
            [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *settings],
            user=_ACCOUNT, cwd=self.folder, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ready = [str(self._bin / "pg_isready"), "-h", str(self.folder), "-U", "admin"]
        until = time.monotonic() + 60
        while subprocess.run(ready, capture_output=True).returncode != 0:
            assert self._process.poll() is None and time.monotonic() < until
            time.sleep(0.05)

    def stop(self) -> None:
        """End every session and the server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def sessions(self) -> list[int]:
        """The processes that serve clients of Aegis."""
        import psycopg

        with psycopg.connect(f"postgresql://admin@/postgres?host={self.folder}", autocommit=True) as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'aegis'").fetchall()
        return [row[0] for row in rows]

    def processes(self) -> list[int]:
        """The server itself and every process that it started."""
        assert self._process is not None
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def database(self) -> str:
        """The URL of a new, empty place for a log."""
        import psycopg

        name = f"aegis_{uuid.uuid4().hex}"
        with psycopg.connect(f"postgresql://admin@/postgres?host={self.folder}", autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"'.encode())
        return f"postgresql://admin@/postgres?host={self.folder}&options=-csearch_path%3D{name}"


@contextmanager
def postgres() -> Iterator[Server]:
    """A running server."""
    folder = Path(tempfile.mkdtemp(prefix="aegis-postgres-"))
    try:
        server = Server(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
