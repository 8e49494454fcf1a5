"""Running a policy: facts, guards in order, one decision; synchronous, and bounded by the input caps.

What runs was looked at as it runs: a patched call or result is analysed again until no patch is left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import is_
from time import perf_counter_ns
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from msgspec import structs

from aegis.config.compile_reviews import Previews
from aegis.config.config import Source
from aegis.core.approval import ApprovalPolicy, ApprovalRules
from aegis.core.behaviour import BehaviourRules
from aegis.core.canonical import canonical
from aegis.core.combine import Combined, combine
from aegis.core.decision import GuardTime
from aegis.core.finding import Report
from aegis.core.json import parse
from aegis.core.judging import JudgeRules
from aegis.core.mission import stricter
from aegis.core.outcome import Effect, EvidencePolicy, Outcome
from aegis.core.principal import Principal
from aegis.detect import extract, gather
from aegis.detect.facts import Facts, FactSubject, ReadLimits, Texts
from aegis.detect.rules import Scanner
from aegis.detect.shell.unquote import VARIABLES, filled, find_unresolved
from aegis.detect.shell.words import prints_files
from aegis.detect.touch.touch import Touched, touch
from aegis.policy.dataflow.declare import ToolFlow
from aegis.policy.dataflow.reading import read_result
from aegis.policy.guards.base import Case, Guard, ResultCase, ResultGuard, effects_of, is_idle
from aegis.policy.guards.budget import LEAVING, cost_of
from aegis.policy.guards.dataflow import DataflowRules
from aegis.policy.guards.rate import RateGuard, Windows
from aegis.policy.mission import MissionView
from aegis.policy.model import (
    Evaluation,
    Incoming,
    IncomingResult,
    MissionRules,
    ResultEvaluation,
    Route,
    Routes,
    failed,
    observed,
    settle,
)

C = TypeVar("C", Case, ResultCase)

# Guards that count: asked once a call and before every other one, however often the call is analysed.
COUNTING: Final = frozenset({"rate"})
_ALLOW: Final = Outcome.ALLOW
_SANITIZE: Final = Outcome.SANITIZE
_STOPS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


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
        dataflow: DataflowRules | None = None,
        source: Source | None = None,
        behaviour: BehaviourRules | None = None,
    ):
        self.digest = digest
        self.source = source
        self.evidence = evidence
        self.limits = limits
        self.scanner = scanner
        self.windows = windows
        self.missions = missions or MissionRules()
        self.dataflow = dataflow or DataflowRules()
        self.previews = previews or Previews()
        self.judges = judges or JudgeRules()
        self.behaviour = behaviour or BehaviourRules()
        self.approval_rules = approval_rules or ApprovalRules()
        self._policy_approvals = policy_approvals or {}
        self.settings = {"mode": mode, "insufficient_evidence": evidence}
        under = tuple((guard, False) for guard in self.missions.guards)
        result_under = tuple((guard, False) for guard in self.missions.result_guards)
        # Those that count keep their places among the others, and are asked apart.
        counting = [(guard, guard.check, seen) for guard, seen in guards if guard.name in COUNTING]
        self._counting = _asked(counting)
        self.counts = bool(self._counting.checks)  # whether a guard counts calls, before anything of them is read
        self._asked = _asked([(guard, guard.check, seen) for guard, seen in guards], but=COUNTING)
        self._mission_asked = _asked([(guard, guard.check, seen) for guard, seen in (*guards, *under)], but=COUNTING)
        flow = self.dataflow.guards
        self._session_asked = _asked([(one, one.check, seen) for one, seen in (*guards, *flow)], but=COUNTING)
        all_of = (*guards, *under, *flow)
        self._mission_session_asked = _asked([(one, one.check, seen) for one, seen in all_of], but=COUNTING)
        self._result_asked = _asked([(guard, guard.check_result, seen) for guard, seen in result_guards])
        self._mission_result_asked = _asked(
            [(guard, guard.check_result, seen) for guard, seen in (*result_guards, *result_under)]
        )
        self._rates = tuple(guard for guard, seen in guards if isinstance(guard, RateGuard) and not seen)
        self._routes = routes
        self._quiet: dict[int, tuple[tuple[Report, ...], Combined]] = {}

    def flow(self, server: str | None, tool: str) -> ToolFlow:
        """What is declared of a tool's data flow."""
        return self._routes[server, tool].flow

    def approval_for(self, server: str | None, tool: str, held_by: Iterable[str] = ()) -> ApprovalPolicy:
        """Who releases a call of this tool that the policies `held_by` held, and how long it waits."""
        approval = self._routes[server, tool].approval
        for name in held_by:
            own = self._policy_approvals.get(name)
            if own is not None:
                approval = approval.stricter(own)
        return approval

    def effects(self, server: str | None, tool: str, arguments: dict[str, Any]) -> frozenset[Effect]:
        """What such a call would do, as its guards are told; empty where nothing is known of it."""
        return effects_of(self._routes[server, tool].entry, gather(self.subject(server, tool, arguments)))

    def subject(
        self, server: str | None, tool: str, arguments: dict[str, Any], incoming: Incoming | None = None
    ) -> FactSubject:
        """Such a call as its facts are computed from."""
        route = self._routes[server, tool]
        return FactSubject(
            tool=tool,
            server=server,
            arguments=arguments if VARIABLES.isdisjoint(arguments) else filled(arguments),
            limits=self.limits,
            schema=route.schema,
            roles=route.roles_of(arguments) if route.hosts else route.roles,
            unresolved=() if incoming is None else incoming.unresolved,
            files=None if incoming is None else incoming.files,
        )

    def prints_files(self, server: str | None, tool: str, arguments: Callable[[], dict[str, Any]]) -> bool:
        """Whether a call gives files alone, as a coding agent's shell or reader may; other tools are not asked."""
        if (route := self._routes[server, tool]).may_read_files:
            return route.reads_files(arguments())
        return route.runs_commands and prints_files(gather(self.subject(server, tool, arguments())).ran)

    def evaluate(self, incoming: Incoming, data: bytes | None = None) -> Evaluation:
        """What this policy makes of a call: facts, guards in order, one decision, patches carried out.

        `data` are the canonical arguments where `incoming.arguments` holds none; else these must be held by nobody
        else.
        """
        # (1) The guards that count, before anything of the arguments is read.
        if incoming.counted is None and incoming.charge and self.counts:
            incoming = self.counted(incoming)
        if incoming.counted:
            refused = self.refused(incoming)
            if refused is not None:
                return refused
        arguments = incoming.arguments if data is None else parse(data)
        route, mission = self._routes[incoming.server, incoming.tool], incoming.mission
        asked, evidence = self._asked, self.evidence
        if mission is not None:
            asked, evidence = self._mission_asked, stricter(evidence, mission.evidence)
        elif self.missions.required:
            asked = self._mission_asked
        if incoming.context is not None and self.dataflow.asks(incoming.context):
            asked = self._session_asked if asked is self._asked else self._mission_session_asked
        # (2) Facts, and one report of each guard.
        times = [0] * len(asked.names)
        case, reports = self._look(incoming, route, arguments, asked, times)
        # (3) One decision; the same quiet reports come to the same.
        last, combined = self._quiet.get(len(reports), _NEVER)
        if len(last) != len(reports) or not all(map(is_, last, reports)):
            combined = combine(reports, asked.names, evidence)
            if combined.outcome is _ALLOW and not combined.findings and not combined.missing:
                self._quiet[len(reports)] = (combined.reports, combined)
        # (4) What is patched is looked at again, until no patch is left.
        canonical_arguments = None
        if combined.patches:
            case, combined, canonical_arguments = self._settled(incoming, route, case, combined, asked, evidence, times)
        approval, held_by = route.approval, _NO_NAMES
        if self._policy_approvals and combined.outcome is Outcome.REQUIRE_APPROVAL:
            held_by = self._held_by(combined)
            approval = self.approval_for(incoming.server, incoming.tool, held_by)
        return Evaluation(
            combined=combined,
            arguments=case.arguments,
            canonical=canonical_arguments,
            tier=case.tier,
            irreversible=case.irreversible,
            effects=case.effects,
            times=_times(combined.reports, times),
            entry=route.entry,
            approval=approval,
            held_by=held_by,
            cost=case.cost,
            roles={} if mission is None else route.roles,
            runs=case.facts.runs,
            written=case.facts.written,
        )

    def counted(self, incoming: Incoming) -> Incoming:
        """The call with the word of the guards that count: asked here and once, and before its arguments are read."""
        if incoming.counted is not None or not incoming.charge or not self.counts:
            return incoming
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
            effects=_NO_FACTS.effects,
            now=incoming.now,
            size=incoming.size,
        )
        reports = _ask(self._counting, case, [0] * len(self._counting.names), None)
        return structs.replace(incoming, counted={report.guard: report for report in reports})

    def wait_for_result(self, principal: Principal, now: int, size: int) -> int:
        """The seconds until a result of `size` bytes is taken, or 0 where it is, and counted."""
        return max((rate.charge_result(principal.agent or principal.id, now, size) for rate in self._rates), default=0)

    def refused(self, incoming: Incoming) -> Evaluation | None:
        """The refusal of a call that a guard that counts blocks; nothing of its arguments was read."""
        if not incoming.counted:
            return None
        blocking = [report for report in incoming.counted.values() if report.outcome is Outcome.BLOCK]
        if not blocking:
            return None
        entry = self._routes[incoming.server, incoming.tool].entry
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

    def evaluate_result(self, incoming: IncomingResult, data: bytes | None = None) -> ResultEvaluation:
        """What this policy makes of a tool's result: `data`, canonical, or `incoming.result`, held by nobody else."""
        route = self._routes[incoming.server, incoming.tool]
        asked = self._mission_result_asked
        if incoming.mission is None and not incoming.must_sign and incoming.provenance == "unsigned":
            asked = self._result_asked
        evidence = self.evidence if incoming.mission is None else stricter(self.evidence, incoming.mission.evidence)
        times = [0] * len(asked.names)

        def look(result: Any) -> Combined:
            reports = self._look_at_result(incoming, route, result, asked, times)
            return combine(reports, asked.names, evidence)

        result, canonical_result = incoming.result if data is None else parse(data), None
        read = None if incoming.memory is None else read_result(result, incoming.memory, route.flow)
        combined = look(result)
        if combined.patches:
            combined, result, canonical_result = settle(result, combined, look, asked.names, evidence)
        told = _times(combined.reports, times)
        return ResultEvaluation(combined=combined, result=result, canonical=canonical_result, times=told, reading=read)

    def _held_by(self, combined: Combined) -> tuple[str, ...]:
        """The policies with approvers of their own that ask for an approval of this call."""
        asking = {
            finding.rule
            for finding in combined.findings
            if finding.guard == "schema" and finding.outcome is Outcome.REQUIRE_APPROVAL
        }
        return tuple(name for name in self._policy_approvals if name in asking)

    def _look(
        self, incoming: Incoming, route: Route, arguments: dict[str, Any], asked: _Asked[Case], times: list[int]
    ) -> tuple[Case, list[Report]]:
        """One round over a call: its facts, and one report of every guard."""
        broken: BaseException | None = None
        subject = self.subject(incoming.server, incoming.tool, arguments, incoming)
        try:
            facts = gather(subject)
            texts, together = facts.texts, facts.together
            # A placeholder or a reference has one of these signs; most calls have none in any string.
            if together is None or texts.limits or "{" in together or "<" in together or "$" in together:
                pending = find_unresolved(subject.arguments, subject.roles, subject.tool)
                if pending:
                    unresolved = tuple(dict.fromkeys((*incoming.unresolved, *pending)))
                    facts = structs.replace(facts, texts=structs.replace(texts, unresolved=unresolved))
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
            context=incoming.context,
            trust=incoming.trust,
            flow=route.flow,
            dependence=incoming.dependence,
        )
        reports = _ask(asked, case, times, broken)
        if incoming.counted:
            for position, name in enumerate(asked.names):
                reports[position] = incoming.counted.get(name, reports[position])
        return case, reports

    def _settled(
        self,
        incoming: Incoming,
        route: Route,
        case: Case,
        combined: Combined,
        asked: _Asked[Case],
        evidence: EvidencePolicy,
        times: list[int],
    ) -> tuple[Case, Combined, bytes | None]:
        """Carry out the patches of `combined`: the last case, with the worst of all rounds, and its canonical bytes."""
        tier, irreversible, effects, last = case.tier, case.irreversible, case.effects, case

        def again(patched: Any) -> Combined:
            nonlocal tier, irreversible, effects, last
            last, reports = self._look(incoming, route, patched, asked, times)
            tier, irreversible = max(tier, last.tier), irreversible or last.irreversible
            effects |= last.effects
            return combine(reports, asked.names, evidence)

        settled = settle(case.arguments, combined, again, asked.names, evidence)
        last = structs.replace(last, arguments=settled.value, tier=tier, irreversible=irreversible, effects=effects)
        return last, settled.combined, settled.canonical

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

    def _look_at_result(
        self, incoming: IncomingResult, route: Route, result: Any, asked: _Asked[ResultCase], times: list[int]
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
            workspace=incoming.workspace or any(tool.reads_workspace for tool in route.hosts),
        )
        return _ask(asked, case, times, broken)


