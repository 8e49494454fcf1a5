"""A model's arguments: text that should spell a JSON object, read strictly."""

from __future__ import annotations

from typing import Any

from aegis.core.strict_json import parse
from aegis.errors import InvalidCall


def read_arguments(tool: str, text: object) -> tuple[dict[str, Any] | None, str]:
    """The object that `text` spells, or `None` and a sentence that tells the model what to mend.

    Blank text is the empty object: models spell a call without arguments so. Objects are taken as
    they are. The sentence quotes nothing of the text but the tool's name.
    """
    if isinstance(text, dict):
        return text, ""
    if not isinstance(text, str):
        return None, f"the arguments of `{tool}` are missing; call it again with a JSON object"
    if not text.strip():
        return {}, ""
    try:
        value = parse(text.encode())
    except InvalidCall as error:
        where = f" ({error.hint})" if error.hint else ""
        return None, f"the arguments of `{tool}` cannot be read: {error.message}{where}; call it again with valid JSON"
    except UnicodeEncodeError:
        return None, f"the arguments of `{tool}` hold half a character; call it again with valid JSON"
    if not isinstance(value, dict):
        return None, f"the arguments of `{tool}` are JSON but not an object; call it again with a JSON object"
    return value, ""
