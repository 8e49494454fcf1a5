"""`aegis config`: whether a configuration can be enforced, and what it says once it is resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from aegis.cli.options import ConfigFile, Json
from aegis.cli.output import Column, note, print_json, print_line, show_list, show_members
from aegis.cli.text import json_text

app = typer.Typer(help="The configuration.")

File = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="the configuration; the same as --config")]

_ORIGINS = (
    Column(title="VALUE OF", member="pointer"),
    Column(title="FROM", member="from"),
    Column(title="VALUE", member="value", write=lambda value: value if isinstance(value, str) else json_text(value)),
)


@app.command()
def check(file: File = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Compile a configuration as a start would: exit 0, or every problem with file and line."""
    from aegis.pipeline.compile import compile_policy
    from aegis.pipeline.config import load_config
    from aegis.pipeline.reload import read_trusted
    from aegis.rules.cache import default_cache_folder

    path = file or config
    loaded = load_config(path)
    policy = compile_policy(loaded, cache=default_cache_folder())
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


@app.command()
def show(
    file: File = None,
    config: ConfigFile = None,
    origins: Annotated[bool, typer.Option("--origins", help="where each value was written")] = False,
    as_json: Json = False,
) -> None:
    """Print the resolved configuration: the file laid over its profile."""
    import yaml

    from aegis.pipeline.config import load_config
    from aegis.pipeline.document import plain

    loaded = load_config(file or config)
    resolved = plain(loaded.node)
    if origins:
        show_list(_places(loaded.origins, resolved), _ORIGINS, as_json=as_json, empty="nothing is set")
    elif as_json:
        print_json(resolved)
    else:
        print_line(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=False, width=110).rstrip())
        note("`--origins` shows where each value was written")


def _places(origins: Any, resolved: Any) -> list[dict[str, Any]]:
    """Every value that is not a mapping of others, with the file and line that it comes from."""
    from aegis.core.pointer import resolve

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
