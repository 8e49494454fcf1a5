"""`aegis config`: whether a configuration can be enforced, and what it says once it is resolved."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url, api_key_of
from aegis.cli.output import Column, Count, counted, note, print_json, print_line, show_list, show_members
from aegis.core.text import json_text

if TYPE_CHECKING:
    from aegis.config.config import Config
    from aegis.errors import Problem
    from aegis.policy.policy import Policy

app = typer.Typer(help="The configuration.")

File = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="the configuration; the same as --config")]

_ORIGINS = (
    Column(title="VALUE OF", member="pointer"),
    Column(title="FROM", member="from"),
    Column(title="VALUE", member="value", write=lambda value: value if isinstance(value, str) else json_text(value)),
)
_NAMED = 10  # calls that are named beside the counts
_CHANGED = (
    Column(title="TOOL", member="tool"),
    Column(title="AGENT", member="agent"),
    Column(title="BEFORE", member="before"),
    Column(title="AFTER", member="after"),
    Column(title="CALLS", member="calls", write=str),
)


@app.command()
def check(file: File = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Compile a configuration as a start would: exit 0, or every problem with file and line."""
    from aegis.config.config import load_config
    from aegis.config.trusted import read_trusted

    path = file or config
    loaded = load_config(path)
    policy = _compiled(loaded)
    if path is not None:
        read_trusted(path)
    show_members(
        {
            "file": str(path) if path is not None else "the built-in configuration",
            "profile": loaded.settings.profile,
            "mode": policy.settings["mode"],
            "tools": len(loaded.settings.tools),
            "policies": len(loaded.settings.policies),
            "policy_digest": policy.digest,
        },
        as_json=as_json,
    )
    for problem in _unfilled(loaded):
        place = f"{problem.file}:{problem.line}: " if problem.line else ""
        note(f"{place}{problem.message}{f'; {problem.hint}' if problem.hint else ''}")
    content = loaded.settings.guards.content
    for item in (*content.exceptions, *content.overrides):
        if item.expires is not None and item.expires <= time.time() * 1_000_000:
            note(f"what is said of `{item.rule}` on `{item.tool}` has expired and counts no more")


def _unfilled(config: Config) -> list[Problem]:
    """What policies read of sessions and nothing here fills; the engine of Cedar is loaded where it is needed."""
    if not config.settings.policies:
        return []
    from aegis.config.compile_cedar import unfilled

    return unfilled(config)


def _compiled(config: Config) -> Policy:
    """The policy of a configuration, once everything in it compiles that otherwise would at its first use.

    Raises `ConfigError` with the problems of all sections.
    """
    from aegis.config.compile import compile_policy
    from aegis.detect.rules.cache import default_cache_folder
    from aegis.errors import ConfigError

    problems: list[Problem] = []
    policy = None
    try:
        policy = compile_policy(config, cache=default_cache_folder())
    except ConfigError as error:
        problems += error.problems
    try:
        if config.settings.runs.is_used:  # what joins routes takes long to load
            from aegis.runs.plan import compile_plans

            compile_plans(config)
    except ConfigError as error:
        problems += error.problems
    if policy is None or problems:
        raise ConfigError(tuple(problems))
    return policy


