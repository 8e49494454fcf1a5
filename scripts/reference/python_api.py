"""What `import aegis` gives."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import aegis
from reference.markdown import code, page, paragraphs


def render() -> str:
    """The page."""
    parts = []
    for name in aegis.__all__:
        if name.startswith("__"):
            continue
        value = getattr(aegis, name)
        parts.append(f"## `aegis.{name}`")
        parts += _class(name, value) if inspect.isclass(value) else _function(name, value)
    return page("Python", "Everything that `import aegis` offers. Names load when they are first used.", *parts)


def _class(name: str, value: type[Any]) -> list[str]:
    out = []
    if not issubclass(value, Exception):
        out.append(code(_signature(name, value), "python"))
    out.append(paragraphs(value.__doc__))
    if dataclasses.is_dataclass(value):
        members = inspect.getmembers(value, lambda one: isinstance(one, property))
    else:
        members = [(member, one) for member, one in inspect.getmembers(value) if _public(member, one)]
    for member, one in members:
        if isinstance(one, property):
            out.append(f"### `{name}.{member}`\n\n{paragraphs(one.__doc__)}")
        elif not issubclass(value, Exception):
            out.append(f"### `{name}.{member}`")
            out += _function(f"{name}.{member}", one)
    return out


def _public(name: str, value: object) -> bool:
    return not name.startswith("_") and (inspect.isfunction(value) or inspect.ismethod(value))


def _function(name: str, value: Any) -> list[str]:
    prefix = "async def " if inspect.iscoroutinefunction(value) else ""
    return [code(prefix + _signature(name, value), "python"), paragraphs(value.__doc__)]


def _signature(name: str, value: Any) -> str:
    signature = inspect.signature(value)
    parameters = [_nameable(one) for one in signature.parameters.values() if one.name != "self"]
    written = _parameters(parameters)
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty or returned == "None" else f" -> {_annotation(returned)}"
    short = f"{name}({', '.join(written)}){arrow}"
    if len(short) <= 100:
        return short
    return f"{name}(\n    " + ",\n    ".join(written) + f",\n){arrow}"


class _Named:
    """A default that is a function, written by its name: where it lies in memory differs with every run."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name


def _nameable(one: inspect.Parameter) -> inspect.Parameter:
    return one.replace(default=_Named(one.default.__name__)) if inspect.isfunction(one.default) else one


def _parameters(parameters: list[inspect.Parameter]) -> list[str]:
    out = []
    starred = False
    for one in parameters:
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            starred = True
        elif one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            out.append("*")
            starred = True
        out.append(_parameter(one))
    return out


def _parameter(one: inspect.Parameter) -> str:
    text = one.name
    if one.kind is inspect.Parameter.VAR_POSITIONAL:
        text = f"*{text}"
    elif one.kind is inspect.Parameter.VAR_KEYWORD:
        text = f"**{text}"
    if one.annotation is not inspect.Parameter.empty:
        text += f": {_annotation(one.annotation)}"
    if one.default is not inspect.Parameter.empty:
        default = "..." if "<factory>" in repr(one.default) else repr(one.default)
        text += f" = {default}"
    return text


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else str(getattr(annotation, "__name__", annotation))
