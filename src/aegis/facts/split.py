"""Values that only together make an attack: neighbours read in one, as the tool will put them together."""

from __future__ import annotations

from typing import Final

from aegis.facts.model import Text, View

_MOST_PARTS: Final = 12
_MOST_CHARS: Final = 4_096


def joined_views(texts: list[Text]) -> list[View]:
    """One reading of all short values of a call together, where there are at least two.

    The reading counts as a view of the last of them, and has the kind `joined`. Values that are plain
    words on their own are what makes an honest call, so at least one must carry a sign of syntax.
    """
    parts = [(index, text.value) for index, text in enumerate(texts) if not text.is_key and len(text.value) < 512]
    if not 2 <= len(parts) <= _MOST_PARTS:
        return []
    if sum(len(value) for _, value in parts) > _MOST_CHARS:
        return []
    together = "".join(value for _, value in parts)
    if not any(sign in together for sign in _SIGNS):
        return []
    return [
        View(parts[-1][0], together, ("joined",)),
        View(parts[-1][0], " ".join(value for _, value in parts), ("joined",)),
    ]


_SIGNS: Final = ("'", '"', ";", "|", "`", "$(", "<", "../", "..\\", "--", "/*")
