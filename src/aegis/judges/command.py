"""A judge without a model: a program that reads the payload and gives the result object itself.

It reads the payload from its input and writes one result object to the descriptor that `AEGIS_RESULT_FD`
names. That descriptor takes the word of this one process: what a child writes there is told apart by the
kernel, and makes the run fail. What it prints counts for nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aegis.core.judging import JudgeSpec
from aegis.judges.answer import read_answer
from aegis.judges.door import doors, with_door
from aegis.judges.model import Cause, Result
from aegis.judges.workspace import Workspace, in_sandbox, limits_of
from aegis.sandbox import Box, Mount


class Failed(Exception):
    """The run gave no result that counts."""

    def __init__(self, cause: Cause, detail: str):
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


async def run_command(judge: JudgeSpec, workspace: Workspace, payload: dict[str, Any], seconds: float) -> Result:
    """What the program makes of `payload`; raises `Failed` or `Malformed`."""
    command, mounts = _with_files(judge)
    box = workspace.box(judge)
    box = Box(mounts=(*mounts, *box.mounts), cwd=box.cwd, path=box.path, hidden=box.hidden, network=box.network)
    async with with_door(doors(judge), command, box) as (line, through):
        finished = await in_sandbox(
            line, through, limits_of(judge, seconds), stdin=json.dumps(payload).encode("utf-8"), result=True
        )
    # (1) Somebody else spoke for it.
    if finished.forged:
        raise Failed("forged", "another process than the judge wrote to its result descriptor")
    # (2) It did not end well: what it said before counts for nothing.
    if finished.ended == "timeout":
        raise Failed("timeout", "the judge did not end in time")
    if finished.ended != "exited" or finished.code != 0:
        why = (
            f"it ended with status {finished.code}" if finished.ended == "exited" else f"it was ended: {finished.ended}"
        )
        raise Failed("failed", f"the judge failed: {why}")
    # (3) One object, and nothing else.
    return read_answer(finished.message.decode("utf-8", "replace"))


def _with_files(judge: JudgeSpec) -> tuple[list[str], list[Mount]]:
    """The command with its files by absolute path, and the mounts that show exactly these files."""
    command: list[str] = []
    mounts: list[Mount] = []
    there = ("/usr", "/bin", *judge.programs)
    for word in judge.command:
        path = Path(judge.folder, word) if judge.folder else Path(word)
        if not path.is_file():
            command.append(word)
            continue
        command.append(str(path))
        if not any(path.is_relative_to(place) for place in there):
            mounts.append(Mount(source=str(path.resolve()), target=str(path)))
    return command, mounts
