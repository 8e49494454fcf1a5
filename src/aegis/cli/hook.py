"""`aegis hook`: the command that a coding agent runs before and after every tool, and its installation."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aegis.cli.hookline import DEFAULT_AGENT, DEFAULT_TIMEOUT_S, MARGIN_S
from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url, api_key_of, home_of
from aegis.cli.output import print_json, print_line
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.proxies.hooks.event import Host as HookHost

app = typer.Typer(
    help="Govern coding agents by their hooks: Claude Code, Codex, Gemini CLI, Cursor, Copilot CLI.",
    invoke_without_command=True,
)

Host = Annotated[str, typer.Argument(metavar="HOST", help="claude, codex, gemini, cursor or copilot")]
Project = Annotated[
    Path | None, typer.Option("--project", metavar="DIR", help="the settings of this project, not the user's")
]
Agent = Annotated[str, typer.Option("--agent", envvar="AEGIS_AGENT", help="decide as this agent")]


@app.callback()
def hook(
    context: typer.Context,
    config: ConfigFile = None,
    home: Home = None,
    agent: Agent = DEFAULT_AGENT,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="seconds within which the host is answered, whatever happens")
    ] = DEFAULT_TIMEOUT_S,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait", min=0, help="seconds for which a held call waits for a person; what the time-out leaves"
        ),
    ] = None,
) -> int:
    """Judge the event on standard input: 0 lets the host go on, 2 blocks, with the reason on standard error."""
    if context.invoked_subcommand is not None:
        return 0
    from aegis.cli.hookwork import run_hook

    place, key = home_of(home), api_key_of(key_file)
    return run_hook(
        config=config, home=place, agent=agent, url=url, api_key=key, timeout=timeout, margin=MARGIN_S, wait=wait
    )


@app.command()
def install(
    host: Host,
    project: Project = None,
    config: ConfigFile = None,
    home: Home = None,
    agent: Agent = "",
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Annotated[int, typer.Option("--timeout", min=10, help="seconds that the host gives the hook")] = 60,
    as_json: Json = False,
) -> int:
    """Have HOST ask before and after every tool; the file before is kept beside the new one."""
    from aegis.proxies.hooks.event import settings_of
    from aegis.proxies.hooks.install import install as write

    chosen = _host(host)
    if url is None:
        _compile(config, home)
    words = [str(Path(sys.argv[0]).absolute()), "hook", "--agent", agent or chosen.title.lower().replace(" ", "-")]
    words += ["--timeout", str(timeout - MARGIN_S)]
    for option, value in (("--config", config), ("--home", home), ("--api-key-file", key_file)):
        words += [option, str(value.expanduser().absolute())] if value is not None else []
    words += ["--url", url] if url is not None else []
    change = write(settings_of(chosen, project), chosen, shlex.join(words), timeout=timeout)
    return _said(change.path, change.changed, change.backup, "installed in", "was installed already in", as_json)


@app.command()
def uninstall(host: Host, project: Project = None, as_json: Json = False) -> int:
    """Take the hook out of HOST's settings; the file before is kept beside the new one."""
    from aegis.proxies.hooks.event import settings_of
    from aegis.proxies.hooks.install import uninstall as remove

    chosen = _host(host)
    change = remove(settings_of(chosen, project), chosen)
    return _said(change.path, change.changed, change.backup, "taken out of", "did not stand in", as_json)


def _compile(config: Path | None, home: Path | None) -> None:
    """Read the configuration as the hook will; its rules are compiled here, and not within the hook's time-out."""
    from aegis.bootstrap.state import config_file
    from aegis.config.compile import compile_policy
    from aegis.config.config import load_config, parse_config
    from aegis.config.trusted import read_trusted
    from aegis.detect.rules.cache import default_cache_folder

    path = config_file(config, home_of(home))
    loaded = load_config() if path is None else parse_config(read_trusted(path), file=str(path))
    compile_policy(loaded, cache=default_cache_folder())


def _host(name: str) -> HookHost:
    from aegis.proxies.hooks.event import HOSTS

    found = HOSTS.get(name)
    if found is None:
        raise InvalidCall(f"there is no host `{name}`", code="host", hint=f"known are {', '.join(HOSTS)}")
    return found


def _said(path: Path, changed: bool, backup: Path | None, done: str, already: str, as_json: bool) -> int:
    if as_json:
        print_json({"file": str(path), "changed": changed, "backup": None if backup is None else str(backup)})
        return 0
    print_line(f"the hook {done if changed else already} {path}")
    if backup is not None:
        print_line(f"  the file before: {backup}")
    return 0
