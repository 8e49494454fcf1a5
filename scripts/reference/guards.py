"""The guards of this version, from their own words."""

from __future__ import annotations

import importlib
from typing import Final

from aegis.policy.model import CALL_GUARDS, RESULT_GUARDS
from reference.markdown import page, paragraphs

# Guards that run whatever the configuration lists.
ALWAYS: Final = ("protected", "evidence")
_MODULES: Final = {"result content": "result"}


def render() -> str:
    """The page; raises `ModuleNotFoundError` for a guard without a module of its name."""
    parts = ["## Guards of calls\n\nIn the order in which the profile `standard` asks them."]
    for name in (*ALWAYS, *CALL_GUARDS):
        parts.append(f"### `{name}`\n\n{_text(name)}")
    parts.append("## Guards of results")
    for name in RESULT_GUARDS:
        parts.append(f"### `{name}`\n\n{_text('result' if name == 'content' else name)}")
    return page(
        "Guards",
        "A guard reads a call and reports; it decides nothing. `protected` and `evidence` run always; the others are "
        "listed under `pipeline` and switched under `guards` in the configuration "
        "([how a decision is made](../explanation/decision.md)).",
        *parts,
    )


def _text(name: str) -> str:
    return paragraphs(importlib.import_module(f"aegis.policy.guards.{name}").__doc__)
