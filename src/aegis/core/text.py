"""What a string of a call is for; the words that operators and rules use for it."""

from __future__ import annotations

import unicodedata
from typing import Any, Final, Literal

import orjson

# Masking for display: enough to recognise a value that one knows, too little to learn it.

_SHOWN: Final = 2
_SHORT: Final = 8


def mask(text: str) -> str:
    """The text with all but its first and last two characters hidden; short text is hidden whole."""
    if not text:
        return ""
    if len(text) <= _SHORT:
        return "****"
    return f"{text[:_SHOWN]}****{text[-_SHOWN:]}"


def mask_value(value: Any) -> Any:
    """A JSON value with every string masked and every number hidden; keys and shape stay."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: mask_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask_value(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return "****"


# Text that is safe to print: what a terminal would obey, or a reader would not see, is spelled out.
#
# Names, arguments and messages can come from a model. An escape sequence in them would rewrite the screen of the
# person who decides, and a bidirectional control would reorder what that person reads.

_CONTROLS: Final = frozenset({"Cc", "Zl", "Zp"})
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def has_controls(text: str) -> bool:
    """Whether a text holds control characters or separators of lines: a name never does."""
    if text.isprintable():
        return False
    return any(unicodedata.category(char) in _CONTROLS for char in text)


def visible(text: str) -> str:
    """`text` with every control, format and unassigned character written as its escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _HIDDEN else char for char in text)


def json_text(value: Any, *, pretty: bool = False) -> str:
    """`value` as JSON that is both valid and safe to print."""
    options = orjson.OPT_INDENT_2 if pretty else 0
    text = orjson.dumps(value, option=options, default=str).decode()
    if text.isascii():
        return text
    # Outside strings JSON is ASCII, so every character that is escaped here stands inside a string.
    return "".join(
        _escape(char) if not char.isascii() and unicodedata.category(char) in _HIDDEN else char for char in text
    )


def _escape(char: str) -> str:
    point = ord(char)
    if point <= 0xFFFF:
        return f"\\u{point:04x}"
    point -= 0x10000
    return f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}"


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
