"""Limits that both an endpoint and its schema name."""

from __future__ import annotations

from typing import Final

MAX_CALLS: Final = 256  # calls in one batch: bounds how long one request can keep the others waiting
MAX_REASON_CHARS: Final = 1_000  # a reason is kept with what it explains: bounds what one caller can store
MAX_WAIT_S: Final = 60  # the longest long poll
MAX_REPLAYED: Final = 1_000  # calls in one dry run: bounds how long it keeps a core busy
MAX_WISH_CHARS: Final = 2_000  # plain words that a model drafts a policy from: bounds what it is sent
