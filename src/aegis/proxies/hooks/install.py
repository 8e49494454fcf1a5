"""Writing our hook into a host's settings, and taking it out again; what else stands there stays."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from msgspec import Struct

from aegis.errors import InvalidCall
from aegis.proxies.edits import read_json, write_json
from aegis.proxies.hooks.event import HOSTS, MARK, Host, every_place, is_ours


class SettingsChange(Struct, frozen=True, kw_only=True):
    """What was done to a file: whether it changed, and where the file before lies."""

    path: Path
    changed: bool
    backup: Path | None = None


def guarded(command: str) -> str:
    """The shell line that a host runs: whatever keeps the command from answering is exit 2."""
    return f"{command} || exit 2 {MARK}"


def unguarded(command: str) -> str:
    """The shell line that tells what the user said: nobody's prompt is lost where that cannot be recorded."""
    return f"{command} || true {MARK}"


def install(path: Path, host: Host, command: str, *, timeout: int) -> SettingsChange:
    """Have `host` run `command` around every tool and for every prompt; an older hook of ours is replaced."""
    before = read_json(path)
    value = _without(before if before is not None else host.base, host)
    for name, member in host.base.items():
        value.setdefault(name, member)
    hooks = value.setdefault("hooks", {})
    for event in host.events:
        hooks[event] = [*hooks.get(event, []), host.entry(guarded(command), timeout)]
    hooks[host.said] = [*hooks.get(host.said, []), host.entry(unguarded(command), timeout)]
    if value == before:
        return SettingsChange(path=path, changed=False)
    return SettingsChange(path=path, changed=True, backup=write_json(path, value))


def uninstall(path: Path, host: Host) -> SettingsChange:
    """Take our hook out of a host's settings."""
    before = read_json(path)
    if before is None:
        return SettingsChange(path=path, changed=False)
    value = _without(before, host)
    if value == before:
        return SettingsChange(path=path, changed=False)
    return SettingsChange(path=path, changed=True, backup=write_json(path, value))


def installed(path: Path, host: Host) -> bool:
    """Whether our hook stands in this file."""
    value = read_json(path)
    return value is not None and _without(value, host) != value


def files_with_hook(*folders: Path) -> list[Path]:
    """The files in which hosts keep our hook, for a user's home and for projects."""
    places = [(host, path) for host in HOSTS.values() for path in every_place(host, *folders)]
    return [path for host, path in places if path.is_file() and installed(path, host)]


def _without(value: dict[str, Any], host: Host) -> dict[str, Any]:
    left = copy.deepcopy(value)
    hooks = left.get("hooks", {})
    if not isinstance(hooks, dict):
        raise InvalidCall("`hooks` in the host's settings is not an object", hint="nothing was changed")
    for event in (*host.events, host.said):
        entries = hooks.get(event)
        if entries is None:
            continue
        if not isinstance(entries, list):
            raise InvalidCall(f"`hooks.{event}` in the host's settings is not a list", hint="nothing was changed")
        kept = [entry for entry in entries if not is_ours(entry)]
        if kept:
            hooks[event] = kept
        elif len(kept) != len(entries):
            del hooks[event]
    if not hooks and "hooks" in left:
        del left["hooks"]
    return left
