"""Identifiers: 128 random bits, never a place where a caller's text ends up."""

from __future__ import annotations

import os


def new_id() -> str:
    """A fresh identifier as 32 hex digits."""
    return os.urandom(16).hex()
