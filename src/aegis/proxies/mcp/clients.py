"""The clients whose configuration is edited, and how a server of theirs is put behind the proxy, and back."""

from __future__ import annotations

import copy
import json
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from aegis.errors import InvalidCall
from aegis.proxies.edits import read_bytes, read_json, write_json, write_text

# One server in a client's configuration: put behind `aegis mcp wrap`, and back.
#
# A server with a command becomes our command with its own behind `--`. One with a URL becomes our command with that
# URL; values of its headers move to the environment of the command, where no list of processes shows them, and what
# stood there is kept in an argument for the way back.

Entry = dict[str, Any]
_WORDS: Final = ("mcp", "wrap")
_UPSTREAM: Final = "--upstream"
_WAS: Final = "--was"
_VARIABLE: Final = "MCP_HEADER_"
# Where clients keep the URL of a server over streamable HTTP; in Gemini CLI a bare `url` is the older transport.
_URLS: Final = ("httpUrl", "serverUrl", "url")
_OLDER: Final = "sse"
# Members that only a server with a URL has; those whose sign-in happens in the client cannot be taken over.
_REMOTE: Final = ("type", "headers", "http_headers", "env_http_headers", "bearer_token_env_var")
_SIGN_IN: Final = ("oauth", "oauth_client_id", "oauth_resource", "authProviderType", "auth", "scopes", "headersHelper")


def wrapped(name: str, entry: Entry, wrapper: Sequence[str], *, bare_url_is_older: bool = False) -> Entry | None:
    """`entry` behind the proxy, or `None` where it is there already.

    Raises `InvalidCall` where it has neither a command nor a URL that can be spoken to here.
    """
    program, *words = wrapper
    command = entry.get("command")
    if isinstance(command, str):
        if is_wrapped(entry):
            return None
        args = entry.get("args")
        own = [command, *(args if isinstance(args, list) else [])]
        return {**entry, "command": program, "args": [*words, "--name", name, "--", *own]}
    member = _url_member(entry, bare_url_is_older=bare_url_is_older)
    if member is None or any(one in entry for one in _SIGN_IN):
        raise InvalidCall(f"`{name}` is neither a command nor a URL that can be wrapped", code="server")
    was: Entry = {one: entry[one] for one in (member, *_REMOTE) if one in entry}
    options: list[str] = []
    environment: dict[str, str] = {}
    forwarded: list[str] = []
    for holder in ("headers", "http_headers"):
        named: dict[str, str] = {}
        for header, value in _table(name, entry, holder).items():
            variable = f"{_VARIABLE}{len(environment) + 1}"
            environment[variable] = value
            named[header] = variable
            options += ["--header", f"{header}={variable}"]
        if holder in was:
            was[holder] = named
    for header, variable in _table(name, entry, "env_http_headers").items():
        forwarded.append(variable)
        options += ["--header", f"{header}={variable}"]
    if isinstance(entry.get("bearer_token_env_var"), str):
        forwarded.append(entry["bearer_token_env_var"])
        options += ["--bearer", entry["bearer_token_env_var"]]
    kept = {one: value for one, value in entry.items() if one not in was}
    if "type" in was:
        kept["type"] = "stdio"
    kept |= {"command": program, "args": [*words, "--name", name, _UPSTREAM, entry[member], *options, _WAS]}
    kept["args"].append(json.dumps(was, ensure_ascii=False))
    if environment:
        kept["env"] = {**_table(name, entry, "env"), **environment}
    if forwarded:
        kept["env_vars"] = [*entry.get("env_vars", []), *forwarded]
    return kept


def unwrapped(entry: Entry) -> Entry | None:
    """`entry` as it was before, or `None` where it is not behind the proxy."""
    if not is_wrapped(entry):
        return None
    args: list[str] = entry["args"]
    if "--" in args:
        program, *words = args[args.index("--") + 1 :]
        return {**entry, "command": program, "args": words}
    was = json.loads(args[args.index(_WAS) + 1])
    left = {one: value for one, value in entry.items() if one not in ("command", "args", "type")}
    environment = dict(left.pop("env", {}))
    for holder in ("headers", "http_headers"):
        if holder in was:
            was[holder] = {header: environment.pop(variable) for header, variable in was[holder].items()}
    taken = {was.get("bearer_token_env_var"), *was.get("env_http_headers", {}).values()}
    forwarded = [one for one in left.pop("env_vars", []) if one not in taken]
    return {
        **was,
        **left,
        **({"env": environment} if environment else {}),
        **({"env_vars": forwarded} if forwarded else {}),
    }


