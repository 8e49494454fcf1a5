"""What an exception of a tool says, as a framework may tell it to a model: all of its words, wherever they stand."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aegis.core.call import ToolResult
from aegis.core.decision import Decision

MAX_ERRORS: Final = 64  # causes and members of groups that are read; a tool can nest them without end


def failure_of(decision: Decision, error: Exception) -> ToolResult:
    """What is to be observed of a body's exception: a further text of its call, which may be run again.

    Raises `ValueError` where the exception has no text.
    """
    return ToolResult(decision_id=decision.decision_id, result=words_of(error), further=True, failed=True)


def is_one_of(error: Exception, names: Collection[str]) -> bool:
    """Whether an exception is of one of these classes (`module.Class`), which need not be loaded."""
    return any(f"{one.__module__}.{one.__qualname__}" in names for one in type(error).__mro__)


def words_of(error: BaseException) -> str:
    """The texts of an exception, its notes, its causes and the members of its group, one a line, none twice.

    Raises `ValueError` where they cannot be had.
    """
    texts: dict[str, None] = {}
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > MAX_ERRORS:
            raise ValueError("the exception has too many causes")
        try:
            said = [str(one), *map(str, getattr(one, "__notes__", ()))]
        except Exception as broken:
            raise ValueError("the exception has no text") from broken
        texts.update(dict.fromkeys(said))
        members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        waiting += [other for other in (*members, one.__cause__, one.__context__) if other is not None]
    return "\n".join(text for text in texts if text)
