"""Values that only together make an attack: neighbours read in one, as the tool will put them together."""

from __future__ import annotations

from typing import Final

from aegis.facts.model import Text, View

_MOST_PARTS: Final = 12
_LONGEST_PART: Final = 511
_MOST_CHARS: Final = 4_096
_LEAST_CHARS: Final = 4
JOINED: Final = "joined"
SEAM: Final = "\x1e"  # between the two ways of joining: a match across it is none


def joined_view(texts: list[Text], values: list[int]) -> View | None:
    """One reading of all short values of a call together, where there are two to twelve of them.

    `values` says which of `texts` are values. The reading counts as a view of the last short one, and has the
    kind `joined`.
    """
    if len(values) < 2:
        return None
    last = 0
    parts: list[str] = []
    for index in values:
        value = texts[index].value
        if len(value) <= _LONGEST_PART:
            if len(parts) == _MOST_PARTS:
                return None
            parts.append(value)
            last = index
    together = "".join(parts)
    if len(parts) < 2 or not _LEAST_CHARS <= len(together) <= _MOST_CHARS:
        return None
    # What is put together without blanks comes second: a line that begins with it seldom begins with a command.
    return View(last, f"{' '.join(parts)}\n{SEAM}\n{together}", (JOINED,))
