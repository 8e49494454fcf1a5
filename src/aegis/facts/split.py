"""Values that only together make an attack: neighbours read in one, as the tool will put them together."""

from __future__ import annotations

from typing import Final

from aegis.facts.model import Text, View

_MOST_PARTS: Final = 12
_MOST_CHARS: Final = 4_096
_LEAST_CHARS: Final = 8
JOINED: Final = "joined"
SEAM: Final = "\x1e"  # between the two ways of joining: a match across it is none


def joined_views(texts: list[Text]) -> list[View]:
    """One reading of all short values of a call together, where there are at least two.

    The reading counts as a view of the last of them, and has the kind `joined`.
    """
    parts = [(index, text.value) for index, text in enumerate(texts) if not text.is_key and len(text.value) < 512]
    if not 2 <= len(parts) <= _MOST_PARTS:
        return []
    if sum(len(value) for _, value in parts) > _MOST_CHARS:
        return []
    together = "".join(value for _, value in parts)
    if len(together) < _LEAST_CHARS:
        return []
    spaced = " ".join(value for _, value in parts)
    return [View(parts[-1][0], f"{together}\n{SEAM}\n{spaced}", (JOINED,))]
