"""References to secrets, `${env:NAME}` or `file:PATH`: what a configuration holds in place of a secret."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aegis.errors import KeyFileError

MAX_SECRET_BYTES: Final = 16_384  # a secret becomes a header: bounds what a wrong path can put there
_ENV: Final = "${env:"
_FILE: Final = "file:"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in memory; it has no text form but `reveal()`."""

    _value: str = field(repr=False)

    def __str__(self) -> str:
        return "<secret>"

    def reveal(self) -> str:
        """Reveal the secret itself, for the one place that sends it."""
        return self._value

    def redacted(self, data: bytes) -> bytes:
        """Blot out every occurrence of the secret in `data`."""
        return data.replace(self._value.encode("ascii"), b"[redacted]")


def is_reference(text: str) -> bool:
    """Tell whether `text` is a well-formed reference to a secret."""
    named = text.startswith(_ENV) and text.endswith("}") and len(text) > len(_ENV) + 1
    return named or (text.startswith(_FILE) and len(text) > len(_FILE))


def check_reference(reference: str) -> str:
    """Give a well-formed `reference` back; raises `ValueError` for anything else, a secret itself included."""
    if is_reference(reference):
        return reference
    raise ValueError("a secret is given as `${env:NAME}` or `file:PATH`, never in the file")


def read_secret(reference: str) -> Secret:
    """Read the secret that a well-formed reference leads to; raises `KeyFileError` where there is none to be had."""
    if reference.startswith(_ENV):
        name = reference[len(_ENV) : -1]
        text, place = os.environ.get(name, ""), f"the environment variable `{name}`"
    else:
        path = Path(reference.removeprefix(_FILE)).expanduser()
        place = f"the file `{path}`"
        try:
            with path.open("rb") as file:
                text = file.read(MAX_SECRET_BYTES + 1).decode("ascii", "replace")
        except OSError as error:
            raise KeyFileError(f"{place} cannot be read: {error.strerror}") from error
    text = text.strip()
    if not text:
        raise KeyFileError(f"{place} holds no secret")
    if len(text) > MAX_SECRET_BYTES or not all("!" <= sign <= "~" for sign in text):
        raise KeyFileError(f"{place} holds something other than visible ASCII, which no header can carry")
    return Secret(text)
