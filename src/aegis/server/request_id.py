"""The id under which one request appears in its answer, in the logs and in error bodies."""

from __future__ import annotations

import itertools
import os
import string
from typing import Final

MAX_CHARS: Final = 64  # an id of the client's is repeated in every log line: bounds what it can put there
_ALLOWED: Final = frozenset((string.ascii_letters + string.digits + "-_.").encode())
_counter = itertools.count(1)
_prefix: Final = os.urandom(6).hex()  # two processes never give the same id


def request_id_of(given: bytes | None) -> str:
    """The client's own `X-Request-Id` where it is plain and short, otherwise a new one."""
    if given and len(given) <= MAX_CHARS and _ALLOWED.issuperset(given):
        return given.decode("ascii")
    return f"{_prefix}-{next(_counter):x}"
