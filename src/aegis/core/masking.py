"""Masking for display: enough to recognise a value that one knows, too little to learn it."""

from __future__ import annotations

from typing import Any, Final

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
