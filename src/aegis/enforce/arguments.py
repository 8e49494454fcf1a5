"""The final arguments of a Python function: validated, defaulted, and as JSON."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

_adapters: WeakKeyDictionary[Callable[..., Any], dict[str, Any]] = WeakKeyDictionary()
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


def bound_arguments(function: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which a function would run, by name and defaulted; raises `TypeError` where it would not."""
    return named_arguments(inspect.signature(function).bind(*args, **given))


def check_types(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Raise `pydantic.ValidationError` where a value is not of the type that a function's parameter names.

    For frameworks that hand values on as the model spelled them. Types that pydantic does not know are not checked.
    """
    adapters = _adapters.get(function)
    if adapters is None:
        adapters = _adapters[function] = _adapters_of(function)
    for name, value in values.items():
        if name in adapters:
            adapters[name].validate_python(value)


def _adapters_of(function: Callable[..., Any]) -> dict[str, Any]:
    import pydantic

    try:
        named = inspect.get_annotations(inspect.unwrap(function), eval_str=True)
    except (NameError, TypeError):
        return {}  # annotations that only their author's module can read
    found: dict[str, Any] = {}
    for name, annotation in named.items():
        try:
            found[name] = pydantic.TypeAdapter(annotation)
        except pydantic.errors.PydanticUserError:
            continue
    return found


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
    serialise, refused = _serialiser()
    try:
        return serialise(value, inf_nan_mode="constants")
    except refused as error:
        raise ValueError("a value has no JSON form") from error


@functools.cache
def _serialiser() -> tuple[Callable[..., Any], type[Exception]]:
    """What makes JSON of values, and what it raises for what has no such form; loaded when it is needed first."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    return to_jsonable_python, PydanticSerializationError


def fitted(
    values: Mapping[str, Any], allowed: dict[str, Any], validate: Callable[[dict[str, Any]], Mapping[str, Any]]
) -> dict[str, Any]:
    """What a body gets in place of its validated `values` when `allowed` may run.

    Values of other types than JSON's stay where nothing was changed; else `validate` makes them anew. Raises
    what `validate` raises, and `ValueError` where something else would run than what is allowed.
    """
    form = jsonable(values)
    if allowed == form:
        return allowed if form == values else dict(values)
    made = dict(validate(allowed))
    if jsonable(made) != allowed:
        raise ValueError("the changed arguments do not fit the tool")
    return made


def shown(value: Any) -> Any:
    """The value as a model would see it: as JSON, or as text where it has no such form."""
    try:
        return jsonable(value)
    except ValueError:
        return str(value)


def _capture_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    import pydantic

    signature = inspect.signature(function)

    # Looks like the function to pydantic, but only says what it would have been called with.
    @functools.wraps(function)
    def capture(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return named_arguments(signature.bind(*args, **kwargs))

    return cast("Callable[..., dict[str, Any]]", pydantic.validate_call(capture))
