"""The built-in detector rules."""

from __future__ import annotations

from itertools import groupby

from aegis.core.text import SURFACES
from aegis.detect.rules import Rule, builtin_folder, load
from reference.markdown import page, table


def render() -> str:
    """The page."""
    rules = sorted(load(builtin_folder()).rules, key=lambda rule: (rule.family, rule.id))
    parts = []
    for family, members in groupby(rules, key=lambda rule: rule.family):
        parts += [
            f"## {family}",
            table(["rule", "finds", "category", "severity", "demands", "where"], map(_row, members)),
        ]
    return page(
        "Rules",
        f"The {len(rules)} rules that ship with this version. Each is one file under `rules/` with examples that it "
        "has to find, examples that try to evade it, and examples that it must leave alone. `aegis rules explain ID` "
        "shows one.",
        *parts,
    )


def _row(rule: Rule) -> list[str]:
    where = ", ".join(surface for surface in SURFACES if surface in rule.surfaces)
    maturity = " (sandbox: recorded, decides nothing)" if rule.maturity == "sandbox" else ""
    return [f"`{rule.id}`", rule.title + maturity, rule.category, rule.severity.word, rule.outcome.word, where]
