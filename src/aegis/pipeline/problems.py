"""From what the model refuses to problems with a place, a plain sentence and a hint."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from aegis.core.pointer import escape
from aegis.errors import Problem
from aegis.pipeline.available import PLANNED_GUARDS
from aegis.pipeline.document import Origin

_SENTENCES: Final = {
    "bool_type": "must be `true` or `false`",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "missing": "is missing",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
_SHOWN: Final = 60  # characters of a wrong word that a message quotes


def locate(origins: Mapping[str, Origin], pointer: str) -> Origin:
    """The place of the value at `pointer`, or of the nearest value around it."""
    while pointer not in origins and pointer:
        pointer = pointer.rpartition("/")[0]
    return origins.get(pointer, Origin(file="", line=0))


def problem(origins: Mapping[str, Origin], location: Sequence[str | int], message: str, hint: str = "") -> Problem:
    """A problem at a place of the file, given as keys and positions."""
    pointer = "".join(f"/{escape(str(part))}" for part in location)
    origin = locate(origins, pointer)
    return Problem(message=message, file=origin.file, line=origin.line, pointer=pointer, hint=hint)


def from_model(
    errors: Iterable[ErrorDetails], origins: Mapping[str, Origin], model: type[BaseModel]
) -> tuple[Problem, ...]:
    """One problem for each thing that the model refused, in the order of the file."""
    found = [_translate(error, origins, model) for error in errors]
    return tuple(sorted(found, key=lambda one: (one.file, one.line)))


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word that `word` was probably meant to be, or lists a few."""
    words = sorted(known)
    close = difflib.get_close_matches(word[:_SHOWN], words, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known here: {', '.join(f'`{one}`' for one in words)}" if len(words) <= 20 else ""


def _translate(error: ErrorDetails, origins: Mapping[str, Origin], model: type[BaseModel]) -> Problem:
    kind, given = error["type"], error["input"]
    location = [part for part in error["loc"] if part != "[key]"]
    name = _name(location)
    context = error.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(location[-1])
        if location[:-1] == ["guards"] and key in PLANNED_GUARDS:
            return problem(origins, location, f"the guard `{key}` is not available in this version")
        return problem(origins, location, f"unknown key `{key}`", nearest(key, _keys(model, location[:-1])))
    if kind == "literal_error":
        expected = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        if isinstance(given, str):
            shown = given[:_SHOWN] if given.isprintable() else "text with invisible characters"
            return problem(origins, location, f"{name} cannot be `{shown}`", nearest(given, expected))
        return problem(origins, location, f"{name} must be one of {', '.join(f'`{word}`' for word in expected)}")
    if kind == "value_error":
        return problem(origins, location, str(context.get("error", error["msg"])))
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = context.get("ge", context.get("le"))
        word = "at least" if kind == "greater_than_equal" else "at most"
        return problem(origins, location, f"{name} must be {word} {bound}")
    sentence = _SENTENCES.get(kind)
    if sentence is None:
        sentence = "is not allowed: " + error["msg"][:1].lower() + error["msg"][1:]
    hint = "remove the key to keep the profile's value" if given is None and kind != "missing" else ""
    return problem(origins, location, f"{name} {sentence}", hint)


def _name(location: Sequence[str | int]) -> str:
    """What a message calls the value at `location`: its key, or the list that it is an entry of."""
    if not location:
        return "the file"
    if isinstance(location[-1], int) and len(location) > 1:
        return f"an entry of `{location[-2]}`"
    return f"`{location[-1]}`"


def _keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys that the section at `location` knows."""
    annotation: Any = model
    for part in location:
        section = _section(annotation)
        if section is not None:
            by_key = {field.alias or name: field.annotation for name, field in section.model_fields.items()}
            annotation = by_key.get(str(part))
        else:
            inner = [one for one in typing.get_args(annotation) if one is not type(None)]
            annotation = inner[-1] if inner else None
    section = _section(annotation)
    return [] if section is None else [field.alias or name for name, field in section.model_fields.items()]


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that an annotation stands for, looking through `| None` and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (list, dict):
        return None
    for inner in typing.get_args(annotation):
        found = _section(inner)
        if found is not None:
            return found
    return None
