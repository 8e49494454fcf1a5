"""One server in a client's configuration: put behind `aegis mcp wrap`, and back.

A server with a command becomes our command with its own behind `--`. One with a URL becomes our command with that URL;
values of its headers move to the environment of the command, where no list of processes shows them, and what stood
there is kept in an argument for the way back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aegis.errors import InvalidCall

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
_SIGN_IN: Final = ("oauth", "oauth_client_id", "oauth_resource", "authProviderType", "auth", "scopes")


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
