"""What `aegis doctor` looks at; every check reads and none of them repairs.

Here: who is looked at, and what one check found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

State = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Patient:
    """One installation and one home. `url` names a gateway elsewhere; the key is never shown."""

    home: Path
    config: Path | None
    url: str | None
    api_key: str = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What one check found; `hint` says what to do about anything that is not `ok`."""

    check: str
    state: State
    found: str
    hint: str = ""


Check = Callable[[Patient], Iterable[Found]]
