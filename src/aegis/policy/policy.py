"""Running a policy: facts, guards in order, one decision; synchronous, and bounded by the input caps.

What runs was looked at as it runs: a patched call or result is analysed again until no patch is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from time import perf_counter_ns
from typing import Any, Final, Literal, TypeVar

from msgspec import structs

from aegis.config.compile_previews import Previews
from aegis.config.config import Config
from aegis.core.approval import ApprovalPolicy, ApprovalRules
from aegis.core.canonical import canonical
from aegis.core.combine import Combined, combine
from aegis.core.decision import GuardTime
from aegis.core.finding import Report
from aegis.core.judging import JudgeRules
from aegis.core.mission import stricter
from aegis.core.outcome import Effect, EvidencePolicy, Outcome
from aegis.core.principal import Principal
from aegis.detect import extract, gather
from aegis.detect.facts import Facts, FactSubject, ReadLimits, Texts
from aegis.detect.rules import Scanner
from aegis.detect.shell.unquote import find_unresolved
from aegis.detect.touch.touch import Touched, touch
from aegis.policy.guards.base import Case, Guard, ResultCase, ResultGuard, effects_of
from aegis.policy.guards.budget import LEAVING, cost_of
from aegis.policy.guards.rate import RateGuard, Windows
from aegis.policy.mission import MissionView
from aegis.policy.model import Evaluation, Incoming, IncomingResult, MissionRules, ResultEvaluation
from aegis.policy.reports import failed, observed, settle
from aegis.policy.routes import Route, Routes

C = TypeVar("C", Case, ResultCase)
Check = tuple[str, Callable[[C], Report], bool]  # a guard's name, its check, and whether it is only observed

# Guards that count: asked once a call and before every other one, however often the call is analysed.
COUNTING: Final = frozenset({"rate"})
_USUAL_US: Final = 128  # microseconds a guard usually takes at most: answers up to it are made once
_USUAL_NS: Final = 1_000 * _USUAL_US
_ALLOW: Final = Outcome.ALLOW
_SANITIZE: Final = Outcome.SANITIZE
_STOPS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What a policy was compiled from, so that another process can compile the same; `key` is this compilation's."""

    key: int
    digest: str
    config: Config
    folders: tuple[str, ...]
    cache: str | None
    protected: tuple[str, ...]


