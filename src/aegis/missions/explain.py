"""What may stand at a member of a mission, in one sentence for whoever wrote another thing there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from msgspec import inspect

from aegis.core.mission import Declaration

_TIMES: Final = ("iat", "exp")
_RESOURCES: Final = "^(exact|glob):"


def expected(member: str) -> str:
    """What belongs at `member` (as `scope.paths[0]`); empty where there is nothing to add."""
    if member in _TIMES:
        return f"`{member}` is a whole number of seconds since 1970, such as `date -d '+1 hour' +%s` prints"
    found = _whole() if member.isidentifier() and _type_at(member) is None else _type_at(member)
    if isinstance(found, inspect.StructType):
        return "the members are " + _listed(field.encode_name for field in found.fields)
    if isinstance(found, inspect.LiteralType):
        return "it is one of " + _listed(str(value) for value in found.values)
    if isinstance(found, inspect.StrType) and found.pattern == _RESOURCES:
        return "it is `exact:VALUE` or `glob:PATTERN`, such as `glob:/reports/**`"
    if isinstance(found, inspect.StrType) and found.pattern:
        return f"it matches `{found.pattern}`"
    if isinstance(found, inspect.IntType):
        return "it is a whole number" + ("" if found.ge is None else f" of at least {found.ge}")
    return ""


def _type_at(member: str) -> Any:
    """The type of a member, and `None` where no mission has such a one."""
    found: Any = _whole()
    for step in filter(None, member.replace("[", ".[").split(".")):
        if isinstance(found, inspect.VarTupleType) and step.startswith("["):
            found = found.item_type
        elif isinstance(found, inspect.DictType):
            found = found.value_type
        elif isinstance(found, inspect.StructType):
            found = next((field.type for field in found.fields if field.encode_name == step), None)
        else:
            return None
        if isinstance(found, inspect.UnionType):  # what may be absent is something or nothing
            found = found.types[0]
    return found


@cache
def _whole() -> inspect.Type:
    return inspect.type_info(Declaration)


def _listed(names: Iterator[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
