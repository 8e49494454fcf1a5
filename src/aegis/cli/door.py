"""Commands that ask the HTTP API with a person's key: at a running gateway, or over a home."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url, api_key_of
from aegis.errors import InvalidCall

Ask = Callable[[str, str, str, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Door:
    """The API, whose key opens it, and whether the answer is printed as JSON."""

    api: Ask
    key: str
    as_json: bool

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        """The JSON answer to one request; raises `InvalidCall` with the API's own words for a 4xx."""
        return self.api(method, target, self.key, body)


def opens(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, which takes a `Door` first, as one that takes the options which lead there last."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        from aegis.cli.inside import api

        common = {name: options.pop(name) for name in _COMMON}
        key = _key(common["key_file"])
        with api(common["url"], common["home"], common["config"]) as asked:
            command(Door(api=asked.ask, key=key, as_json=common["as_json"]), **options)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [*own, *_COMMON.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _common(
    url: Url = None, key_file: KeyFile = None, home: Home = None, config: ConfigFile = None, as_json: Json = False
) -> None:
    """The options of every such command; only its signature is used."""


_COMMON = inspect.signature(_common, eval_str=True).parameters


def _key(file: Path | None) -> str:
    key = api_key_of(file)
    if not key:
        raise InvalidCall(
            "this needs an approver's API key",
            code="unauthenticated",
            hint="set AEGIS_API_KEY, or give --api-key-file; `aegis keys create --role approver` makes one",
        )
    return key
