"""The cedar guard: attribute policies in Cedar, validated against a schema before the first call.

A call is one request. Principal: `Agent::"NAME"`. Resource: `Tool::"TOOL"` or
`Tool::"SERVER/TOOL"`, which is in `Server::"SERVER"`. Action: `Action::"SELECTOR"` for a tool that is
registered without `*`, which is in `Action::"call"`; `Action::"call"` itself for any other. Context:
`tool server session category` (text), `risk` (0 to 3), `irreversible registered` (truth values),
`effects roles` (sets of text), `time` (seconds since the epoch), `hour` (0 to 23) and `weekday` (0 is
Monday), both UTC; and for registered tools with a schema `input`, the arguments that it declares.

As in Cedar, what nothing permits is denied. Any error of evaluation refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cedarpy
import orjson

from aegis.core.finding import Finding, Report
from aegis.core.json import escape
from aegis.core.names import SelectorMap, normalise_name
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.policy.guards.base import Case, holds_at_most

# Arguments as Cedar sees them: JSON Schemas as Cedar types, and values checked against those.
#
# Cedar skips a policy that meets a missing or wrongly typed attribute, `forbid` included. So only what a tool's
# schema declares is shown to policies, and a value of another type is an error here.
#
# Text, whole numbers, truth values, lists of one such type and objects of declared members are shown; everything
# else (fractions, unions, undeclared members) is not visible to policies.

MAX_DEPTH: Final = 4  # levels of objects that are shown: bounds what a schema makes us copy
_LONG: Final = 2**63  # Cedar's Long is a signed 64-bit integer
_PLAIN: Final[Mapping[str, str]] = {"string": "String", "integer": "Long", "boolean": "Boolean"}

CedarType = dict[str, Any]


class TypeMismatch(Exception):
    """A value does not have the type that policies were validated against; `place` are keys and positions."""

    def __init__(self, place: tuple[str | int, ...]):
        super().__init__("a value has another type than its schema")
        self.place = place


def record_type(schema: Mapping[str, Any] | None) -> CedarType | None:
    """The Cedar record type of an object schema, or `None` where nothing of it can be shown."""
    return None if schema is None else _object(schema, 0)


def project(type_: CedarType, value: Any, place: tuple[str | int, ...] = ()) -> Any:
    """The part of `value` that `type_` describes; raises `TypeMismatch` where the two disagree."""
    kind = type_["type"]
    if kind == "Record":
        if not isinstance(value, dict):
            raise TypeMismatch(place)
        shown: dict[str, Any] = {}
        for name, inner in type_["attributes"].items():
            if name in value:
                shown[name] = project(inner, value[name], (*place, name))
            elif inner["required"]:
                raise TypeMismatch((*place, name))
        return shown
    if kind == "Set":
        if not isinstance(value, list):
            raise TypeMismatch(place)
        return [project(type_["element"], item, (*place, position)) for position, item in enumerate(value)]
    fits = (
        (kind == "String" and isinstance(value, str))
        or (kind == "Boolean" and isinstance(value, bool))
        or (kind == "Long" and type(value) is int and -_LONG <= value < _LONG)
    )
    if not fits:
        raise TypeMismatch(place)
    return value


def _object(schema: Mapping[str, Any], depth: int) -> CedarType | None:
    properties = schema.get("properties")
    if depth > MAX_DEPTH or not isinstance(properties, dict):
        return None
    listed = schema.get("required")
    required = listed if isinstance(listed, list) else []
    attributes: dict[str, CedarType] = {}
    for name, inner in properties.items():
        shown = _type(inner, depth)
        # Members whose names start with `__` are escapes of Cedar's JSON, not attributes.
        if shown is not None and not name.startswith("__"):
            attributes[name] = {**shown, "required": name in required}
    return {"type": "Record", "attributes": attributes} if attributes else None


def _type(schema: object, depth: int) -> CedarType | None:
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if not isinstance(kind, str):
        return None
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind == "array":
        element = _type(schema.get("items"), depth + 1)
        return None if element is None else {"type": "Set", "element": element}
    return _object(schema, depth + 1) if kind == "object" else None


CALL: Final = "call"
MAX_SHOWN: Final = 10_000  # values of one call that policies see: half a million numbers took more than a second
_REMEMBERED: Final = 1_024  # tools whose entities are kept: bounds memory against made-up names
CONTEXT: Final[CedarType] = {
    "tool": {"type": "String"},
    "server": {"type": "String"},
    "session": {"type": "String"},
    "category": {"type": "String"},
    "risk": {"type": "Long"},
    "irreversible": {"type": "Boolean"},
    "registered": {"type": "Boolean"},
    "effects": {"type": "Set", "element": {"type": "String"}},
    "roles": {"type": "Set", "element": {"type": "String"}},
    "time": {"type": "Long"},
    "hour": {"type": "Long"},
    "weekday": {"type": "Long"},
}

_QUIET: Final = Report(guard="cedar")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolAction:
    """The action of one registered tool; `input` is the type of its arguments, if any can be shown."""

    id: str
    input: CedarType | None = None


def cedar_schema(actions: Sequence[ToolAction]) -> cedarpy.Schema:
    """The schema that policies are validated against, with one action for each of `actions`."""
    known: dict[str, Any] = {CALL: _action(None)}
    for action in actions:
        known[action.id] = {"memberOf": [{"id": CALL}], **_action(action.input)}
    entities = {"Agent": {}, "Server": {}, "Tool": {"memberOfTypes": ["Server"]}}
    document = {"": {"entityTypes": entities, "actions": known}}
    return cedarpy.Schema.from_json_str(orjson.dumps(document).decode())


def _action(arguments: CedarType | None) -> dict[str, Any]:
    attributes = dict(CONTEXT) if arguments is None else {**CONTEXT, "input": arguments}
    context = {"type": "Record", "attributes": attributes}
    return {"appliesTo": {"principalTypes": ["Agent"], "resourceTypes": ["Tool"], "context": context}}


class CedarGuard:
    """Refuses what the policies do not permit, and what they cannot be evaluated on.

    `owners` names the configured policy of each parsed one, in order; `actions` is the action of
    each registered tool.
    """

    name = "cedar"

    def __init__(
        self,
        *,
        policies: cedarpy.PolicySet,
        owners: Sequence[str],
        schema: cedarpy.Schema,
        actions: Mapping[str, ToolAction],
    ):
        self._policies = policies
        self._owners = {f"policy{position}": owner for position, owner in enumerate(owners)}
        self._schema = schema
        self._actions = SelectorMap(actions)
        self._resources: dict[tuple[str, str], cedarpy.Entities] = {}

    def check(self, case: Case) -> Report:
        """One finding for each policy that forbids, or one that says that none permits."""
        tool, server = normalise_name(case.tool), normalise_name(case.server or "")
        action = self._actions.find(case.server, case.tool)
        context = _context(case, tool, server)
        requests = []
        if action is not None:
            if action.input is not None and not holds_at_most(case.arguments, MAX_SHOWN):
                message = "the arguments hold more than policies can be evaluated on"
                return _refusal("argument-size", Reason.POLICY_DENIED, message)
            try:
                shown = context if action.input is None else {**context, "input": project(action.input, case.arguments)}
            except TypeMismatch as mismatch:
                place = "".join(f"/{escape(str(part))}" for part in mismatch.place)
                message = "the argument has another type than the policies were written for"
                return _refusal("argument-type", Reason.SCHEMA_INVALID, message, path=place)
            requests.append(_request(case.agent, action.id, server, tool, shown))
        # What names a tool restricts it on every server, and permits it only where it is registered.
        if action is None or case.entry is None or not case.entry.registered:
            requests.append(_request(case.agent, CALL, server, tool, context))
        entities = self._entities(server, tool)
        for result in cedarpy.is_authorized_batch(requests, self._policies, entities):
            diagnostics = result.diagnostics
            if diagnostics.errors or result.decision is cedarpy.Decision.NoDecision:
                message = "a policy could not be evaluated on this call"
                return _refusal("policy-error", Reason.UNAVAILABLE, message)
            if not result.allowed:
                return self._denied(diagnostics.reasons)
        return _QUIET

    def _denied(self, policies: Sequence[str]) -> Report:
        names = sorted({self._owners.get(policy, "cedar") for policy in policies})
        if not names:
            return _refusal("no-permit", Reason.POLICY_DENIED, "no policy permits the call")
        return _refusal(names[0], Reason.POLICY_DENIED, "a policy forbids the call", *names[1:])

    def _entities(self, server: str, tool: str) -> cedarpy.Entities:
        """The tool and its server, with the hierarchy of actions; parsed once for each tool."""
        found = self._resources.get((server, tool))
        if found is None:
            parents = [{"type": "Server", "id": server}] if server else []
            uid = {"type": "Tool", "id": _resource(server, tool)}
            document = orjson.dumps([{"uid": uid, "attrs": {}, "parents": parents}]).decode()
            found = cedarpy.Entities.from_json_str(document, self._schema)
            if len(self._resources) >= _REMEMBERED:
                self._resources.clear()
            self._resources[(server, tool)] = found
        return found


def _context(case: Case, tool: str, server: str) -> dict[str, Any]:
    seconds = case.now // 1_000_000
    entry = case.entry
    return {
        "tool": tool,
        "server": server,
        "session": case.session,
        "category": "" if entry is None else entry.category,
        "risk": int(case.tier),
        "irreversible": case.irreversible,
        "registered": entry is not None and entry.registered,
        "effects": list(case.effects),
        "roles": list(case.principal.roles),
        "time": seconds,
        "hour": seconds // 3_600 % 24,
        "weekday": (seconds // 86_400 + 3) % 7,  # the epoch began on a Thursday
    }


def _request(agent: str, action: str, server: str, tool: str, context: dict[str, Any]) -> dict[str, Any]:
    return {
        "principal": {"type": "Agent", "id": agent},
        "action": {"type": "Action", "id": action},
        "resource": {"type": "Tool", "id": _resource(server, tool)},
        "context": orjson.dumps(context).decode(),
    }


def _resource(server: str, tool: str) -> str:
    return f"{server}/{tool}" if server else tool


def _refusal(rule: str, reason: Reason, message: str, *more: str, path: str = "") -> Report:
    return Report(
        guard="cedar",
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE if reason is Reason.UNAVAILABLE else Verdict.VIOLATION,
        reason=reason,
        findings=tuple(
            Finding(
                guard="cedar",
                rule=name,
                category="policy",
                severity=Risk.MEDIUM,
                outcome=Outcome.BLOCK,
                path=path,
                message=message,
            )
            for name in (rule, *more)
        ),
    )
