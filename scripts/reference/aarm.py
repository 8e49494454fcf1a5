"""The public requirements of Autonomous Action Runtime Management, and the tests by which they are met."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from reference.markdown import page

ROOT: Final = Path(__file__).resolve().parents[2]
_WORDS: Final = {"allow": "ALLOW", "block": "DENY", "sanitize": "MODIFY", "require_approval": "STEP_UP"}
_OUTSIDE: Final = """## Outside of conformance

`insufficient_evidence: fail-open-with-attestation` and guards in mode `observe` let run what conformance would stop, on
record. Conflicts of two policies at one priority cannot arise: reports are combined in a lattice, in which the most
restrictive one wins."""


def render() -> str:
    """The page."""
    ledger: list[dict[str, Any]] = yaml.safe_load((ROOT / "docs" / "aarm.yaml").read_text())
    summary = ["| requirement | level | state |", "|---|---|---|"]
    summary += [f"| {one['id']} {one['title']} | {one['level']} | {_state(one)} |" for one in ledger]
    words = ["| ours | theirs |", "|---|---|", *(f"| `{ours}` | {theirs} |" for ours, theirs in _WORDS.items())]
    lead = (
        "The public requirements of Autonomous Action Runtime Management (AARM) v1, as https://aarm.dev/conformance"
        " lists them, each with the tests that prove what is met; `pytest tests/aarm` runs those that were written for"
        " it. This is a self-assessment: nobody else has confirmed it."
    )
    return page("AARM", lead, "\n".join(summary), "\n".join(words), *map(_section, ledger), _OUTSIDE)


def _state(requirement: dict[str, Any]) -> str:
    open_parts = sum("missing" in part for part in requirement["parts"])
    if not open_parts:
        return "met"
    return "not met" if open_parts == len(requirement["parts"]) else "met in part"


def _section(requirement: dict[str, Any]) -> str:
    lines = [
        f"## {requirement['id']} {requirement['title']} ({requirement['level']})",
        "",
        requirement["text"] + ".",
        "",
    ]
    for part in requirement["parts"]:
        if "missing" in part:
            lines.append(f"- **missing**: {part['says']}. {_sentence(part['missing'])}")
            continue
        lines.append(f"- {part['says']}")
        lines += [f"  - {_link(test)}" for test in part["tests"]]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[`{name}`](../../{file})"
