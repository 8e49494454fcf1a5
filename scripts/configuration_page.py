"""Writes docs/reference/configuration.md from the model of the configuration and the packaged profiles."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from aegis.config import settings
from aegis.config.config import profile
from aegis.config.document import plain
from aegis.config.judges import JudgeSettings
from aegis.config.settings import PROFILES, Settings
from aegis.policy.guards import cedar

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "configuration.md"

INTRO: Final = """\
# Configuration

`aegis.yaml` is one YAML file. This page is written from the model that reads it.

## How a file is read

1. The file names a `profile` (`standard` where it names none) and is laid over it: **mappings merge key by
   key, everything else replaces**. A list in your file replaces the profile's list.
2. Everything is checked before it is in force: unknown keys, words outside a closed set, schemas, patterns
   and Cedar policies that do not compile, selectors that nothing reaches, checks that no guard would make.
   Each problem has its file, line, JSON pointer and, where there is one, a hint. `aegis config check FILE`
   does the same without putting anything in force.
3. `aegis config show` prints the result; `--origins` adds the file and line that each value comes from.

The file is plain YAML: mappings, lists and scalars of the core schema of YAML 1.2, so that `off` and `no` are
words. Duplicate keys, anchors, aliases, tags and several documents are refused, and so are files over 1 MiB.
An empty file is refused; the smallest is `version: 1`.

Secrets are never written into the file: where one is needed, the value is `${env:NAME}` or `file:PATH`.

The **policy digest** in decisions and receipts covers the resolved settings, the rules and the package
version. Comments, the order of keys, the spelling of a duration, descriptions, the profile that a value came
from, `store` and `durability` make no difference to it.

## How a file is replaced

A running gateway reads the file again when it changes, on SIGHUP, and when it is put by the API. A file that
does not compile, that others can write or replace, or that belongs to another user leaves the old
configuration in force. A change is recorded in the log before it is in force. `store` and `durability` take
effect at the next start. What was counted against a rate goes on counting.

## Selectors

A selector is `tool`, `server/tool`, or either with `*`; it matches whole names, never prefixes. Names are
compared without regard to case, compatibility forms and invisible characters. The most specific entry of
`tools` wins: `server/tool`, then `tool`, then patterns from the longest to the shortest.

What restricts matches every server: an entry `send_email` gives its tier, schema and irreversibility to every
tool of that name. What loosens matches only the server that it was written for: the same entry registers
`send_email` of no server, and `mcp:mail/send_email` stays unregistered until an entry says `mcp:mail/...`.
"""

PIPELINE: Final = """\
## What the guards decide together

Every guard reports; the most restrictive report wins: `allow < sanitize < require_approval < block`. A guard
that fails refuses. `mode: observe` records what a guard would have demanded, with outcome `allow`, and changes
nothing else; `mode: off` asks nothing. A call that a guard patches is analysed again as it will run, until no
patch is left; patches that do not converge block.

| tier and reversibility | what happens |
|---|---|
| above `registry.max_allowed_tier` | block, `risk_ceiling` |
| critical, `allow_critical: false` | block, `risk_ceiling` |
| irreversible, at or above `escalation_threshold` | hold, `irreversible` |
| `approvals: {always: true}` on the tool | hold, `approval_required` |
| high and reversible | run |

The tier of a call is the higher of the registered tier and what its facts say.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRO, _profiles(), PIPELINE, *_sections(), _cedar()]).rstrip() + "\n"


def _profiles() -> str:
    values = {name: dict(_leaves(plain(profile(name)))) for name in PROFILES}
    lines = [
        "## Profiles",
        "",
        "What a file does not say, its profile says. Where the three differ is set in bold.",
        "",
        "| setting | " + " | ".join(f"`{name}`" for name in PROFILES) + " |",
        "|---|" + "---|" * len(PROFILES),
    ]
    for key in values["standard"]:
        if key in ("version", "profile"):
            continue
        row = [_shown(values[name][key]) for name in PROFILES]
        if len(set(row)) > 1:
            row = [f"**{cell}**" for cell in row]
        lines.append(f"| `{key}` | " + " | ".join(row) + " |")
    return "\n".join([*lines, ""])


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return "`[" + ", ".join(str(item) for item in value) + "]`"
    return "`{}`" if value == {} else f"`{value}`"