def is_wrapped(entry: Entry) -> bool:
    """Whether a server stands behind the proxy."""
    command, args = entry.get("command"), entry.get("args")
    return (
        isinstance(command, str)
        and Path(command).name == "aegis"
        and isinstance(args, list)
        and tuple(args[:2]) == _WORDS
        and ("--" in args or _WAS in args[:-1])
    )


def _url_member(entry: Entry, *, bare_url_is_older: bool) -> str | None:
    kind = entry.get("type")
    for member in _URLS:
        url = entry.get(member)
        if isinstance(url, str) and url.startswith(("https://", "http://")) and kind != _OLDER:
            older = member == "url" and bare_url_is_older and kind is None
            return None if older else member
    return None


def _table(name: str, entry: Entry, member: str) -> dict[str, str]:
    value = entry.get(member, {})
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidCall(f"`{member}` of `{name}` does not hold texts", code="server")
    return value


# Changing single tables of a TOML file (TOML 1.0): their text is written anew, everything else stays as it is.
#
# The new text is read again before it is written; where it does not mean exactly what it should, nothing is
# changed.

_BARE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def read_toml(path: Path) -> dict[str, Any] | None:
    """What `path` says, or `None` where there is no file; raises `InvalidCall` where it is not TOML."""
    data = read_bytes(path)
    return None if data is None else _parsed(path, data)


def write_tables(path: Path, member: str, tables: Mapping[str, Mapping[str, Any]]) -> Path | None:
    """Put each of `tables` in place of the one of its name under `member`; gives back where the file before lies.

    Raises `InvalidCall` where one of them is not written as a table of its own.
    """
    data = read_bytes(path) or b""
    wanted = copy.deepcopy(_parsed(path, data))
    text = data.decode()
    for name, table in tables.items():
        wanted[member][name] = dict(table)
        text = _replaced(text, (member, name), table)
    try:
        same = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        hint = f"write each server as a table of its own: `[{member}.NAME]`"
        raise InvalidCall(f"`{path}` is written in a way that cannot be changed safely", hint=hint)
    return write_text(path, text)


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidCall(f"`{path}` is not TOML", hint="nothing was changed") from error


def _replaced(text: str, name: tuple[str, str], table: Mapping[str, Any]) -> str:
    """`text` with `table` in place of the table `name` and those below it; comments stay."""
    kept: list[str] = []
    at: int | None = None
    inside = False
    for line in text.splitlines(keepends=True):
        header = _header(line)
        if header is not None:
            inside = header[:2] == name
            if inside and at is None:
                at = len(kept)
        if not inside or line.lstrip().startswith("#"):
            kept.append(line)
    place = len(kept) if at is None else at
    return "".join([*kept[:place], _written(name, table), *kept[place:]])


def _header(line: str) -> tuple[str, ...] | None:
    """The name of the table that begins at this line, or `None` where none does."""
    if not line.lstrip().startswith("["):
        return None
    try:
        found = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    names: list[str] = []
    value: Any = found
    while isinstance(value, dict) and len(value) == 1:
        (name, value), *_ = value.items()
        names.append(name)
    return tuple(names)


