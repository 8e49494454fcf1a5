"""The Cedar policies of a configuration, parsed, validated and compiled into the cedar guard."""

from __future__ import annotations

from typing import Final

import cedarpy
import re2

from aegis.config.config import Config
from aegis.config.document import nearest
from aegis.core.names import normalise_name
from aegis.errors import Problem
from aegis.policy.guards.cedar import CALL, CONTEXT, CedarGuard, CedarType, ToolAction, cedar_schema, record_type

MAX_TEXT: Final = 65_536  # characters of one policy: bounds parsing and validation
# Cedar's parser is recursive and ends the process where the stack does: measured, it needs some 15 kB
# a bracket and 2 kB an `if`, and a thread can have as little as 512 kB.
MAX_BRACKETS: Final = 20
MAX_IFS: Final = 64

_PIECES: Final = re2.compile(r'"(?:[^"\\]|\\(?:.|\n))*"|//[^\n]*|[(\[{]|[)\]}]|\bif\b')
_HAS: Final = re2.compile(r'\bhas\s+("(?:[^"\\]|\\.)*"|\w+(?:\s*\.\s*\w+)*)')
_NAMED: Final = re2.compile(r'\b(?:Tool|Server)\s*::\s*"((?:[^"\\]|\\.)*)"')


def compile_cedar_guard(config: Config, problems: list[Problem]) -> CedarGuard | None:
    """The cedar guard, or `None` where no policy is written in Cedar; what is wrong is added to `problems`."""
    texts = [
        (position, policy.name, policy.cedar)
        for position, policy in enumerate(config.settings.policies)
        if policy.cedar is not None
    ]
    if not texts:
        return None
    # (1) One action for each tool that is registered by its full name.
    actions = {
        name: ToolAction(id=name, input=record_type(tool.schema_))
        for name, tool in config.settings.tools.items()
        if "*" not in name and name != CALL
    }
    schema = cedar_schema(list(actions.values()))
    shown = {*CONTEXT, "input"}.union(*(_names(action.input) for action in actions.values()))
    # (2) Each text by itself, so that a problem has its place.
    before = len(problems)
    owners: list[str] = []
    for position, name, text in texts:
        where = ("policies", position, "cedar")
        if not _is_shallow(text):
            message = f"the Cedar policy is too long, or nested deeper than {MAX_BRACKETS} brackets"
            problems.append(config.problem(where, message, "write several policies"))
            continue
        try:
            parsed = cedarpy.PolicySet.from_str(text)
        except ValueError as error:
            problems.append(config.problem(where, f"the Cedar policy does not parse: {error}"))
            continue
        if parsed.templates():
            problems.append(config.problem(where, "a Cedar template is never linked, and would never be enforced"))
        elif not len(parsed):
            problems.append(config.problem(where, "the text holds no Cedar policy"))
        for found in cedarpy.validate_policies(text, schema).errors:
            problems.append(config.problem(where, f"the Cedar policy does not validate: {found.error}"))
        for match in _NAMED.finditer(text):
            normal = "/".join(normalise_name(part) for part in match.group(1).rpartition("/")[::2] if part)
            if normal != match.group(1):
                message = f"the name `{match.group(1)}` matches nothing: names are compared in their normal form"
                problems.append(config.problem(where, message, f"write `{normal}`"))
        for asked in _never_there(text, shown):
            message = f"no schema shows an attribute `{asked}` to policies, so that `has` is never true"
            problems.append(config.problem(where, message, nearest(asked, shown)))
        owners.extend([name] * len(parsed))
    if len(problems) > before:
        return None
    # (3) All of them as one set: Cedar's `forbid` overrides its `permit` across policies.
    policies = cedarpy.PolicySet.from_str("\n".join(text for _, _, text in texts))
    return CedarGuard(policies=policies, owners=owners, schema=schema, actions=actions)


def _is_shallow(text: str) -> bool:
    """Whether the parser can read `text` on any stack; brackets in strings and comments do not count."""
    if len(text) > MAX_TEXT:
        return False
    depth = ifs = 0
    for match in _PIECES.finditer(text):
        piece = match.group()
        if piece in "([{":
            depth += 1
        elif piece in ")]}":
            depth -= 1
        elif piece == "if":
            ifs += 1
        if depth > MAX_BRACKETS or ifs > MAX_IFS:
            return False
    return True


def _names(type_: CedarType | None) -> set[str]:
    """The names of every attribute inside a type."""
    if type_ is None:
        return set()
    inner = type_.get("attributes", {})
    return {*inner, *_names(type_.get("element"))}.union(*(_names(one) for one in inner.values()))


def _never_there(text: str, shown: set[str]) -> list[str]:
    """The attributes that `text` asks for with `has` and that no call has; Cedar finds nothing wrong with them."""
    asked = [name.strip().strip('"') for match in _HAS.finditer(text) for name in match.group(1).split(".")]
    return [name for name in dict.fromkeys(asked) if name not in shown]
