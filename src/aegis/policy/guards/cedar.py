"""The cedar guard: attribute policies in Cedar, validated against a schema before the first call.

A call is one request. Principal: `Agent::"NAME"`. Resource: `Tool::"TOOL"` or
`Tool::"SERVER/TOOL"`, which is in `Server::"SERVER"`. Action: `Action::"SELECTOR"` for a tool that is
registered without `*`, which is in `Action::"call"`; `Action::"call"` itself for any other. Context:
`tool server category` (text), `session` (a record, see `policy.session`; not there without a session), `risk` (0 to 3),
`irreversible registered` (truth values),
`effects roles` (sets of text; `effects` holds `write` as well as what refines it, `write startup` and
`write startup one`), `time` (seconds since the epoch), `hour` (0 to 23) and `weekday` (0 is Monday), both UTC; and for
registered tools with a schema `input`, the arguments that it declares.

As in Cedar, what nothing permits is denied. Any error of evaluation refuses, but that of a policy which reads what the
session could not fill: that is missing evidence. What a `forbid` demands is its configured policy's outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import cedarpy
import orjson
from msgspec import Struct, structs

from aegis.core.combine import awaited
from aegis.core.finding import Finding, Report
from aegis.core.json import escape
from aegis.core.names import SelectorMap, normalise_name
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.patterns import Lazy
from aegis.policy.guards.base import Case, holds_at_most
from aegis.policy.session import FIELDS, MISSING, session_record

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
_TYPES: Final[Mapping[str, CedarType]] = {
    "text": {"type": "String"},
    "truth": {"type": "Boolean"},
    "number": {"type": "Long"},
    "set": {"type": "Set", "element": {"type": "String"}},
}
TRUST: Final = "trust"  # 0 to 100, of the agent; only a `forbid` may read it
CONTEXT: Final[CedarType] = {
    "tool": {"type": "String"},
    "server": {"type": "String"},
    "session": {"type": "Record", "attributes": {name: _TYPES[kind] for name, kind in FIELDS.items()}},
    "category": {"type": "String"},
    "risk": {"type": "Long"},
    "irreversible": {"type": "Boolean"},
    "registered": {"type": "Boolean"},
    "effects": {"type": "Set", "element": {"type": "String"}},
    "roles": {"type": "Set", "element": {"type": "String"}},
    "agent": {"type": "Record", "attributes": {TRUST: {"type": "Long"}}},
    "time": {"type": "Long"},
    "hour": {"type": "Long"},
    "weekday": {"type": "Long"},
}

_QUIET: Final = Report(guard="cedar")
# What Cedar says of a policy that reads what is not there; any other text is an error like every other.
_ABSENT: Final = Lazy(r"policy `([^`]+)`: record does not have the attribute `(session|drift)`")


class ToolAction(Struct, frozen=True, kw_only=True):
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


class CedarPolicy(Struct, frozen=True, kw_only=True):
    """One parsed policy: whose it is, what it demands where it forbids, and which fields of the session it reads.

    `trusts` says that it reads the trust in the agent.
    """

    owner: str
    permits: bool
    outcome: Outcome = Outcome.BLOCK
    defers: bool = False
    reads: tuple[str, ...] = ()
    trusts: bool = False


class _Verdicts(Struct, kw_only=True):
    """What the policies said of one call so far."""

    holding: dict[str, CedarPolicy]
    missing: dict[str, None]


class CedarGuard:
    """Refuses what the policies do not permit, and what they cannot be evaluated on.

    `policies` are those that permit or block, `holding` those whose `forbid` holds a call, each by the id that `known`
    says more about; `actions` is the action of each registered tool.
    """

    name = "cedar"

    def __init__(
        self,
        *,
        policies: cedarpy.PolicySet,
        known: Mapping[str, CedarPolicy],
        schema: cedarpy.Schema,
        actions: Mapping[str, ToolAction],
        holding: cedarpy.PolicySet | None = None,
    ):
        self._policies = policies
        self._holding = holding
        self._known = known
        self.session_reads = frozenset(name for one in known.values() for name in one.reads)
        self.reads_trust = any(one.trusts for one in known.values())
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
        found = _Verdicts(holding={}, missing={})
        for result in cedarpy.is_authorized_batch(requests, self._policies, entities):
            reasons = result.diagnostics.reasons
            absent = self._absent(result.diagnostics.errors, context)
            if absent is None or result.decision is cedarpy.Decision.NoDecision:
                return _failed()
            if not result.allowed and reasons:
                names = sorted({self._known[policy].owner for policy in reasons})
                return _refusal(names[0], Reason.POLICY_DENIED, "a policy forbids the call", *names[1:])
            # A `permit` that could not be evaluated matters where no other one holds.
            lacking = [one for one in absent if not (result.allowed and one.permits)]
            if not result.allowed and not lacking:
                return _refusal("no-permit", Reason.POLICY_DENIED, "no policy permits the call")
            found.missing.update(dict.fromkeys(_names_of(lacking, context)))
        if self._holding is not None:
            for result in cedarpy.is_authorized_batch(requests, self._holding, entities):
                absent = self._absent(result.diagnostics.errors, context)
                if absent is None or result.decision is cedarpy.Decision.NoDecision:
                    return _failed()
                found.holding.update({policy: self._known[policy] for policy in result.diagnostics.reasons})
                found.missing.update(dict.fromkeys(_names_of(absent, context)))
        return _held(found) if found.holding or found.missing else _QUIET

    def _absent(self, errors: Sequence[str], context: Mapping[str, Any]) -> list[CedarPolicy] | None:
        """The policies that read what the session could not fill; `None` where anything else went wrong."""
        found: list[CedarPolicy] = []
        for error in errors:
            match = _ABSENT.search(error)
            policy = None if match is None else self._known.get(match[1])
            if policy is None or not _lacks(policy, context):
                return None
            found.append(policy)
        return found

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
    entry, session = case.entry, session_record(case.context)
    shown = {
        "tool": tool,
        "server": server,
        "category": "" if entry is None else entry.category,
        "risk": int(case.tier),
        "irreversible": case.irreversible,
        "registered": entry is not None and entry.registered,
        "effects": [*case.effects, *_refined(case)],
        "roles": list(case.principal.roles),
        "agent": {TRUST: case.trust},
        "time": seconds,
        "hour": seconds // 3_600 % 24,
        "weekday": (seconds // 86_400 + 3) % 7,  # the epoch began on a Thursday
    }
    return shown if session is None else {**shown, "session": session}


def _lacks(policy: CedarPolicy, context: Mapping[str, Any]) -> list[str]:
    """The fields that a policy reads and that are not shown; all of them where there is no session."""
    shown = context.get("session", {})
    return [name for name in policy.reads if name not in shown]


def _names_of(policies: Sequence[CedarPolicy], context: Mapping[str, Any]) -> list[str]:
    """The names of missing evidence of policies that could not be evaluated."""
    return [f"{MISSING}{name}" for policy in policies for name in _lacks(policy, context)]


def _held(found: _Verdicts) -> Report:
    """The report on a call that policies hold, or of which they miss something."""
    holding = found.holding.values()
    report = Report(guard="cedar", missing=tuple(found.missing))
    if not holding:
        return report
    asks = [one for one in holding if not one.defers]
    words = (awaited(f"{MISSING}{name}") for one in holding if one.defers for name in one.reads)
    waits = tuple(dict.fromkeys(words)) or tuple(f"status:{one.owner}" for one in holding)
    return structs.replace(
        report,
        outcome=Outcome.REQUIRE_APPROVAL,
        verdict=Verdict.COMPLIANT if asks else Verdict.INSUFFICIENT_EVIDENCE,
        reason=Reason.APPROVAL_REQUIRED if asks else Reason.DEFERRED,
        awaits=() if asks else waits,
        findings=tuple(
            _finding(name, "a policy holds the call", outcome=Outcome.REQUIRE_APPROVAL)
            for name in sorted({one.owner for one in holding})
        ),
    )


def _failed() -> Report:
    return _refusal("policy-error", Reason.UNAVAILABLE, "a policy could not be evaluated on this call")


def _refined(case: Case) -> list[str]:
    """What the call does to which resource, with the scope and without it: `delete backup`, `delete backup all`."""
    return list(dict.fromkeys(word for effect in case.facts.resource_effects for word in effect.words))


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
        findings=tuple(_finding(name, message, outcome=Outcome.BLOCK, path=path) for name in (rule, *more)),
    )


def _finding(rule: str, message: str, *, outcome: Outcome, path: str = "") -> Finding:
    return Finding(
        guard="cedar",
        rule=rule,
        category="policy",
        severity=Risk.MEDIUM,
        outcome=outcome,
        path=path,
        message=message,
    )