def _written(name: tuple[str, ...], table: Mapping[str, Any]) -> str:
    lines = [f"[{'.'.join(map(_key, name))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    below = [_written((*name, key), value) for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([*lines, "", ""]) + "".join(below)


def _key(name: str) -> str:
    return name if name and _BARE.issuperset(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {_value(one)}' for key, one in value.items())}}}"
    raise InvalidCall("the file holds a value that cannot be written again", hint="nothing was changed")


def _text(value: str) -> str:
    """A basic string: JSON's escapes are TOML's too, and DEL has to be one as well."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_MAC: Final = "Library/Application Support"


class McpClient(Struct, frozen=True, kw_only=True):
    """One client: where its file is, relative to the user's home or to a project, and what the servers are called.

    `bare_url_is_older` says that a `url` without a `type` means the transport before streamable HTTP.
    """

    name: str
    title: str
    user: str
    project: str = ""
    member: str = "mcpServers"
    toml: bool = False
    bare_url_is_older: bool = False


def _place(linux: str, mac: str) -> str:
    return f"{_MAC}/{mac}" if sys.platform == "darwin" else f".config/{linux}"


CLIENTS: Final[dict[str, McpClient]] = {
    one.name: one
    for one in (
        McpClient(name="claude-code", title="Claude Code", user=".claude.json", project=".mcp.json"),
        McpClient(
            name="claude-desktop",
            title="Claude Desktop",
            user=_place("Claude/claude_desktop_config.json", "Claude/claude_desktop_config.json"),
        ),
        McpClient(name="cursor", title="Cursor", user=".cursor/mcp.json", project=".cursor/mcp.json"),
        McpClient(
            name="vscode",
            title="Visual Studio Code",
            user=_place("Code/User/mcp.json", "Code/User/mcp.json"),
            project=".vscode/mcp.json",
            member="servers",
        ),
        McpClient(name="windsurf", title="Windsurf", user=".codeium/windsurf/mcp_config.json"),
        McpClient(
            name="gemini",
            title="Gemini CLI",
            user=".gemini/settings.json",
            project=".gemini/settings.json",
            bare_url_is_older=True,
        ),
        McpClient(
            name="codex",
            title="Codex",
            user=".codex/config.toml",
            project=".codex/config.toml",
            member="mcp_servers",
            toml=True,
        ),
    )
}


class Edit(Struct, frozen=True, kw_only=True):
    """What was done to one file: the servers that changed, those that cannot be wrapped, and the file before."""

    path: Path
    changed: tuple[str, ...]
    left: tuple[str, ...] = ()
    backup: Path | None = None


def file_of(client: McpClient, project: Path | None) -> Path:
    """The client's file for the user, or for a project; raises `InvalidCall` where it has none for projects."""
    if project is None:
        return Path.home() / client.user
    if not client.project:
        raise InvalidCall(f"{client.title} has no configuration of projects", code="project")
    return project / client.project


def wrap_all(path: Path, client: McpClient, wrapper: Sequence[str], *, only: str | None = None) -> Edit:
    """Put the servers of a file behind the proxy: `wrapper` is our command up to the server's name."""

    def edit(name: str, entry: Entry) -> Entry | None:
        return wrapped(name, entry, wrapper, bare_url_is_older=client.bare_url_is_older)

    return _edited(path, client, only, edit, wraps=True)


def unwrap_all(path: Path, client: McpClient, *, only: str | None = None) -> Edit:
    """Take the servers of a file out of the proxy again."""
    return _edited(path, client, only, lambda _, entry: unwrapped(entry), wraps=False)


def _edited(
    path: Path, client: McpClient, only: str | None, edit: Callable[[str, Entry], Entry | None], *, wraps: bool
) -> Edit:
    before = read_toml(path) if client.toml else read_json(path)
    if before is None:
        raise InvalidCall(f"{client.title} has no configuration at `{path}`", code="not_found", status=404)
    value = copy.deepcopy(before)
    changed: list[str] = []
    left: list[str] = []
    for servers in _sections(value, client.member):
        for name, entry in servers.items():
            if only is not None and name != only:
                continue
            try:
                new = edit(name, entry if isinstance(entry, dict) else {})
            except InvalidCall:
                left.append(name)
                continue
            if new is not None:
                servers[name] = new
                changed.append(name)
    backup = None
    if changed and client.toml:
        backup = write_tables(path, client.member, {name: value[client.member][name] for name in changed})
    elif changed:
        backup = write_json(path, value)
    return Edit(path=path, changed=tuple(changed), left=tuple(left) if wraps else (), backup=backup)


def _sections(value: dict[str, Any], member: str) -> list[dict[str, Any]]:
    """Every list of servers in a file: the file's own, and those of the projects that Claude Code keeps in it."""
    projects = value.get("projects")
    holders = [value, *(projects.values() if isinstance(projects, dict) else ())]
    found = [holder.get(member) for holder in holders if isinstance(holder, dict)]
    return [servers for servers in found if isinstance(servers, dict)]
