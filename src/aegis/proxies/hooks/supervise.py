"""A hook that cannot fail open: the work is done by a child, and whatever becomes of it, the host hears 0 or 2.

A crash, a signal, a hang, an exception or an answer cut short is exit 2 with the reason on standard error: Claude Code
takes every other code for a harmless mishap and runs the tool.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from aegis.errors import AegisError
from aegis.proxies.hooks.judge import BLOCK, HookAnswer, refused

_CHUNK: Final = 65_536


def supervised(work: Callable[[], HookAnswer], *, seconds: float) -> HookAnswer:
    """What `work` answers within `seconds`, or the refusal that stands for its failure."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_worked(work, writing))
    os.close(writing)
    try:
        data = _read(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if data is None:
        return refused(f"the call was not checked within {seconds:.0f} seconds, so it was not made")
    try:
        answer = json.loads(data)
        return HookAnswer(code=int(answer["code"]), out=str(answer["out"]), err=str(answer["err"]))
    except (ValueError, KeyError, TypeError):
        return refused("the check of the call broke off, so it was not made")


def _worked(work: Callable[[], HookAnswer], writing: int) -> int:
    """The child's life: answer over the pipe, whatever happens."""
    try:
        answer = work()
    except AegisError as error:
        answer = refused(f"the call could not be checked, so it was not made: {error}")
    except BaseException as error:
        answer = refused(f"the call could not be checked, so it was not made: {type(error).__name__}")
    code = answer.code if answer.code in (0, BLOCK) else BLOCK
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps({"code": code, "out": answer.out, "err": answer.err}).encode())
    return 0


def _read(descriptor: int, deadline: float) -> bytes | None:
    """Everything that the child says until it closes the pipe; `None` where it takes too long."""
    chunks: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