class Policy:
    """A compiled configuration. `evaluate` and `evaluate_result` never raise on any input.

    `digest` names the meaning of the policy; `settings` are the members of the same name in a receipt.
    """

    def __init__(
        self,
        *,
        digest: str,
        guards: Sequence[tuple[Guard, bool]],
        result_guards: Sequence[tuple[ResultGuard, bool]],
        routes: Routes,
        limits: ReadLimits,
        evidence: EvidencePolicy,
        mode: Literal["enforce", "observe"],
        scanner: Scanner,
        windows: Windows,
        missions: MissionRules | None = None,
        previews: Previews | None = None,
        judges: JudgeRules | None = None,
        approval_rules: ApprovalRules | None = None,
        policy_approvals: Mapping[str, ApprovalPolicy] | None = None,
        source: Source | None = None,
    ):
        self.digest = digest
        self.source = source
        self.evidence = evidence
        self.limits = limits
        self.scanner = scanner
        self.windows = windows
        self.missions = missions or MissionRules()
        self.previews = previews or Previews()
        self.judges = judges or JudgeRules()
        self.approval_rules = approval_rules or ApprovalRules()
        self._policy_approvals = policy_approvals or {}
        self.settings = {"mode": mode, "insufficient_evidence": evidence}
        self._checks: tuple[Check[Case], ...] = tuple((guard.name, guard.check, seen) for guard, seen in guards)
        self._result_checks: tuple[Check[ResultCase], ...] = tuple(
            (guard.name, guard.check_result, seen) for guard, seen in result_guards
        )
        self._mission_checks = (
            *self._checks,
            *((guard.name, guard.check, False) for guard in self.missions.guards),
        )
        self._mission_result_checks = (
            *self._result_checks,
            *((guard.name, guard.check_result, False) for guard in self.missions.result_guards),
        )
        self._expected = tuple(name for name, _, _ in self._checks)
        self._mission_expected = tuple(name for name, _, _ in self._mission_checks)
        self._result_expected = tuple(name for name, _, _ in self._result_checks)
        self._mission_result_expected = tuple(name for name, _, _ in self._mission_result_checks)
        self._rates = tuple(guard for guard, seen in guards if isinstance(guard, RateGuard) and not seen)
        self._counting = tuple(check for check in self._checks if check[0] in COUNTING)
        self._uncharged = {name: Report(guard=name) for name in self._expected if name in COUNTING}
        self._routes = routes
        self._quiet: dict[int, tuple[tuple[Report, ...], Combined]] = {}
        usual = {
            name: [GuardTime(guard=name, outcome=Outcome.ALLOW, us=us) for us in range(_USUAL_US)]
            for name in {*self._mission_expected, *self._mission_result_expected}
        }
        self._usual = {
            names: tuple(usual[name] for name in names)
            for names in (self._expected, self._mission_expected, self._result_expected, self._mission_result_expected)
        }

    def approval_for(self, server: str | None, tool: str, held_by: Iterable[str] = ()) -> ApprovalPolicy:
        """Who releases a call of this tool that the policies `held_by` held, and how long it waits."""
        approval = self._routes.find(server, tool).approval
        for name in held_by:
            own = self._policy_approvals.get(name)
            if own is not None:
                approval = approval.stricter(own)
        return approval

    def effects(self, server: str | None, tool: str, arguments: dict[str, Any]) -> frozenset[Effect]:
        """What such a call would do, as its guards are told; empty where nothing is known of it."""
        return effects_of(self._routes.find(server, tool).entry, gather(self.subject(server, tool, arguments)))

    def subject(self, server: str | None, tool: str, arguments: dict[str, Any]) -> FactSubject:
        """Such a call as its facts are computed from."""
        route = self._routes.find(server, tool)
        return FactSubject(
            tool=tool, server=server, arguments=arguments, limits=self.limits, schema=route.schema, roles=route.roles
        )

    def evaluate(self, incoming: Incoming) -> Evaluation:
        """What this policy makes of a call; `incoming.arguments` must be held by nobody else."""
        incoming = self.counted(incoming)
        refused = self.refused(incoming)
        if refused is not None:
            return refused
        route = self._routes.find(incoming.server, incoming.tool)
        checks, expected, evidence = self._asked(incoming.mission)
        times = [0] * len(checks)
        counted = incoming.counted or {}
        case, reports = self._analyse(incoming, route, incoming.arguments, checks, counted, times)
        combined = self._combine(reports, expected, evidence)
        tier, irreversible, effects, cost = case.tier, case.irreversible, case.effects, case.cost
        facts = case.facts
        arguments, data = incoming.arguments, None
        if combined.patches:

            def again(patched: Any) -> Combined:
                nonlocal tier, irreversible, effects, cost, facts
                case, reports = self._analyse(incoming, route, patched, checks, counted, times)
                tier, irreversible = max(tier, case.tier), irreversible or case.irreversible
                effects |= case.effects
                cost, facts = case.cost, case.facts
                return combine(reports, expected, evidence)

            combined, arguments, data = settle(arguments, combined, again, expected, evidence)
        approval, held_by = route.approval, _NO_NAMES
        if self._policy_approvals and combined.outcome is Outcome.REQUIRE_APPROVAL:
            held_by = self._held_by(combined)
            approval = self.approval_for(incoming.server, incoming.tool, held_by)
        return Evaluation(
            combined=combined,
            arguments=arguments,
            canonical=data,
            tier=tier,
            irreversible=irreversible,
            effects=effects,
            times=self._times(expected, combined.reports, times),
            entry=route.entry,
            approval=approval,
            held_by=held_by,
            cost=cost,
            roles={} if incoming.mission is None else route.roles,
            runs=facts.runs,
            written=facts.written,
        )

    def counted(self, incoming: Incoming) -> Incoming:
        """The call with the word of the guards that count: asked here and once, and before its arguments are read."""
        if incoming.counted is not None:
            return incoming
        if not incoming.charge or not self._counting:
            return structs.replace(incoming, counted=self._uncharged)
        case = Case(
            tool=incoming.tool,
            server=incoming.server,
            arguments={},
            principal=incoming.principal,
            agent=incoming.agent,
            session=incoming.session,
            call_id=incoming.call_id,
            entry=None,
            facts=_NO_FACTS,
            tier=_NO_FACTS.tier,
            irreversible=False,
            effects=frozenset(),
            now=incoming.now,
            size=incoming.size,
        )
        reports = _ask(self._counting, case, _NONE, [0] * len(self._counting), None)
        return structs.replace(incoming, counted={report.guard: report for report in reports})

    def wait_for_result(self, principal: Principal, now: int, size: int) -> int:
        """The seconds until a result of `size` bytes is taken, or 0 where it is, and counted."""
        return max((rate.charge_result(principal.agent or principal.id, now, size) for rate in self._rates), default=0)

    def refused(self, incoming: Incoming) -> Evaluation | None:
        """The refusal of a call that a guard that counts blocks; nothing of its arguments was read."""
        blocking = [report for report in (incoming.counted or {}).values() if report.outcome is Outcome.BLOCK]
        if not blocking:
            return None
        entry = self._routes.find(incoming.server, incoming.tool).entry
        names = tuple(report.guard for report in blocking)
        return Evaluation(
            combined=combine(blocking, names, self.evidence),
            arguments={},
            canonical=None,
            tier=_NO_FACTS.tier if entry is None else entry.risk,
            irreversible=False,
            effects=frozenset() if entry is None or entry.effects is None else entry.effects,
            times=tuple(GuardTime(guard=name, outcome=Outcome.BLOCK, us=0) for name in names),
            entry=entry,
            unread=True,
        )

    def evaluate_result(self, incoming: IncomingResult) -> ResultEvaluation:
        """What this policy makes of a tool's result; `incoming.result` must be held by nobody else."""
        route = self._routes.find(incoming.server, incoming.tool)
        checks, expected = self._mission_result_checks, self._mission_result_expected
        if incoming.mission is None and not incoming.must_sign and incoming.provenance == "unsigned":
            checks, expected = self._result_checks, self._result_expected
        evidence = self.evidence if incoming.mission is None else stricter(self.evidence, incoming.mission.evidence)
        times = [0] * len(checks)

        def analyse(result: Any) -> Combined:
            reports = self._analyse_result(incoming, route, result, checks, times)
            return combine(reports, expected, evidence)

        result, data = incoming.result, None
        combined = analyse(result)
        if combined.patches:
            combined, result, data = settle(result, combined, analyse, expected, evidence)
        return ResultEvaluation(
            combined=combined, result=result, canonical=data, times=self._times(expected, combined.reports, times)
        )

    def _combine(self, reports: list[Report], expected: tuple[str, ...], evidence: EvidencePolicy) -> Combined:
        """`combine` over the call's guards; remembers what the same quiet reports came to."""
        last, combined = self._quiet.get(len(expected), _NEVER)
        if len(last) == len(reports) and all(map(is_, last, reports)):
            return combined
        combined = combine(reports, expected, evidence)
        if combined.outcome is Outcome.ALLOW and not combined.findings and not combined.missing:
            self._quiet[len(expected)] = (combined.reports, combined)
        return combined

    def _held_by(self, combined: Combined) -> tuple[str, ...]:
        """The policies with approvers of their own that ask for an approval of this call."""
        asking = {
            finding.rule
            for finding in combined.findings
            if finding.guard == "schema" and finding.outcome is Outcome.REQUIRE_APPROVAL
        }
        return tuple(name for name in self._policy_approvals if name in asking)

    def _times(
        self, expected: tuple[str, ...], reports: Sequence[Report], times: Sequence[int]
    ) -> tuple[GuardTime, ...]:
        """What each guard demanded and how long it took; the usual values are made once."""
        return tuple(
            [
                usual[spent // 1_000]
                if report.outcome is _ALLOW and spent < _USUAL_NS
                else GuardTime(guard=report.guard, outcome=report.outcome, us=spent // 1_000)
                for usual, report, spent in zip(self._usual[expected], reports, times, strict=True)
            ]
        )

    def _analyse(
        self,
        incoming: Incoming,
        route: Route,
        arguments: dict[str, Any],
        checks: Sequence[Check[Case]],
        kept: Mapping[str, Report],
        times: list[int],
    ) -> tuple[Case, list[Report]]:
        """One round over a call: its facts, and one report of every guard."""
        broken: BaseException | None = None
        try:
            pending = find_unresolved(arguments, route.roles)
            facts = gather(
                FactSubject(
                    tool=incoming.tool,
                    server=incoming.server,
                    arguments=arguments,
                    limits=self.limits,
                    schema=route.schema,
                    roles=route.roles,
                    unresolved=tuple(dict.fromkeys((*incoming.unresolved, *pending)))
                    if pending
                    else incoming.unresolved,
                    files=incoming.files,
                )
            )
        except BaseException as error:
            if isinstance(error, _STOPS):
                raise
            broken, facts = error, _NO_FACTS
        tier, irreversible, effects, entry = facts.tier, facts.irreversible, facts.effects, route.entry
        if entry is not None:
            tier = max(tier, entry.risk)
            irreversible = irreversible or entry.irreversible
            if entry.effects:
                effects = effects | entry.effects
        touched: Touched | None = None
        cost: dict[str, int] = {}
        if incoming.mission is not None and broken is None:
            try:
                effects = effects_of(entry, facts)
                touched, cost = self._of_mission(incoming, incoming.mission, arguments, facts, effects, irreversible)
            except BaseException as error:
                if isinstance(error, _STOPS):
                    raise
                broken = error
        case = Case(
            tool=incoming.tool,
            server=incoming.server,
            arguments=arguments,
            principal=incoming.principal,
            agent=incoming.agent,
            session=incoming.session,
            call_id=incoming.call_id,
            entry=entry,
            facts=facts,
            tier=tier,
            irreversible=irreversible,
            effects=effects,
            now=incoming.now,
            task=incoming.task,
            mission=incoming.mission,
            touched=touched,
            cost=cost,
            orphan=incoming.orphan,
            size=incoming.size,
        )
        return case, _ask(checks, case, kept, times, broken)

    def _asked(self, mission: MissionView | None) -> tuple[Sequence[Check[Case]], tuple[str, ...], EvidencePolicy]:
        """Which guards are asked about a call, and what answers for missing evidence."""
        if mission is None and not self.missions.required:
            return self._checks, self._expected, self.evidence
        evidence = self.evidence if mission is None else stricter(self.evidence, mission.evidence)
        return self._mission_checks, self._mission_expected, evidence

    def _of_mission(
        self,
        incoming: Incoming,
        mission: MissionView,
        arguments: dict[str, Any],
        facts: Facts,
        effects: frozenset[Effect],
        irreversible: bool,
    ) -> tuple[Touched, dict[str, int]]:
        """What a mission is asked about: the resources that the call touches, and what it costs."""
        sends = "external_send" in effects
        touched = touch(arguments, facts.texts.strings, sends=sends, base=mission.acting.scope.base)
        cost = cost_of(
            effects=effects,
            size=len(canonical(arguments)) if effects & LEAVING else 0,
            irreversible=irreversible,
            touched=touched,
            quote=self.missions.quotes.find(incoming.server, incoming.tool),
        )
        return touched, cost

    def _analyse_result(
        self,
        incoming: IncomingResult,
        route: Route,
        result: Any,
        checks: Sequence[Check[ResultCase]],
        times: list[int],
    ) -> list[Report]:
        """One round over a result."""
        broken: BaseException | None = None
        try:
            texts = extract(result, self.limits)
        except BaseException as error:
            if isinstance(error, _STOPS):
                raise
            broken, texts = error, _NO_FACTS.texts
        case = ResultCase(
            tool=incoming.tool,
            server=incoming.server,
            result=result,
            texts=texts,
            principal=incoming.principal,
            agent=incoming.agent,
            session=incoming.session,
            entry=route.entry,
            now=incoming.now,
            mission=incoming.mission,
            provenance=incoming.provenance,
            must_sign=incoming.must_sign,
        )
        return _ask(checks, case, _NONE, times, broken)


def _ask(
    checks: Sequence[Check[C]],
    case: C,
    kept: Mapping[str, Report],
    times: list[int],
    broken: BaseException | None,
) -> list[Report]:
    """One report of each guard. Without facts, or where it fails, a guard refuses; an observed one notes it."""
    reports: list[Report] = []
    before = perf_counter_ns()
    for position, (name, check, only_observed) in enumerate(checks):
        if name in kept:
            reports.append(kept[name])
            continue
        if broken is None:
            try:
                report = check(case)
                # A report that sanitises without a patch, or patches what it would allow, contradicts itself.
                if report.guard != name or report.outcome is (_ALLOW if report.patches else _SANITIZE):
                    report = failed(name)
            except BaseException as error:
                # Extensions written in Rust panic outside the tree of `Exception`.
                if isinstance(error, _STOPS):
                    raise
                report = failed(name, error)
        else:
            report = failed(name, broken)
        if only_observed:
            report = observed(report)
        reports.append(report)
        after = perf_counter_ns()
        times[position] += after - before
        before = after
    return reports


_NO_NAMES: Final[tuple[str, ...]] = ()
_NONE: Final[Mapping[str, Report]] = {}
_NO_FACTS: Final = Facts(texts=Texts())
_NEVER: Final[tuple[tuple[Report, ...], Combined]] = ((), combine((), (), "fail-closed"))
