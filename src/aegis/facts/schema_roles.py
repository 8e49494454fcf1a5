"""What arguments are for by the word of the tool's own JSON Schema.

Formats and media types are said by whoever declared the tool, so they count before names do (JSON Schema 2020-12,
validation vocabulary, clauses 7 and 8). Descriptions are prose and decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aegis.core.pointer import escape
from aegis.core.text import TextRole

_MOST: Final = 1_000  # properties of one schema that are looked at
_DEEPEST: Final = 8
_FORMATS: Final[Mapping[str, TextRole]] = {
    "uri": "url", "uri-reference": "url", "iri": "url", "iri-reference": "url", "hostname": "url",
    "idn-hostname": "url", "ipv4": "url", "ipv6": "url",
    "email": "identifier", "idn-email": "identifier", "uuid": "identifier", "date": "identifier",
    "date-time": "identifier", "time": "identifier", "duration": "identifier",
}  # fmt: skip
_MEDIA: Final[Mapping[str, TextRole]] = {
    "application/sql": "sql", "application/x-sh": "command", "text/x-shellscript": "command",
    "application/x-shellscript": "command", "text/javascript": "code", "application/javascript": "code",
    "text/x-python": "code", "application/x-php": "code", "text/plain": "content", "text/html": "content",
    "text/markdown": "content",
}  # fmt: skip


def schema_roles(schema: Mapping[str, Any] | None) -> dict[str, TextRole]:
    """The roles that a schema of arguments gives, by JSON pointer; empty where it says nothing.

    References, alternatives and items of arrays give nothing: names decide there.
    """
    found: dict[str, TextRole] = {}
    waiting: list[tuple[str, Any, int]] = [("", schema, 0)]
    seen = 0
    while waiting and seen < _MOST:
        path, part, depth = waiting.pop()
        seen += 1
        if not isinstance(part, Mapping):
            continue
        role = _role(part)
        if path and role is not None:
            found[path] = role
        properties = part.get("properties")
        if isinstance(properties, Mapping) and depth < _DEEPEST:
            waiting.extend((f"{path}/{escape(str(name))}", inner, depth + 1) for name, inner in properties.items())
    return found


def _role(part: Mapping[str, Any]) -> TextRole | None:
    media, form = part.get("contentMediaType"), part.get("format")
    if isinstance(media, str) and media.partition(";")[0].strip().lower() in _MEDIA:
        return _MEDIA[media.partition(";")[0].strip().lower()]
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form]
    return None
