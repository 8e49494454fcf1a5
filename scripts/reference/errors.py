"""The exceptions, as one tree."""

from __future__ import annotations

import inspect
import textwrap

from aegis import errors
from reference.markdown import code, page, paragraphs


def render() -> str:
    """The page."""
    module = inspect.cleandoc(errors.__doc__ or "")
    tree = textwrap.dedent("\n".join(module.splitlines()[1:-1])).strip("\n")
    classes = [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, Exception) and one.__module__ == errors.__name__
    ]
    classes.sort(key=lambda one: inspect.getsourcelines(one)[1])
    parts = [f"### `{one.__name__}`\n\n{paragraphs(one.__doc__)}" for one in classes]
    return page(
        "Errors",
        "Everything that Aegis raises on purpose, in one tree. Over HTTP every error has one shape, "
        '`{"error": {"code", "message", "hint", "request_id"}}`.',
        code(tree, "text"),
        *parts,
    )