def _sections() -> Iterator[str]:
    schema = Settings.model_json_schema(by_alias=True)
    judge = JudgeSettings.model_json_schema(by_alias=True)  # a file of its own, which an entry names
    definitions: dict[str, Any] = {**schema["$defs"], **judge.pop("$defs"), JudgeSettings.__name__: judge}
    yield _table("The file", Settings, schema, definitions)
    places = {
        "`tools`": "ToolSettings",
        "`tools.*.approvals`": "ToolApprovalSettings",
        "`tools.*.arguments.*`": "ArgumentSettings",
        "`tools.*.result`": "ResultSettings",
        "`registry`": "RegistrySettings",
        "`limits`": "LimitSettings",
        "`guards`": "GuardsSettings",
        "`guards.protected`, `guards.evidence`": "AlwaysSettings",
        "`guards.rate`, `guards.registry`, `guards.schema`, `guards.cedar`": "GuardSettings",
        "`guards.loops`": "LoopSettings",
        "`guards.behaviour`": "BaselineSettings",
        "`guards.outside.*`": "OutsideGuardSettings",
        "`guards.content`": "ContentSettings",
        "`guards.content.exceptions`": "ExceptionSettings",
        "`guards.content.overrides`": "OverrideSettings",
        "`guards.dataflow`": "DataflowSettings",
        "`guards.drift`": "DriftSettings",
        "`guards.drift.embeddings`": "EmbeddingSettings",
        "`guards.reasoning`": "ReasoningSettings",
        "`pipeline`": "PipelineSettings",
        "`sessions`": "SessionSettings",
        "`policies`": "PolicySettings",
        "`policies.*.select`": "SelectSettings",
        "`policies.*.select.session`": "SessionSelectSettings",
        "`policies.*.approvals`": "OwnApprovalSettings",
        "`containment`": "ContainmentSettings",
        "`containment.*.when`": "WhenSettings",
        "`cascade`": "CascadeSettings",
        "`budgets`": "BudgetSettings",
        "`prices`": "ModelPriceSettings",
        "`approvals`": "ApprovalSettings",
        "`approvals.notify`": "NotifierSettings",
        "`approvals.standing`": "StandingSettings",
        "`judges`": "ValidatorSettings",
        "`judges.*.select`": "JudgeSelectSettings",
        "`judges.*.model`, and `model` in the file of a judge": "JudgeModelSettings",
        "The file of a judge": "JudgeSettings",
        "`tools` in the file of a judge": "JudgeToolsSettings",
        "`limits` in the file of a judge": "JudgeLimitsSettings",
        "`judging`": "JudgingSettings",
        "`judging.ceilings.*`": "CeilingSettings",
        "`previews`": "PreviewSettings",
        "`tools.*.preview`": "ToolPreviewSettings",
        "`missions`": "MissionSettings",
        "`missions.quotes`": "QuoteSettings",
        "`proxies`": "ProxySettings",
        "`proxies.providers`": "ProviderSettings",
        "`proxies.mcp`": "McpProxySettings",
        "`runs`": "RunSettings",
        "`runs.models`": "ModelSettings",
        "`runs.models.*.price`": "PriceSettings",
        "`runs.servers`": "ToolServerSettings",
        "`runs.routes`": "RouteSettings",
        "`drafting`": "DraftingSettings",
        "`drafting.model`": "EndpointSettings",
    }
    sections = {name for name in definitions if name.endswith("Settings")}
    if sections != set(places.values()):
        raise LookupError(f"sections without a place on the page: {sections ^ set(places.values())}")
    for title, name in places.items():
        yield _table(title, _model(name), definitions[name], definitions)


def _model(name: str) -> type[BaseModel]:
    for path in sorted(Path(settings.__file__).parent.glob("*.py")):
        module = importlib.import_module(f"aegis.config.{path.stem}")
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    raise LookupError(name)


def _table(title: str, model: type[BaseModel], schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    said = _docstrings(model)
    lines = [f"## {title}", "", (model.__doc__ or "").strip(), "", "| key | value | default | |", "|---|---|---|---|"]
    required = schema.get("required", [])
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    for key, found in schema["properties"].items():
        default = "" if key in required else _default(found.get("default"))
        text = said.get(names[key]) or _reference(found, definitions)
        lines.append(f"| `{key}` | {_value(found, definitions)} | {default} | {text} |")
    return "\n".join([*lines, ""])


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The text under each member, of the class and those it extends."""
    said: dict[str, str] = {}
    for part in reversed(model.__mro__):
        if not issubclass(part, BaseModel) or part is BaseModel:
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(tree, ast.ClassDef)
        for member, after in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(member, ast.AnnAssign)
                and isinstance(member.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                said[member.target.id] = str(after.value.value)
    return said


def _reference(found: dict[str, Any], definitions: dict[str, Any]) -> str:
    name = str(found.get("$ref", "")).rpartition("/")[2]
    return str(definitions[name].get("description", "")).partition("\n")[0] if name else ""


def _value(found: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "written" in found:
        return str(found["written"])
    if "const" in found:
        return f"`{found['const']}`"
    if "enum" in found:
        return ", ".join(f"`{word}`" for word in found["enum"])
    if "$ref" in found:
        return "a mapping"
    if "anyOf" in found:
        return " or ".join(_value(one, definitions) for one in found["anyOf"] if one.get("type") != "null")
    kind = found.get("type")
    if kind == "array":
        return "a list: " + _value(found.get("items", {}), definitions)
    if kind == "boolean":
        return "`true`, `false`"
    if kind == "integer":
        return f"{found.get('minimum', '')} to {found.get('maximum', '')}"
    if kind == "object":
        return "a mapping by name"
    return "text"


def _default(value: Any) -> str:
    return "" if value in (None, "") else _shown(value)


def _cedar() -> str:
    text = inspect.cleandoc(cedar.__doc__ or "").partition("\n\n")[2]
    return f"""## Cedar

{text}

Arguments are visible as `context.input` as far as the tool's `schema` declares them: text, whole numbers, truth
values, lists of one such type, and objects of declared members. A policy that asks for anything else does not
validate, and an argument of another type than declared refuses the call instead of skipping the policy, and so do
more than 10,000 values.

```yaml
tools:
  refund: {{risk: high, schema: {{properties: {{amount: {{type: integer}}}}, required: [amount]}}}}
policies:
- name: everything-else
  cedar: permit(principal, action, resource);
- name: small-refunds-only
  cedar: |
    forbid(principal, action == Action::"refund", resource)
    when {{ context.input.amount > 100 }};
- name: office-hours
  cedar: |
    forbid(principal, action, resource)
    when {{ context.effects.contains("external_send") && (context.hour < 8 || context.hour >= 18) }};
```
"""


def main() -> int:
    """Write the page; with `--check`, only say whether it is as it would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        if not same:
            print(f"{PAGE.name} is not what the model says; run scripts/{Path(__file__).name}", file=sys.stderr)
        return 0 if same else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
