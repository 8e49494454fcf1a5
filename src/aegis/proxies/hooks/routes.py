"""Where the hooks of coding agents ask the gateway of their home: a Unix socket beside the one of the HTTP API.

There is no key: who may ask is who holds the home, as the kernel names the other end (unix(7), SO_PEERCRED), and that
user could open the log and its keys anyway. A hook decides as `local:AGENT`, as it does without a gateway. What a
person released where the model of the agent proposed it (`agent:AGENT`) passes: nobody is asked twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from aegis.bootstrap import Deployment
from aegis.core.principal import Principal
from aegis.errors import AegisError, InvalidCall
from aegis.gate.gate import Acting, Decide
from aegis.proxies.hooks.door import LENGTH, MAX_EVENT, MAX_HELLO, message, read_object
from aegis.proxies.hooks.event import read_event
from aegis.proxies.hooks.install import files_with_hook
from aegis.proxies.hooks.judge import HookAnswer, HookJudge, HookState, refused
from aegis.proxies.models.book import Book, BookScope, Speaking
from aegis.sdk.client.peer import peer_uid

MAX_HOOKS: Final = 256  # at once; each may hold an event in memory
MAX_WAIT_S: Final = 3_600.0
_log = logging.getLogger("aegis.server.hooks")


class HookDoor:
    """Answers hooks; one connection an event."""

    def __init__(self, deployment: Deployment, decide: Decide):
        self._deployment = deployment
        self._decide = decide
        self._open: set[asyncio.Task[None]] = set()
        self._book = Book(deployment.gate)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one hook; whatever goes wrong, it hears a refusal or nothing, and nothing is one too."""
        task = asyncio.current_task()
        if task is None or len(self._open) >= MAX_HOOKS:
            writer.close()
            return
        self._open.add(task)
        try:
            if peer_uid(writer.get_extra_info("socket")) in (0, os.geteuid()):
                await self._serve(reader, writer)
        except (OSError, ValueError, TypeError, KeyError, asyncio.IncompleteReadError) as error:
            _log.warning("a hook was not understood", extra={"error": type(error).__name__})
        finally:
            self._open.discard(task)
            writer.close()

    async def aclose(self) -> None:
        """Break off: whoever waits is refused by that, and a held call stays held."""
        for task in (tasks := list(self._open)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = read_object(await _message(reader, MAX_HELLO))
        mine = self._is_mine(hello["config"])
        writer.write(message({"mine": mine}))
        await writer.drain()
        if not mine:
            return
        wait = float(read_object(await _message(reader, MAX_HELLO))["wait"])
        answer = await self._answer(hello, min(MAX_WAIT_S, wait), await _message(reader, MAX_EVENT + 1))
        writer.write(message({"code": answer.code, "out": answer.out, "err": answer.err}))
        await writer.drain()

    async def _answer(self, hello: dict[str, Any], wait: float, data: bytes) -> HookAnswer:
        wait_until = time.monotonic() + wait
        try:
            agent, folders = str(hello["agent"]), [Path(str(one)) for one in hello["folders"]]
            # An agent that could rewrite its host's settings could take its hook away.
            await asyncio.to_thread(lambda: self._deployment.policy.protect(files_with_hook(*folders)))
            principal = Principal(id=f"local:{agent}", roles=frozenset({"agent"}), agent=agent)
            decider = Acting(self._deployment.gate, principal, self._decide)
            host = Speaking(self._deployment.gate, principal)
            scope = BookScope(principal=structs.replace(principal, id=f"agent:{agent}"))

            def released(call_id: str, digest: str) -> str | None:
                issued = self._book.issued(scope, call_id, digest)
                return issued.decision_id if issued is not None and issued.released else None

            judge = HookJudge(
                decider, HookState(self._deployment.home), wait_until=wait_until, host=host, released=released
            )
            return await judge.aanswer(read_event(data))
        except AegisError as error:
            return refused(f"the call could not be checked, so it was not made: {error}")
        except Exception as error:
            _log.exception("a hook failed")
            return refused(f"the call could not be checked, so it was not made: {type(error).__name__}")

    def _is_mine(self, config: object) -> bool:
        """Whether this gateway decides by that configuration."""
        own = self._deployment.config_path
        return config == (None if own is None else str(own.expanduser().resolve()))


async def _message(reader: asyncio.StreamReader, most: int) -> bytes:
    length = int.from_bytes(await reader.readexactly(LENGTH), "big")
    if length > most:
        raise InvalidCall("a message of a hook is too long", code="too_large", status=413)
    return await reader.readexactly(length)
