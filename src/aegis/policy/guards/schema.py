"""The schema guard: JSON Schemas of registered tools, and policies that are JSON Schemas.

Schemas are compiled once, with linear-time patterns, and never fetch anything. Findings name the
place and the keyword, never the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from aegis.core.combine import awaited
from aegis.core.finding import Finding, Report
from aegis.core.json import escape
from aegis.core.names import Selector, SelectorMap
from aegis.core.outcome import Effect, Outcome, Reason, Risk, Verdict
from aegis.errors import ConfigError, Problem
from aegis.policy.guards.base import Case, holds_at_most
from aegis.policy.session import MISSING, SessionSelector, session_record

if TYPE_CHECKING:
    import jsonschema_rs

# The validator explains every value before it gives the first explanation; half a million numbers in a
# `oneOf` took 18 seconds. Larger arguments are refused without a place.
MAX_EXPLAINED: Final = 500
MAX_ERRORS: Final = 5  # findings of one schema: a hostile call must not write a long report
_REMEMBERED: Final = 1_024  # names whose schemas are looked up once: bounds memory against made-up names

_QUIET: Final = Report(guard="schema")


def compile_schema(schema: dict[str, Any], *, known_formats_only: bool) -> jsonschema_rs.Validator:
    """A validator of `schema`: formats checked, patterns linear, nothing fetched.

    Raises `ConfigError` whose problem points into the schema.
    """
    import jsonschema_rs  # loading it takes longer than a hook may: only where a schema is declared

    try:
        return jsonschema_rs.validator_for(
            schema,
            validate_formats=True,
            ignore_unknown_formats=not known_formats_only,
            pattern_options=jsonschema_rs.RegexOptions(),
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        place = "".join(f"/{escape(str(part))}" for part in error.instance_path)
        keyword = error.instance_path[-1] if error.instance_path else ""
        if keyword == "pattern":
            message, hint = "the pattern does not compile", "patterns have no look-around and no back-references"
        else:
            message, hint = "not a valid JSON Schema: " + error.message.partition("\n")[0], ""
        raise ConfigError((Problem(message=message, pointer=place, hint=hint),)) from error
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise ConfigError((Problem(message=f"not a valid JSON Schema: {error}"),)) from error


class SchemaPolicy(Struct, frozen=True, kw_only=True):
    """One schema and the calls that it is about; every member that is given must hold.

    With `deny` the schema describes what must not be. `outcome` is what a call that breaks the
    policy gets; with `defers` it is held until a new decision would not hold it. `trust_below` narrows it to agents
    in whom the trust is less.
    """

    name: str
    validator: jsonschema_rs.Validator
    tools: tuple[Selector, ...] = ()
    category: str = ""
    effect: Effect | None = None
    deny: bool = False
    outcome: Outcome = Outcome.BLOCK
    defers: bool = False
    session: SessionSelector | None = None
    trust_below: int = 0


class SchemaGuard:
    """Refuses arguments that break the schema of their tool, or a policy that selects them."""

    name = "schema"

    def __init__(self, tools: SelectorMap[jsonschema_rs.Validator], policies: Sequence[SchemaPolicy] = ()):
        self._tools = tools
        self._policies = tuple(policies)
        self.session_reads = frozenset(
            name for one in policies if one.session is not None for name in one.session.wanted
        )
        self.reads_trust = any(one.trust_below for one in policies)
        self.idle = tools.is_empty and not self._policies
        self._selected: dict[tuple[str | None, str], tuple[SchemaPolicy, ...]] = {}

    def check(self, case: Case) -> Report:
        """One finding for each broken keyword, a few at most for each schema."""
        name = (case.server, case.tool)
        policies = self._selected.get(name)
        if policies is None:
            policies = self._select(case)
        if not policies:
            return _QUIET
        outcome, reason = Outcome.ALLOW, Reason.NONE
        findings: list[Finding] = []
        missing: list[str] = []
        awaits: list[str] = []
        for policy in policies:
            if policy.effect is not None and policy.effect not in case.effects:
                continue
            if policy.trust_below and case.trust >= policy.trust_below:
                continue
            if policy.validator.is_valid(case.arguments) is not policy.deny:
                continue
            if policy.session is not None:
                record = session_record(case.context)
                lacking = policy.session.missing(record)
                if record is None or lacking:
                    missing.extend(lacking)
                    continue
                if not policy.session.matches(record):
                    continue
            found = _findings(policy, case.arguments)
            findings.extend(found)
            if policy.defers:
                awaits.extend(_waits(policy, found))
            asked = _reason(policy)
            # Of a policy that asks a person and one that waits, the person is named.
            if policy.outcome > outcome or (policy.outcome == outcome and reason is Reason.DEFERRED):
                outcome, reason = policy.outcome, asked
        if not findings and not missing:
            return _QUIET
        return Report(
            guard=self.name,
            outcome=outcome,
            verdict=_VERDICTS.get(reason, Verdict.VIOLATION),
            reason=reason,
            findings=tuple(findings),
            missing=tuple(dict.fromkeys(missing)),
            awaits=tuple(dict.fromkeys(awaits)) if reason is Reason.DEFERRED else (),
        )

    def _select(self, case: Case) -> tuple[SchemaPolicy, ...]:
        """What the name and the registration of a tool decide about it, remembered."""
        own = self._tools.find(case.server, case.tool)
        category = "" if case.entry is None else case.entry.category
        selected = [
            policy
            for policy in self._policies
            if (not policy.tools or any(selector.matches(case.server, case.tool) for selector in policy.tools))
            and (not policy.category or policy.category == category)
        ]
        if own is not None:
            selected.insert(0, SchemaPolicy(name="tool-schema", validator=own))
        if len(self._selected) >= _REMEMBERED:
            self._selected.clear()
        self._selected[(case.server, case.tool)] = tuple(selected)
        return tuple(selected)


_VERDICTS: Final = {
    Reason.NONE: Verdict.COMPLIANT,
    Reason.APPROVAL_REQUIRED: Verdict.COMPLIANT,
    Reason.DEFERRED: Verdict.INSUFFICIENT_EVIDENCE,
}


def _waits(policy: SchemaPolicy, found: Sequence[Finding]) -> list[str]:
    """What a call waits for that a policy defers: what the policy reads of the session, else other arguments."""
    if policy.session is not None:
        return [awaited(f"{MISSING}{name}") for name in policy.session.wanted]
    return [awaited(finding.path) for finding in found]


def _reason(policy: SchemaPolicy) -> Reason:
    if policy.defers:
        return Reason.DEFERRED
    if policy.outcome is Outcome.REQUIRE_APPROVAL:
        return Reason.APPROVAL_REQUIRED
    return Reason.POLICY_DENIED if policy.deny else Reason.SCHEMA_INVALID


def _findings(policy: SchemaPolicy, arguments: dict[str, Any]) -> list[Finding]:
    if policy.deny:
        return [_finding(policy, "", "the arguments are what the policy denies")]
    if not holds_at_most(arguments, MAX_EXPLAINED):
        return [_finding(policy, "", "the arguments do not satisfy the schema")]
    return [
        _finding(
            policy,
            "".join(f"/{escape(str(part))}" for part in error.instance_path),
            f"the argument does not satisfy `{error.kind.name}`",
        )
        for error in islice(policy.validator.iter_errors(arguments), MAX_ERRORS)
    ]


def _finding(policy: SchemaPolicy, path: str, message: str) -> Finding:
    return Finding(
        guard="schema",
        rule=policy.name,
        category="policy",
        severity=Risk.MEDIUM,
        outcome=policy.outcome,
        path=path,
        message=message,
    )
