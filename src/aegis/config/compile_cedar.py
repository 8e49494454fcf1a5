"""The Cedar policies of a configuration, parsed, validated and compiled into the cedar guard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import cedarpy

from aegis.config.config import Config
from aegis.config.document import nearest
from aegis.config.tools import PolicySettings
from aegis.core.names import Selector, normalise_name, split_selector
from aegis.core.outcome import EFFECTS, Outcome
from aegis.core.patterns import Lazy
from aegis.errors import Problem
from aegis.policy.dataflow.declare import SENSITIVITIES
from aegis.policy.guards.cedar import (
    CALL,
    CONTEXT,
    TRUST,
    CedarGuard,
    CedarPolicy,
    CedarType,
    ToolAction,
    cedar_schema,
    record_type,
)
from aegis.policy.session import FIELDS

MAX_TEXT: Final = 65_536  # characters of one policy: bounds parsing and validation
# Cedar's parser is recursive and ends the process where the stack does: measured, it needs some 15 kB
# a bracket and 2 kB an `if`, and a thread can have as little as 512 kB.
MAX_BRACKETS: Final = 20
MAX_IFS: Final = 64

_PIECES: Final = Lazy(r'"(?:[^"\\]|\\(?:.|\n))*"|//[^\n]*|[(\[{]|[)\]}]|\bif\b')
_HAS: Final = Lazy(r'\bhas\s+("(?:[^"\\]|\\.)*"|\w+(?:\s*\.\s*\w+)*)')
_NAMED: Final = Lazy(r'\b(?:Tool|Server)\s*::\s*"((?:[^"\\]|\\.)*)"')


def compile_cedar_guard(config: Config, problems: list[Problem]) -> CedarGuard | None:
    """The cedar guard, or `None` where no policy is written in Cedar; what is wrong is added to `problems`."""
    texts = [
        (position, policy, policy.cedar)
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
    shown = {*CONTEXT, *FIELDS, TRUST, "input"}.union(*(_names(action.input) for action in actions.values()))
    # (2) Each text by itself, so that a problem has its place.
    before = len(problems)
    known: list[CedarPolicy] = []
    for position, settings, text in texts:
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
        statements = _statements(text)
        misread = [_misread(wrong) for one in statements for wrong in _wrong_reads(one)]
        misread += [
            (f"`context.session.{name}` never holds `{word}`", nearest(word, _CLOSED[name]))
            for name, word in _session_words([one["conditions"] for one in statements])
            if name in _CLOSED and word not in _CLOSED[name]
        ]
        if any(one["effect"] == "permit" and _holds(one["conditions"], _AGENT) for one in statements):
            misread.append(("a `permit` may not read the trust in an agent: it only ever tightens", "write a `forbid`"))
        for message, hint in dict.fromkeys(misread):
            problems.append(config.problem(where, message, hint))
        for found in () if misread else cedarpy.validate_policies(text, schema).errors:
            problems.append(config.problem(where, f"the Cedar policy does not validate: {found.error}"))
        for match in _NAMED.finditer(text):
            normal = "/".join(normalise_name(part) for part in match.group(1).rpartition("/")[::2] if part)
            if normal != match.group(1):
                message = f"the name `{match.group(1)}` matches nothing: names are compared in their normal form"
                problems.append(config.problem(where, message, f"write `{normal}`"))
        for asked in _never_there(text, shown):
            message = f"no schema shows an attribute `{asked}` to policies, so that `has` is never true"
            problems.append(config.problem(where, message, nearest(asked, shown)))
        known.extend(_known(settings, one) for one in statements)
    if len(problems) > before:
        return None
    # (3) All of them as one set: Cedar's `forbid` overrides its `permit` across policies. Those that hold stand apart,
    # as Cedar says of a `forbid` that holds nothing of the permits beside it.
    whole = "\n".join(text for _, _, text in texts)
    by_id = {f"policy{number}": one for number, one in enumerate(known)}
    holds = {name for name, one in by_id.items() if one.outcome is not Outcome.BLOCK and not one.permits}
    if not holds:
        return CedarGuard(policies=cedarpy.PolicySet.from_str(whole), known=by_id, schema=schema, actions=actions)
    document = json.loads(cedarpy.policies_to_json_str(whole))
    every = document["staticPolicies"]
    blocking = {**document, "staticPolicies": {name: one for name, one in every.items() if name not in holds}}
    holding = {**document, "staticPolicies": {name: one for name, one in every.items() if name in holds}}
    return CedarGuard(
        policies=cedarpy.PolicySet.from_json_str(json.dumps(blocking)),
        holding=cedarpy.PolicySet.from_json_str(json.dumps(holding)),
        known=by_id,
        schema=schema,
        actions=actions,
    )


# What policies read of the session, by Cedar's own syntax tree (its JSON format of policies).

_AGENT: Final = {".": {"left": {"Var": "context"}, "attr": "agent"}}
_SESSION: Final = {".": {"left": {"Var": "context"}, "attr": "session"}}


def _statements(text: str) -> list[dict[str, Any]]:
    """The policies of a text in their order, as trees."""
    every = json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"]
    return [every[f"policy{number}"] for number in range(len(every))]


def _holds(tree: Any, wanted: dict[str, Any]) -> bool:
    """Whether `wanted` stands somewhere in a tree."""
    if isinstance(tree, list):
        return any(_holds(inner, wanted) for inner in tree)
    return isinstance(tree, dict) and (tree == wanted or any(_holds(inner, wanted) for inner in tree.values()))


def session_reads(tree: Any) -> Iterator[str]:
    """The fields of `context.session` that a tree reads; an empty name stands for the record by itself."""
    if isinstance(tree, list):
        for inner in tree:
            yield from session_reads(inner)
        return
    if not isinstance(tree, dict):
        return
    if tree == _SESSION:
        yield ""
        return
    for sign in (".", "has"):
        inner = tree.get(sign)
        if isinstance(inner, dict) and inner.get("left") == _SESSION:
            if sign == ".":
                yield inner["attr"]
            return
    for inner in tree.values():
        yield from session_reads(inner)


def _wrong_reads(statement: dict[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys(session_reads(statement["conditions"])) if name not in FIELDS]


def _misread(name: str) -> tuple[str, str]:
    """What is wrong with reading `name` of the session, and what was meant."""
    if not name:
        return "`context.session` is a record and compares with nothing", "its name is `context.session.id`"
    return f"`context.session` has no field `{name}`", nearest(name, FIELDS)


def _session_words(tree: Any) -> Iterator[tuple[str, str]]:
    """Each word that a tree asks a set of the session for, with the name of the set."""
    if isinstance(tree, list):
        for inner in tree:
            yield from _session_words(inner)
    elif isinstance(tree, dict):
        for sign in ("contains", "containsAny", "containsAll"):
            inner = tree.get(sign)
            if not isinstance(inner, dict):
                continue
            read = inner["left"].get(".")
            if isinstance(read, dict) and read.get("left") == _SESSION:
                right = inner["right"]
                values = right["Set"] if isinstance(right, dict) and "Set" in right else [right]
                for value in values:
                    if isinstance(value, dict) and isinstance(value.get("Value"), str):
                        yield read["attr"], value["Value"]
        for inner in tree.values():
            yield from _session_words(inner)


_CLOSED: Final[dict[str, tuple[str, ...]]] = {"labels": SENSITIVITIES, "effects": EFFECTS}
_TOOLS: Final = frozenset({"sources", "tools"})


def unfilled(config: Config) -> list[Problem]:
    """What is written in vain in a configuration that compiles: fields of sessions that nothing fills, no permit."""
    settings = config.settings
    given = {tool.result.sensitivity for tool in settings.tools.values() if tool.result is not None}
    given |= {settings.sessions.unclassified, "confidential", "restricted"}  # detection labels what it finds
    drift = getattr(settings.guards, "drift", None)
    found: list[Problem] = []
    for position, policy in enumerate(settings.policies):
        where: tuple[str | int, ...] = ("policies", position, "cedar")
        if policy.cedar is not None:
            trees = [one["conditions"] for one in _statements(policy.cedar)]
            reads, words = list(session_reads(trees)), list(_session_words(trees))
        elif policy.select is not None and policy.select.session is not None:
            where = ("policies", position, "select", "session")
            chosen = policy.select.session.model_dump(exclude_none=True)
            reads = list(chosen)
            words = [(name, word) for name, one in chosen.items() if isinstance(one, list) for word in one]
        else:
            continue
        if "drift" in reads and (drift is None or drift.mode == "off"):
            message = "nothing fills `context.session.drift` here: the guard `drift` is off"
            found.append(config.problem(where, message, "set `guards.drift.mode` to `observe`"))
        for name, word in dict.fromkeys(words):
            if name == "labels" and word in SENSITIVITIES and word not in given:
                message = f"nothing labels what is read here as `{word}`"
                found.append(config.problem(where, message, "declare `result.sensitivity` of a tool"))
            elif name in _TOOLS and "*" not in word and not _is_registered(config, word):
                message = f"no tool `{word}` is registered that could fill `context.session.{name}`"
                found.append(config.problem(where, message, nearest(word, settings.tools)))
    written = [at for at, policy in enumerate(settings.policies) if policy.cedar is not None]
    effects = {one["effect"] for at in written for one in _statements(settings.policies[at].cedar or "")}
    if effects == {"forbid"}:
        message = "no policy in Cedar permits anything, and what nothing permits is denied: every call is"
        hint = 'add `{name: base, cedar: "permit(principal, action, resource);"}`'
        found.append(config.problem(("policies", written[0], "cedar"), message, hint))
    return found


def _is_registered(config: Config, name: str) -> bool:
    server, tool = split_selector(name)
    return any(Selector(one).matches(server, tool) for one in config.settings.tools)


def _known(settings: PolicySettings, statement: dict[str, Any]) -> CedarPolicy:
    return CedarPolicy(
        owner=settings.name,
        permits=statement["effect"] == "permit",
        outcome=Outcome.BLOCK if settings.outcome == "block" else Outcome.REQUIRE_APPROVAL,
        defers=settings.outcome == "defer",
        reads=tuple(dict.fromkeys(name for name in session_reads(statement["conditions"]) if name in FIELDS)),
        trusts=_holds(statement["conditions"], _AGENT),
    )


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
