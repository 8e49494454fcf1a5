"""What calls of libraries make of their arguments, by what kind of making it is; pure, and known from `data/calls`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aegis.detect.languages.calls import Makes
from aegis.detect.languages.values import (
    HOLE,
    MAX_ITEMS,
    MAX_TEXTS,
    UNKNOWN,
    FollowedValue,
    decoded,
    filled,
    join_paths,
    joined_plainly,
)

_ENVIRONMENT: Final[Mapping[str, str]] = {
    "home": "~", "userprofile": "~", "homepath": "~", "appdata": "~/AppData/Roaming", "localappdata": "~/AppData/Local",
    "windir": "C:/Windows", "systemroot": "C:/Windows", "systemdrive": "C:", "programdata": "C:/ProgramData",
    "programfiles": "C:/Program Files", "tmpdir": "/tmp", "temp": "/tmp", "tmp": "/tmp", "xdg_config_home": "~/.config",  # noqa: S108 - places that are looked for
}  # fmt: skip
_PLACES: Final[Mapping[Makes, str]] = {"home": "~", "temp": "/tmp/x", "here": "."}  # noqa: S108 - what calls make


def variable(names: Sequence[str], default: Sequence[FollowedValue]) -> FollowedValue:
    """The folder that a variable of the environment stands for, else what the program takes in its place."""
    found = [_ENVIRONMENT[name.lower()] for name in names if name.lower() in _ENVIRONMENT]
    return FollowedValue(tuple(found)) if found else default[0] if default else UNKNOWN


def make(makes: Makes, every: Sequence[FollowedValue], *, plainly: bool, method: bool) -> FollowedValue:
    """The value of a call; `every` are its arguments, what a method is called on before them.

    `plainly` says that paths are put behind each other even where one of them is absolute.
    """
    first = every[0] if every else UNKNOWN
    if makes == "join":
        parts = list(first.items) if len(every) == 1 and first.items else every
        return (joined_plainly if plainly else join_paths)(parts) if parts else UNKNOWN
    if makes == "same":
        return first
    if makes in _PLACES:
        return FollowedValue((_PLACES[makes],))
    if makes == "inside":
        paths = (text if "*" in text else f"{text.rstrip('/')}/*" for text in first.every)
        return FollowedValue((), tuple(FollowedValue((path,)) for path in paths))
    if makes in ("parent", "lower"):
        return FollowedValue(tuple(text.lower() if makes == "lower" else _parent(text) for text in first.texts))
    if makes == "format":
        return filled(first, every[1:] or [UNKNOWN])
    if makes == "replace" and len(every) == 3:
        new = every[2].texts[:1]
        replaced = [one.replace(old, other) for one in first.texts for old in every[1].known for other in new]
        return FollowedValue(tuple(replaced[:MAX_TEXTS]) or (HOLE,))
    if makes == "concat":
        return _concatenated(every, method=method)
    if makes == "split":
        sign = next(iter(every[1].known), None) if len(every) > 1 else None
        return FollowedValue(
            (), tuple(FollowedValue((word,)) for text in first.known[:1] for word in text.split(sign)[:MAX_ITEMS])
        )
    if makes == "codes":
        return decoded(
            FollowedValue((), tuple(every)) if len(every) > 1 else FollowedValue(first.texts, (first,)), "codes"
        )
    if makes in ("base64", "hex", "reversed"):
        return decoded(first, makes)
    return UNKNOWN


def _parent(text: str) -> str:
    return text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")


def _concatenated(every: Sequence[FollowedValue], *, method: bool) -> FollowedValue:
    """What is put together of a list: `",".join(list)`, `list.join(",")`, `implode(",", list)`."""
    listed = next((value for value in every if value.items), None)
    if listed is None:
        if method:
            return FollowedValue(("".join((value.texts or (HOLE,))[0] for value in every),))
        return UNKNOWN
    glue = next(
        (value.known[0] for value in every if value is not listed and value.known), "" if len(every) > 1 else ","
    )
    return FollowedValue((glue.join((item.texts or (HOLE,))[0] for item in listed.items),))
