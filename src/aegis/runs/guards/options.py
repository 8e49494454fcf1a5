"""Reading the options of a guard: unknown ones are refused, wrong ones are explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a part takes that has no options."""


def read_options(options: Mapping[str, Any], kind: type[T]) -> T:
    """`options` as `kind` (a frozen struct that forbids unknown fields); raises `ValueError` naming the member."""
    try:
        return msgspec.convert(dict(options), kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).lower().replace("object ", "")) from error
