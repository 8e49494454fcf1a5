"""What a template for the output of a command prints of secrets: their names, or what they hold."""

from __future__ import annotations

from typing import Final

from aegis.core.patterns import Lazy

_FORMS: Final = ("go-template", "jsonpath", "custom-columns")
_ACTIONS: Final = Lazy(r"\{\{-?\s*(.*?)\s*-?\}\}")
_PATHS: Final = Lazy(r"\{\s*([^{}]*?)\s*\}")
_NAMES: Final = (
    r"(?:[.$\[\]*\w]{0,40}\.)?(?:metadata\.(?:name|namespace|uid|labels|creationtimestamp|resourceversion)|type|kind)"
)
_TEXT: Final = r"\"[^\"]*\"|'[^']*'|`[^`]*`"
# What prints no value: a length, a name, a text of its own, and what only says how often or whether the rest is done.
_HARMLESS: Final = Lazy(
    rf"(?:{_TEXT}|{_NAMES}|len\s+[\w.$]{{1,80}}|[\w.$]{{1,80}}\s*\|\s*len|end|else|(?:range|if|with|else\s+if)\b[^{{}}]*)"
)
_KEYED: Final = Lazy(r"range\s+(\$\w+)\s*,\s*\$\w+\s*:=")

_SET: Final = Lazy(r"(\$\w+)\s*:=")


def prints_names(word: str) -> bool:
    """Whether a template prints names and sizes of things alone, and nothing that they hold."""
    form, _, template = word.partition("=")
    if form not in _FORMS or not template:
        return False
    if form == "custom-columns":
        parts = [column.partition(":")[2].strip("{} ") for column in template.split(",")]
    else:
        parts = (_ACTIONS if form == "go-template" else _PATHS).findall(template)
    keys = {match.group(1) for match in map(_KEYED.match, parts) if match is not None}
    keys.difference_update(name for part in parts for name in _SET.findall(part))
    return all(part in keys or _HARMLESS.fullmatch(part) is not None for part in parts)
