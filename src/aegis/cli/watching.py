"""Following the queue: each held call once, as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

PERIOD_S: Final = 1.0
PAGE: Final = 100


def watch_approvals(get: Callable[[str], Any], seconds: int) -> Iterator[dict[str, Any]]:
    """Held calls that `get` finds under the API's targets, for `seconds` or, with 0, until interrupted."""
    ends = time.monotonic() + seconds if seconds else None
    seen: set[str] = set()
    while True:
        waiting = _waiting(get)
        for item in waiting:
            if item["id"] not in seen:
                yield item
        seen = {item["id"] for item in waiting}  # what was answered is never listed again
        if ends is not None and time.monotonic() + PERIOD_S > ends:
            return
        time.sleep(PERIOD_S)


def _waiting(get: Callable[[str], Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = get(f"/v1/approvals?limit={PAGE}{cursor}")
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = f"&cursor={quote(page['next'], safe='')}"
