"""What a server announces, as a client may see it: scanned, pinned at first sight, without tools that changed since.

(1) a tool that has a pin must say exactly what it said when it was pinned (a rug pull is refused)
(2) a tool without a pin is scanned for orders to the model and for names that take another tool's place
(3) what passes is pinned, so that the next change is seen, in this connection or a later one
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aegis.core.json import parse
from aegis.core.names import split_selector
from aegis.core.outcome import Outcome, Reason
from aegis.errors import InvalidCall
from aegis.policy.guards.descriptions import DescriptionScanner, Pins
from aegis.proxies.mcp.messages import Message
from aegis.wire.tool_lists import ToolDescription, read_tools

# The file of accepted tools, shared with `aegis tools`: read for every list, added to under a lock.


class PinFile:
    """Pins on disk; a damaged file pins nothing and is an error."""

    def __init__(self, path: Path):
        self._path = path

    def read(self) -> Pins:
        """The pins as they are now; raises `InvalidCall` for a damaged file."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Pins()
        try:
            return Pins.from_document(parse(data))
        except InvalidCall as error:
            raise InvalidCall(f"the pins in `{self._path}` cannot be read: {error.message}", hint=error.hint) from error

    def add(self, tools: Sequence[ToolDescription]) -> None:
        """Pin tools that have no pin; one that has keeps it, whoever came first."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pins = self.read()
            fresh = [tool for tool in tools if tool.identity not in pins.tools]
            if not fresh:
                return
            partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(pins.merged(fresh).document(), file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)


_CHANGED: Final = Reason.TOOL_CHANGED, "this tool is not the one that was approved"
_FOUND: Final = Reason.ATTACK_DETECTED, "what this tool says about itself looks like orders to the model"
_UNREADABLE: Final = Reason.SCHEMA_INVALID, "what this tool says about itself cannot be read"
_UNPINNED: Final = Reason.TOOL_CHANGED, "this tool was not approved"
Refusal = tuple[Reason, str]
_log = logging.getLogger("aegis.mcp")


class ToolBook:
    """The tools of one server. `only_pinned` refuses every tool that nobody accepted before."""

    def __init__(self, server: str, scanner: DescriptionScanner, pins: PinFile, *, only_pinned: bool = False):
        self._server = server
        self._scanner = scanner
        self._pins = pins
        self._only_pinned = only_pinned
        self._refused: dict[str, Refusal] = {}
        self.stale = True

    def shown(self, result: Message) -> Message:
        """The answer to `tools/list` as a client may see it; raises `InvalidCall` for a damaged file of pins."""
        listed = result.get("tools")
        if not isinstance(listed, list):
            return result
        pins = self._pins.read()
        shown: list[Any] = []
        fresh: list[ToolDescription] = []
        for item in listed:
            tool, refusal = self._judged(item, pins, fresh)
            if tool is None or refusal is not None:
                name, refusal = "?" if tool is None else tool.name, refusal or _UNREADABLE
                self._refused[name] = refusal
                _log.warning("the tool `%s` of `%s` is not shown: %s", name, self._server, refusal[1])
                continue
            self._refused.pop(tool.name, None)
            if tool.identity not in pins.tools:
                fresh.append(tool)
            shown.append(item)
        if fresh:
            self._pins.add(fresh)
        return result if len(shown) == len(listed) else {**result, "tools": shown}

    def refusal(self, name: str) -> Refusal | None:
        """Why a tool may not be called: the reason, and one sentence."""
        return self._refused.get(name)

    def instructions(self, result: Message) -> Message:
        """What a server says of itself when a client arrives, without orders to the model."""
        text = result.get("instructions")
        if not isinstance(text, str):
            return result
        spoken = ToolDescription(name="instructions", server=self._server, description=text)
        if not self._alarming([spoken], ()):
            return result
        _log.warning("the instructions of `%s` are not shown: they look like orders to the model", self._server)
        return {name: value for name, value in result.items() if name != "instructions"}

    def _judged(
        self, item: Any, pins: Pins, fresh: Sequence[ToolDescription]
    ) -> tuple[ToolDescription | None, Refusal | None]:
        try:
            (tool,) = read_tools([item], server=self._server)
            digests = tool.digests()
        except InvalidCall:
            return None, _UNREADABLE
        if any(one.name == tool.name for one in fresh):
            return tool, _CHANGED
        pinned = pins.tools.get(tool.identity)
        if pinned is not None:
            return tool, None if dict(pinned) == digests else _CHANGED
        if self._only_pinned:
            return tool, _UNPINNED
        halves = [split_selector(name) for name in pins.tools]
        known = [ToolDescription(name=name, server=server) for server, name in halves if server != self._server]
        return tool, _FOUND if self._alarming([tool], [*known, *fresh]) else None

    def _alarming(self, tools: Sequence[ToolDescription], known: Sequence[ToolDescription]) -> bool:
        found = self._scanner.scan(tools, known=known)
        return any(one.finding.outcome >= Outcome.REQUIRE_APPROVAL for one in found)