class _Asked(NamedTuple, Generic[C]):
    """The guards of one kind of call in their order: names, what each says where it is silent, and who is asked.

    A guard is asked by its place, name and check; the last member says whether it is only observed. `idle` are those
    that nothing in the configuration lets speak: they are silent unless there are no facts.
    """

    names: tuple[str, ...]
    silent: tuple[Report, ...]
    checks: tuple[tuple[int, str, Callable[[C], Report], bool], ...]
    idle: tuple[tuple[int, str, bool], ...]


def _asked(
    guards: Sequence[tuple[Guard | ResultGuard, Callable[[C], Report], bool]], but: Container[str] = ()
) -> _Asked[C]:
    """The guards in their order; those named by `but` keep their places and are asked by somebody else."""
    placed = [(place, guard, check, seen) for place, (guard, check, seen) in enumerate(guards) if guard.name not in but]
    return _Asked(
        names=tuple(guard.name for guard, _, _ in guards),
        silent=tuple(Report(guard=guard.name) for guard, _, _ in guards),
        checks=tuple((place, guard.name, check, seen) for place, guard, check, seen in placed if not is_idle(guard)),
        idle=tuple((place, guard.name, seen) for place, guard, _, seen in placed if is_idle(guard)),
    )


def _ask(asked: _Asked[C], case: C, times: list[int], broken: BaseException | None) -> list[Report]:
    """One report of each guard; without facts every one refuses. What counts is filled in by who counted."""
    reports = list(asked.silent)
    if broken is not None:
        for place, name, seen in (*((place, name, seen) for place, name, _, seen in asked.checks), *asked.idle):
            reports[place] = observed(failed(name, broken)) if seen else failed(name, broken)
        return reports
    before = perf_counter_ns()
    for place, name, check, seen in asked.checks:
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
        reports[place] = observed(report) if seen else report
        after = perf_counter_ns()
        times[place] += after - before
        before = after
    return reports


def _times(reports: Sequence[Report], times: Sequence[int]) -> tuple[GuardTime, ...]:
    """What each guard demanded and how long it took."""
    found = [
        GuardTime(guard=report.guard, outcome=report.outcome, us=spent // 1_000)
        for report, spent in zip(reports, times, strict=True)
    ]
    return tuple(found)


_NO_NAMES: Final[tuple[str, ...]] = ()
_NO_FACTS: Final = Facts(texts=Texts())
_NEVER: Final[tuple[tuple[Report, ...], Combined]] = ((), combine((), (), "fail-closed"))
