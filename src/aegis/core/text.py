"""What a string of a call is for; the words that operators and rules use for it."""

from __future__ import annotations

from typing import Final, Literal

# `document` is what nothing executes, renders or obeys: the text of a file, a pattern, what is searched for on the
# web. `content` goes to people or to a page.
TextRole = Literal[
    "command", "sql", "path", "url", "query_fragment", "code", "content", "document", "identifier", "unknown"
]
TEXT_ROLES: Final[tuple[TextRole, ...]] = (
    "command", "sql", "path", "url", "query_fragment", "code", "content", "document", "identifier", "unknown",
)  # fmt: skip

# Where a rule can apply: the role of an argument, a tool's result, or a tool's description.
Surface = Literal[
    "command", "sql", "path", "url", "query_fragment", "code", "content", "document", "identifier", "unknown", "result",
    "description",
]  # fmt: skip
SURFACES: Final[tuple[Surface, ...]] = (*TEXT_ROLES, "result", "description")
