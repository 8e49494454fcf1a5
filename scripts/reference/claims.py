"""The ledger of claims, for reading."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from reference.markdown import page

ROOT: Final = Path(__file__).resolve().parents[2]
AREAS: Final[dict[str, str]] = {
    "DEC": "Decisions",
    "NAM": "Names",
    "INP": "Input",
    "DIG": "Digests",
    "IDN": "Identity and repetition",
    "APR": "Approvals",
    "RES": "Results",
    "LOG": "The log",
    "KEY": "Keys",
    "CFG": "Configuration",
    "POL": "Policies",
    "SLF": "Aegis protects itself",
    "SDK": "Clients and adapters",
    "VEC": "Other languages",
    "GWY": "The gateway",
    "FLT": "Faults",
    "MIS": "Missions",
    "DET": "Detection",
    "SES": "Sessions",
    "TOL": "What tools say about themselves",
    "PER": "Permits",
    "NTF": "Notifications",
    "SBX": "The sandbox",
    "PRV": "Previews",
    "JDG": "The judge",
    "FRW": "Frameworks",
    "PRX": "Model proxies",
    "MCP": "The MCP proxy",
    "HOK": "Hooks of coding agents",
    "RUN": "Governed runs",
    "BEH": "Agents over time",
    "RSN": "Why calls are made",
    "COK": "The cockpit",
    "EGR": "What leaves the machine",
    "CLI": "The command line",
    "WRD": "The user's words",
    "BEN": "Measuring",
    "DEF": "Waiting for evidence",
}


def render() -> str:
    """The page; raises `KeyError` for a claim of an area that has no title."""
    claims: list[dict[str, Any]] = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text())
    parts = []
    for area, members in groupby(claims, key=lambda claim: str(claim["id"])[:3]):
        parts.append(f"## {AREAS[area]}")
        for claim in members:
            tests = "\n".join(f"  - {_link(test)}" for test in claim["tests"])
            parts.append(f"- **{claim['id']}** {claim['claim']}\n{tests}")
    return page("Claims", "What Aegis promises, and the tests that prove it.", *parts)


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[`{name.removeprefix('test_')}`](../../{file})"
