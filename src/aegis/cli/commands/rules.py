"""`aegis rules`: which detector rules there are, and what one of them says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aegis.cli.options import Json
from aegis.cli.output import Column, print_json, print_line, show_list
from aegis.cli.text import visible
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.rules import Rule, RuleSet

app = typer.Typer(help="The detector rules.")

Folders = Annotated[
    list[Path] | None, typer.Option("--rules", metavar="DIR", help="a folder of rules beside the built-in ones")
]

_COLUMNS = (
    Column(title="RULE", member="id"),
    Column(title="CATEGORY", member="category"),
    Column(title="SEVERITY", member="severity"),
    Column(title="OUTCOME", member="outcome"),
    Column(title="MATURITY", member="maturity"),
    Column(title="TITLE", member="title"),
)


@app.command("list")
def list_rules(
    folders: Folders = None,
    category: Annotated[str, typer.Option("--category", help="only this category")] = "",
    as_json: Json = False,
) -> None:
    """List the rules in force."""
    rules = [rule for rule in _load(folders).rules if category in ("", rule.category)]
    show_list([_summary(rule) for rule in rules], _COLUMNS, as_json=as_json, empty="no rule of that category")


@app.command()
def explain(
    rule_id: Annotated[str, typer.Argument(metavar="RULE", help="the rule's id")],
    folders: Folders = None,
    as_json: Json = False,
) -> None:
    """Show what a rule looks for, where it applies, and its examples."""
    rules = _load(folders)
    rule = rules.by_id.get(rule_id)
    if rule is None:
        raise InvalidCall(f"there is no rule `{rule_id}`", code="not_found", hint=_nearest(rule_id, rules))
    detail = _detail(rule)
    if as_json:
        print_json(detail)
        return
    print_line(f"{rule.id}  {visible(rule.title)}")
    for name in ("category", "severity", "outcome", "maturity", "applies_to", "message", "file"):
        value = detail[name]
        print_line(f"  {name.replace('_', ' '):<12}{visible(', '.join(value) if isinstance(value, list) else value)}")
    for name in ("patterns", "facts", "references"):
        for value in detail[name]:
            print_line(f"  {name.removesuffix('s'):<12}{visible(value)}")
    for example in detail["examples"]:
        print_line(f"  {example['kind']:<12}{visible(example['text'])}")


def _load(folders: list[Path] | None) -> RuleSet:
    from aegis.rules import builtin_folder, load

    return load(builtin_folder(), *(folders or ()))


def _summary(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "family": rule.family,
        "category": rule.category,
        "severity": rule.severity.word,
        "outcome": rule.outcome.word,
        "maturity": rule.maturity,
        "title": rule.title,
    }


def _detail(rule: Rule) -> dict[str, Any]:
    from aegis.cli.text import json_text

    return _summary(rule) | {
        "message": rule.message,
        "applies_to": sorted(rule.surfaces),
        "patterns": list(rule.patterns),
        "facts": list(rule.facts),
        "references": list(rule.references),
        "file": f"{rule.file}:{rule.line}" if rule.line else rule.file,
        "examples": [
            {
                "kind": example.kind,
                "text": example.text
                if example.text is not None
                else json_text(dict(example.arguments) if example.arguments is not None else example.result),
            }
            for example in rule.examples
        ],
    }


def _nearest(rule_id: str, rules: RuleSet) -> str:
    from difflib import get_close_matches

    near = get_close_matches(rule_id[:100], list(rules.by_id), n=3)
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}" if near else "`aegis rules list` names them"
