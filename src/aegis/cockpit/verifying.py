"""Verifying the whole log from the cockpit: what an auditor runs, in a process of its own.

The log's name and key come from this gateway's configuration and key file, not from the log; the checkpoint of
the last log that verified is kept beside the store, so that a log that was cut or replaced since is found.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from aegis.core.times import rfc3339, system_clock

KEPT: Final = "verified.checkpoint"
LONGEST_S: Final = 3_600.0
_NICE: Final = ("nice", "-n", "10")  # decisions come first

State = Literal["never", "running", "verified", "broken", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """The last run: `told` is what the verifier said."""

    state: State = "never"
    by: str = ""
    began: str = ""
    ended: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)


class Verifications:
    """Runs one verification at a time. `config` and `home` are those of the deployment."""

    def __init__(self, *, home: Path, config: Path | None, log: str, keys: Sequence[Mapping[str, Any]]):
        self._home = home
        self._config = config
        self._keys = {"v": 1, "log": log, "keys": [dict(key) for key in keys]}
        self._task: asyncio.Task[None] | None = None
        self.last = Verification()

    def start(self, by: str) -> None:
        """Begin, unless one is under way."""
        if self._task is not None and not self._task.done():
            return
        self.last = Verification(state="running", by=by, began=rfc3339(system_clock()))
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aegis-verify-"))
        state: State = "failed"
        told: Mapping[str, Any] = {}
        try:
            state, told = await asyncio.wait_for(self._verify(folder), LONGEST_S)
        except TimeoutError:
            told = {"detail": "the verifier did not come to an end in time"}
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            self.last = replace(self.last, state=state, told=told, ended=rfc3339(system_clock()))

    async def _verify(self, folder: Path) -> tuple[State, Mapping[str, Any]]:
        out, keys, kept = folder / "export", folder / "keys.json", self._home / KEPT
        await asyncio.to_thread(keys.write_bytes, orjson.dumps(self._keys))
        where = ["--home", str(self._home), *(["--config", str(self._config)] if self._config else [])]
        code, text = await _aegis("log", "export", "--out", str(out), *where)
        if code:
            return "broken", {"detail": "the log could not be exported", "meaning": text[:500]}
        since = ["--since", str(kept)] if await asyncio.to_thread(kept.is_file) else []
        code, text = await _aegis("log", "verify", str(out), "--key", str(keys), "--json", *since)
        told = _parsed(text)
        if code == 0 and told.get("verified") is True:
            await asyncio.to_thread(shutil.copyfile, out / "checkpoint", kept)
            return "verified", told
        return ("broken" if told.get("verified") is False else "failed"), told or {"detail": text[:500]}


async def _aegis(*words: str) -> tuple[int, str]:
    """Return one command as a user types it: its exit code, and what it said."""
    nice = _NICE if shutil.which(_NICE[0]) else ()
    process = await asyncio.create_subprocess_exec(
        *nice,
        sys.executable,
        "-m",
        "aegis.cli",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    code = process.returncode or 0
    return code, (out or err).decode(errors="replace")


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        found = orjson.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
