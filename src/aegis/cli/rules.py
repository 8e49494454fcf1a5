"""`aegis rules`: which detector rules there are, what one of them says, whether their examples hold, and new ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from aegis.cli import output
from aegis.cli.options import ConfigFile, Json
from aegis.cli.output import Column, columns, note, print_json, print_line, show_list
from aegis.core.text import json_text, visible
from aegis.errors import ConfigError, InvalidCall, Problem

if TYPE_CHECKING:
    from aegis.detect.rules import Rule, RuleSet
    from aegis.detect.rules.model import Example

app = typer.Typer(help="The detector rules.")

Folders = Annotated[
    list[Path] | None, typer.Option("--rules", metavar="DIR", help="a folder of rules beside the built-in ones")
]

_COLUMNS = columns(("id", "RULE"), "category", "severity", "outcome", "maturity", "title")
_WRONG = (
    Column(title="RULE", member="rule"),
    Column(title="EXAMPLE", member="kind"),
    Column(title="LINE", member="line", write=str),
    Column(title="TEXT", member="text"),
)


@app.command("list")
def list_rules(
    folders: Folders = None,
    config: ConfigFile = None,
    category: Annotated[str, typer.Option("--category", help="only this category")] = "",
    as_json: Json = False,
) -> None:
    """List the rules in force."""
    rules = [rule for rule in load_rules(folders, config).rules if category in ("", rule.category)]
    show_list([_summary(rule) for rule in rules], _COLUMNS, as_json=as_json, empty="no rule of that category")


@app.command()
def explain(
    rule_id: Annotated[str, typer.Argument(metavar="RULE", help="the rule's id")],
    folders: Folders = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show what a rule looks for, where it applies, and its examples."""
    rules = load_rules(folders, config)
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


@app.command()
def test(
    only: Annotated[list[str] | None, typer.Argument(metavar="[RULE]...", help="only these; by default all")] = None,
    folders: Folders = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> int:
    """Run the examples of the rules: exit 0, or 1 and every example that its rule got wrong."""

    rules = load_rules(folders, config)
    for name in only or ():
        if name not in rules.by_id:
            raise InvalidCall(f"there is no rule `{name}`", code="not_found", hint=_nearest(name, rules))
    results = examine(rules, only=frozenset(only or rules.by_id))
    wrong = [result for result in results if not result["passed"]]
    if as_json:
        print_json({"examples": len(results), "failed": wrong})
    else:
        show_list(wrong, _WRONG, as_json=False, empty=f"{len(results)} examples, none is wrong")
        note(f"{len(results)} examples, {len(wrong)} wrong")
    return output.REFUSED if wrong else output.DONE


@app.command()
def new(
    rule_id: Annotated[str, typer.Argument(metavar="RULE", help="the rule's id, which is its file's name")],
    category: Annotated[str, typer.Option("--category", help="what it finds, as `aegis rules list` names it")],
    patterns: Annotated[list[str], typer.Option("--pattern", help="a linear-time regular expression")],
    match: Annotated[list[str], typer.Option("--match", metavar="TEXT", help="must be found; at least two")],
    passes: Annotated[list[str], typer.Option("--pass", metavar="TEXT", help="must pass; at least two")],
    title: Annotated[str, typer.Option("--title", help="what it looks for, in a few words")],
    severity: Annotated[str, typer.Option("--severity", help="low, medium, high or critical")] = "high",
    outcome: Annotated[str, typer.Option("--outcome", help="what a finding demands")] = "block",
    roles: Annotated[list[str] | None, typer.Option("--applies-to", metavar="ROLE", help="by default anything")] = None,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder of rules to write to")] = Path(
        "rules"
    ),
) -> None:
    """Write a new rule, if it compiles and its own examples hold."""

    document = {
        "id": rule_id,
        "title": title,
        "category": category,
        "severity": severity,
        "outcome": outcome,
        "roles": roles or ["any"],
        "message": title,
        "patterns": patterns,
        "examples": {"match": match, "pass": passes},
    }
    print_line(str(write_rule(document, folder)))


def load_rules(folders: list[Path] | None, config: Path | None) -> RuleSet:
    """The rules in force under `config`, and those of `folders`."""
    from aegis.config.config import load_config
    from aegis.config.trusted import rule_folders
    from aegis.detect.rules import builtin_folder, load

    configured = () if config is None else rule_folders(load_config(config))
    return load(builtin_folder(), *configured, *(folders or ()))


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

    return _summary(rule) | {
        "message": rule.message,
        "applies_to": sorted(rule.surfaces),
        "patterns": list(rule.patterns),
        "facts": list(rule.facts),
        "references": list(rule.references),
        "file": f"{rule.file}:{rule.line}" if rule.line else rule.file,
        "examples": [{"kind": example.kind, "text": text_of(example)} for example in rule.examples],
    }


def _nearest(rule_id: str, rules: RuleSet) -> str:
    from difflib import get_close_matches

    near = get_close_matches(rule_id[:100], list(rules.by_id), n=3)
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}" if near else "`aegis rules list` names them"


def examine(rules: RuleSet, *, only: frozenset[str]) -> list[dict[str, Any]]:
    """Try every example of the rules named by `only`, with whether its rule did what the example asks."""

    from aegis.detect.rules.cache import default_cache_folder
    from aegis.detect.rules.scanner import Scanner
    from aegis.detect.rules.testing import run
    from aegis.policy.guards.examine import examiner

    chosen = structs.replace(rules, rules=tuple(rule for rule in rules.rules if rule.id in only))
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