@app.command()
def show(
    file: File = None,
    config: ConfigFile = None,
    origins: Annotated[bool, typer.Option("--origins", help="where each value was written")] = False,
    as_json: Json = False,
) -> None:
    """Print the resolved configuration: the file laid over its profile."""
    import yaml

    from aegis.config.config import load_config
    from aegis.config.document import plain

    loaded = load_config(file or config)
    resolved = plain(loaded.node)
    if origins:
        show_list(_places(loaded.origins, resolved), _ORIGINS, as_json=as_json, empty="nothing is set")
    elif as_json:
        print_json(resolved)
    else:
        print_line(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=False, width=110).rstrip())
        note("`--origins` shows where each value was written")


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the candidate")],
    agent: Annotated[str, typer.Option("--agent", help="only calls of this agent")] = "",
    tool: Annotated[str, typer.Option("--tool", help="only calls of this tool")] = "",
    days: Annotated[int, typer.Option("--days", min=1, max=3_650, help="the calls of the last so many days")] = 7,
    limit: Annotated[int, typer.Option("--limit", min=1, help="the newest so many calls at most")] = 100_000,
    url: Url = None,
    key_file: KeyFile = None,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show which recorded calls would have ended otherwise under a candidate; nothing is changed.

    Changes are counted by tool, agent, what was and what would be; `--json` lists every call of them. It says which
    calls were looked at. Takes an administrator's API key, because what agents called is looked at.
    """
    from aegis.cli.opening import api
    from aegis.core.times import rfc3339

    since = rfc3339(int((time.time() - days * 86_400) * 1_000_000))
    query = {"since": since} | ({"agent": agent} if agent else {}) | ({"tool": tool} if tool else {})
    with api(url, home, config) as asked, counted(limit, title="replayed") as tell:
        value = _replayed(
            lambda more: asked.ask(
                "POST", f"/v1/config:replay?{urlencode(query | more)}", api_key_of(key_file), file.read_bytes()
            ),
            limit,
            tell,
        )
    if as_json:
        print_json(value)
        return
    rows = [{**one, "before": _ending(one["before"]), "after": _ending(one["after"])} for one in value["summary"]]
    looked = value["replayed"] + value["skipped"]
    show_list(rows, _CHANGED, as_json=False, empty=f"none of {looked} recorded calls would have ended otherwise")
    note(
        f"{value['replayed']} calls replayed, {len(value['changed'])} differ, {value['skipped']} could not be replayed"
    )
    span = value["span"]
    if span["complete"]:
        note(f"these are all calls of the last {days} days")
    else:
        note(
            f"only the newest were looked at, back to {span['since']}: nothing is known of earlier ones; see `--limit`"
        )
    if value["changed"]:
        shown = ", ".join(str(one["index"]) for one in value["changed"][:_NAMED])
        more = ", ..." if len(value["changed"]) > _NAMED else ""
        note(f"`aegis log show INDEX` shows one: {shown}{more}")


def _replayed(ask: Callable[[dict[str, str]], Any], limit: int, tell: Count | None) -> dict[str, Any]:
    """Ask for the whole span, one answer after the other into the past, and add the answers up."""
    from aegis.config.text import MAX_REPLAYED, summary_of

    whole: dict[str, Any] = {}
    cursor: str | None = None
    while True:
        left = limit - (whole["replayed"] + whole["skipped"] if whole else 0)
        found = ask({"limit": str(min(left, MAX_REPLAYED))} | ({"cursor": cursor} if cursor else {}))
        cursor = found["next"]
        if not whole:
            whole = found
        else:
            whole["replayed"] += found["replayed"]
            whole["skipped"] += found["skipped"]
            whole["changed"] += found["changed"]
            for name in ("before", "after"):
                whole[name] = dict(Counter(whole[name]) + Counter(found[name]))
            whole["span"] |= {"since": found["span"]["since"] or whole["span"]["since"]}
        looked = whole["replayed"] + whole["skipped"]
        if tell is not None:
            tell(looked)
        if cursor is None or looked >= limit:
            break
    whole["next"] = cursor
    whole["span"]["complete"] = cursor is None
    whole["summary"] = summary_of(whole["changed"])
    return whole


def _ending(ending: dict[str, str]) -> str:
    return ending["decision"] if ending["reason"] == "none" else f"{ending['decision']} ({ending['reason']})"


def _places(origins: Any, resolved: Any) -> list[dict[str, Any]]:
    """Every value that is not a mapping of others, with the file and line that it comes from."""
    from aegis.core.json import resolve

    places = []
    for pointer, origin in origins.items():
        value = resolve(resolved, pointer)
        if isinstance(value, dict) and value:
            continue
        if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            continue
        if pointer.rpartition("/")[0] and isinstance(resolve(resolved, pointer.rpartition("/")[0]), list):
            continue
        where = f"{origin.file}:{origin.line}" if origin.line else origin.file
        places.append({"pointer": pointer, "value": value, "from": where})
    return places
