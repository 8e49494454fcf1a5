"""The final arguments of a Python function: validated, defaulted, and as JSON."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

_captures: WeakKeyDictionary[Callable[..., Any], Callable[..., dict[str, Any]]] = WeakKeyDictionary()


def named_arguments(bound: inspect.BoundArguments) -> dict[str, Any]:
    """All arguments of a bound call by name, defaults included; those of `**kwargs` stand for themselves."""
    bound.apply_defaults()
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def validated_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which pydantic's `validate_call` would run `function`, without running it.

    Raises `pydantic.ValidationError` or `TypeError` where it would not run.
    """
    capture = _captures.get(function)
    if capture is None:
        capture = _captures[function] = _capture_of(function)
    return capture(**given)


def jsonable(value: Any) -> Any:
    """The value as JSON; raises `ValueError` for what has no such form."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except PydanticSerializationError as error:
        raise ValueError("a value has no JSON form") from error


def _capture_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    import pydantic

    signature = inspect.signature(function)

    # Looks like the function to pydantic, but only says what it would have been called with.
    @functools.wraps(function)
    def capture(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return named_arguments(signature.bind(*args, **kwargs))

    return cast("Callable[..., dict[str, Any]]", pydantic.validate_call(capture))
