"""Working on rules: running their examples as calls and results would go, and writing a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aegis.core.text import json_text
from aegis.errors import ConfigError, InvalidCall, Problem

if TYPE_CHECKING:
    from aegis.detect.rules.model import Example, RuleSet


def examine(rules: RuleSet, *, only: frozenset[str]) -> list[dict[str, Any]]:
    """Every example of the rules named by `only`, with whether its rule did what the example asks."""
    from dataclasses import replace

    from aegis.detect.rules.cache import default_cache_folder
    from aegis.detect.rules.scanner import Scanner
    from aegis.detect.rules.testing import run
    from aegis.policy.guards.examine import examiner

    chosen = replace(rules, rules=tuple(rule for rule in rules.rules if rule.id in only))
    results = run(chosen, examiner(Scanner(rules, cache=default_cache_folder())))
    return [
        {
            "rule": result.rule.id,
            "kind": result.example.kind,
            "line": result.example.line,
            "text": text_of(result.example),
            "passed": result.passed,
            "found": list(result.found),
        }
        for result in results
    ]


def text_of(example: Example) -> str:
    """The example as one line: its text, or the arguments or result that it holds."""
    if example.text is not None:
        return example.text
    return json_text(dict(example.arguments) if example.arguments is not None else example.result)


def write_rule(document: dict[str, Any], folder: Path) -> Path:
    """Write a rule to `folder`, in the family of the word before its first hyphen; gives back the file.

    Raises `ConfigError` where it does not compile or an example of its own does not hold, and
    `InvalidCall` where its file exists; nothing is written then.
    """
    import yaml

    from aegis.detect.rules.load import parse_rule, rule_set

    rule_id = str(document["id"])
    if not rule_id.replace("-", "").isalnum() or not rule_id.isascii():
        raise InvalidCall("a rule's id has letters, digits and hyphens", hint="such as `sql-tautology`")
    family: str = rule_id.partition("-")[0]
    path = folder / family / f"{rule_id}.yaml"
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    rules = rule_set([parse_rule(text, file=str(path), family=family)])
    wrong = [result for result in examine(rules, only=frozenset({rule_id})) if not result["passed"]]
    if wrong:
        raise ConfigError(
            tuple(
                Problem(
                    message=f"the example `{one['text']}` is not {'found' if one['kind'] != 'pass' else 'passed'}",
                    file=str(path),
                    hint="change the pattern or the example; nothing was written",
                )
                for one in wrong
            )
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidCall(f"the rule `{path}` exists already", code="conflict", status=409) from error
    return path
