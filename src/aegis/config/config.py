"""From the text of `aegis.yaml` to settings that are complete, typed and know their places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from aegis.config.check import check
from aegis.config.document import (
    MAX_BYTES,
    Origin,
    YamlNode,
    from_model,
    nearest,
    origins,
    overlay,
    plain,
    problem,
    read,
)
from aegis.config.settings import PROFILES, Settings
from aegis.core.shipped import shipped_folder
from aegis.errors import ConfigError, Problem

# The packaged profiles: ordinary configuration files that a user's own file is laid over.


def policies_folder() -> Path:
    """The folder of ready-made configurations, inside the wheel or beside the source tree."""
    return shipped_folder("policies")


@cache
def profile(name: str) -> YamlNode:
    """The packaged profile `name`, read once."""
    path = policies_folder() / "profiles" / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError((Problem(message=f"the profile `{name}` cannot be read", file=str(path)),)) from error
    return read(text, file=f"profile {name}")


DEFAULT_PROFILE = "standard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """A configuration that was read and checked; `compile_policy` turns it into a policy.

    `file` is empty where the packaged profile alone is in force. `node` is the resolved document:
    the file laid over its profile, every value with its origin.
    """

    settings: Settings
    file: str
    node: YamlNode
    origins: Mapping[str, Origin] = field(repr=False)

    def problem(self, location: tuple[str | int, ...], message: str, hint: str = "") -> Problem:
        """A problem at a place of this configuration, given as keys and positions."""
        return problem(self.origins, location, message, hint)


class Source(Struct, frozen=True, kw_only=True):
    """What a policy was compiled from, so that another process can compile the same; `key` is this compilation's."""

    key: int
    digest: str
    config: Config
    folders: tuple[str, ...]
    cache: str | None
    protected: tuple[str, ...]


def load_config(path: Path | None = None) -> Config:
    """The configuration in `path`; without a path, the packaged profile `standard`.

    Raises `ConfigError` with every problem found: file, line, JSON pointer and a hint.
    """
    if path is None:
        return _resolve(profile(DEFAULT_PROFILE), file="")
    return parse_config(read_text(path), file=str(path))


def parse_config(text: str, *, file: str = "aegis.yaml") -> Config:
    """The configuration that `text` spells; `file` is how problems name it.

    Raises `ConfigError` as `load_config` does.
    """
    node = read(text, file=file)
    if node.value is None:
        # An emptied file must not loosen a policy to the defaults.
        hint = "the smallest configuration is `version: 1`"
        raise ConfigError((Problem(message="the file is empty", file=file, line=1, hint=hint),))
    if not isinstance(node.value, dict):
        raise ConfigError((Problem(message="the file must hold a mapping", file=file, line=node.origin.line),))
    return _resolve(overlay(_base(node), node), file=file)


def check_version(text: str, *, file: str) -> None:
    """Guarantee that a configuration that replaces another says which version it is written in.

    An empty body would otherwise put the defaults in force. Raises `ConfigError`.
    """
    node = read(text, file=file)
    if isinstance(node.value, dict) and "version" not in node.value:
        hint = "begin with `version: 1`"
        raise ConfigError((Problem(message="`version` is missing", file=file, line=node.origin.line, hint=hint),))


def read_text(path: Path) -> str:
    """The text of a configuration file, bounded; raises `ConfigError` where it cannot be read."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        return data.decode("utf-8")
    except OSError as error:
        message = f"the configuration cannot be read: {os.strerror(error.errno or 0).lower()}"
        raise ConfigError((Problem(message=message, file=str(path)),)) from error
    except UnicodeDecodeError as error:
        raise ConfigError((Problem(message="the configuration is not UTF-8 text", file=str(path)),)) from error


def _base(node: YamlNode) -> YamlNode:
    named: YamlNode | None = node.value.get("profile")
    if named is None:
        return profile(DEFAULT_PROFILE)
    if named.value not in PROFILES:
        word = named.value if isinstance(named.value, str) else ""
        raise ConfigError(
            (
                Problem(
                    message=f"there is no profile `{word[:60]}`" if word else "`profile` must name a profile",
                    file=named.origin.file,
                    line=named.origin.line,
                    pointer="/profile",
                    hint=nearest(word, PROFILES),
                ),
            )
        )
    return profile(named.value)


def _resolve(node: YamlNode, *, file: str) -> Config:
    places = dict(origins(node))
    value: Any = plain(node)
    try:
        settings = Settings.model_validate(value)
    except ValidationError as error:
        raise ConfigError(from_model(error.errors(include_url=False), places, Settings)) from error
    config = Config(settings=settings, file=file, node=node, origins=places)
    problems = check(config.settings, config.problem)
    if problems:
        raise ConfigError(tuple(sorted(problems, key=lambda one: (one.file, one.line))))
    return config
