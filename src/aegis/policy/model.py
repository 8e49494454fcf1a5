"""What a policy is made of, what goes into it, and what comes out: one call or one result, and its reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct, field, structs

from aegis.core.approval import ApprovalPolicy
from aegis.core.canonical import canonical
from aegis.core.combine import MAX_NAMED, Combined, combine, lack, silent
from aegis.core.decision import GuardTime
from aegis.core.extensions import is_brought
from aegis.core.finding import Finding, Report
from aegis.core.json import apply_patches, parse
from aegis.core.names import Selector, SelectorMap, glob_match, normalise_name
from aegis.core.outcome import Effect, EvidencePolicy, Outcome, Reason, Risk, Verdict
from aegis.core.principal import Principal
from aegis.core.text import TextRole
from aegis.detect.files import Files, Written
from aegis.errors import InvalidCall
from aegis.keys.jws import IssuerKey
from aegis.keys.references import is_reference
from aegis.policy.dataflow.declare import NOTHING, ToolFlow
from aegis.policy.dataflow.reading import ResultReading, SessionView
from aegis.policy.guards.base import Dependence, Guard, Provenance, ResultGuard, ToolEntry
from aegis.policy.mission import Cost, MissionView, Quote

# What a policy adds to what its guards say: reports of guards that failed or are only observed, and patches.
#
# A patched call or result is analysed again, until nothing is left to patch: what runs was looked at as it runs.
# The rounds count as one, in which nothing that any of them demanded or saw is lost.

PIPELINE: Final = "pipeline"
MAX_ROUNDS: Final = 4  # patches that still change something after so many rounds are fighting each other

Analyse = Callable[[Any], Combined]


class Settled(NamedTuple):
    """What came out: the value that was last looked at, and its canonical bytes where it was patched."""

    combined: Combined
    value: Any
    canonical: bytes | None


def failed(guard: str, error: BaseException | None = None) -> Report:
    """The refusing report of a guard that failed; names the type of the failure and no value."""
    what = type(error).__name__ if error is not None else "a report that is not its own"
    return structs.replace(
        silent(guard), findings=(_note(guard, "guard-failed", Outcome.BLOCK, f"the guard failed: `{what}`"),)
    )


def observed(report: Report) -> Report:
    """What an observed guard saw, demanding nothing; a note says what it would have demanded."""
    if report.outcome is Outcome.ALLOW and not report.findings and not report.missing:
        return Report(guard=report.guard)
    findings = [structs.replace(finding, outcome=Outcome.ALLOW) for finding in report.findings]
    if report.outcome is not Outcome.ALLOW:
        message = f"would have been `{report.outcome.word}` with reason `{report.reason.value}`"
        findings.append(_note(report.guard, "observed", Outcome.ALLOW, message))
    elif report.missing:
        findings.append(_note(report.guard, "observed", Outcome.ALLOW, "evidence was missing"))
    findings.extend(lack(report.guard, name, Outcome.ALLOW) for name in dict.fromkeys(report.missing[:MAX_NAMED]))
    return Report(guard=report.guard, findings=tuple(findings))


def settle(value: Any, first: Combined, analyse: Analyse, expected: Sequence[str], evidence: EvidencePolicy) -> Settled:
    """Carry out the patches of `first`, which analysed `value`, and everything that follows from them.

    Guarantees: an outcome other than `block` is what the guards say about exactly the value that is
    returned, joined with what they said before; the value is a fresh decode of `canonical`.
    """
    rounds = [first]
    patched, data = value, None
    while True:
        latest = rounds[-1]
        # (1) A block needs no patch, and shows the call as it was submitted.
        if latest.outcome is Outcome.BLOCK:
            return Settled(merged(rounds, expected, evidence), value, None)
        # (2) Nothing is left to patch.
        if not latest.patches:
            return Settled(merged(rounds, expected, evidence), patched, data)
        # (3) Patch, through the bytes that will be digested.
        try:
            after = canonical(apply_patches(patched, latest.patches))
            following = parse(after)
        except (LookupError, ValueError, TypeError, RecursionError, InvalidCall):
            together = merged(rounds, expected, evidence)
            return Settled(unsettled(together, "patch-invalid", "a patch does not fit the call"), value, None)
        # (4) Patches that change nothing are carried out; others are looked at again.
        if after == data:
            return Settled(merged(rounds, expected, evidence), patched, data)
        if len(rounds) > MAX_ROUNDS:
            together = merged(rounds, expected, evidence)
            return Settled(unsettled(together, "patch-endless", "the patches do not converge"), value, None)
        patched, data = following, after
        rounds.append(analyse(patched))


def merged(rounds: Sequence[Combined], expected: Sequence[str], evidence: EvidencePolicy) -> Combined:
    """Several rounds of analysis as one: nothing that any round demanded or saw is lost."""
    reports = [_merge([found.reports[position] for found in rounds]) for position in range(len(expected))]
    return combine(reports, expected, evidence)


def unsettled(combined: Combined, rule: str, message: str) -> Combined:
    """`combined`, made to block because its patches cannot be carried out."""
    finding = _note(PIPELINE, rule, Outcome.BLOCK, message)
    return structs.replace(
        combined,
        outcome=Outcome.BLOCK,
        verdict=max(combined.verdict, Verdict.INSUFFICIENT_EVIDENCE),
        reason=Reason.POLICY_DENIED,
        findings=(*combined.findings, finding),
        patches=(),
    )


def _merge(reports: Sequence[Report]) -> Report:
    strictest = max(reports, key=lambda report: report.outcome)
    return structs.replace(
        strictest,
        verdict=max(report.verdict for report in reports),
        risk=max(report.risk for report in reports),
        findings=tuple(dict.fromkeys(finding for report in reports for finding in report.findings)),
        patches=tuple(patch for report in reports for patch in report.patches),
        missing=tuple(dict.fromkeys(name for report in reports for name in report.missing)),
        awaits=tuple(dict.fromkeys(word for report in reports for word in report.awaits)),
    )


def _note(guard: str, rule: str, outcome: Outcome, message: str) -> Finding:
    return Finding(guard=guard, rule=rule, category="policy", severity=Risk.MEDIUM, outcome=outcome, message=message)


# What this version can enforce; naming anything else is an error, never silently ignored.

CALL_GUARDS: Final = ("rate", "registry", "schema", "content", "cedar")
# Asked about every call of a mission, whatever the lists say; they may be listed.
MISSION_GUARDS: Final = ("mission", "budget", "flow")
MISSION_RESULT_GUARDS: Final = ("postconditions",)
# Asked last, where `judges` has entries, whatever the lists say; it may be listed.
SLOW_GUARDS: Final = ("judge",)
ALWAYS: Final = ("protected", "evidence")  # asked about every call, whatever `pipeline.call` lists
RESULT_GUARDS: Final = ("content",)
NOTIFIERS: Final = ("webhook", "slack")
STORES: Final = ("sqlite:", "postgresql:", "postgres:", "memory:")

# Asked by what remembers, wherever it can be; each is set under `guards`, and no list orders them.
UNLISTED_GUARDS: Final = ("dataflow", "drift", "loops", "behaviour", "reasoning")


def check_guard(name: str, known: tuple[str, ...]) -> str:
    """`name`, where this version has that guard at this place; raises `ValueError` otherwise."""
    if name in known:
        return name
    if name in UNLISTED_GUARDS:
        raise ValueError(f"the guard `{name}` is not listed: `guards.{name}.mode` says whether it is asked")
    raise ValueError(f"there is no guard `{name}` here; guards are {', '.join(f'`{one}`' for one in known)}")


def check_store(url: str) -> str:
    """`url`, where this version has a store for it; raises `ValueError` otherwise.

    A password never stands in the configuration, which is shown to administrators and kept beside receipts.
    """
    if url.startswith(STORES):
        if urlsplit(url).password is not None:
            raise ValueError("a password does not belong here: give the whole URL as `${env:NAME}` or `file:PATH`")
        return url
    if is_reference(url):
        return url
    if outside_scheme(url):
        if urlsplit(url).password is not None:
            raise ValueError("a password does not belong here: give the whole URL as `${env:NAME}` or `file:PATH`")
        return url
    raise ValueError("a store is `sqlite:///FILE`, `postgresql://...`, `${env:NAME}`, `file:PATH` or `memory:`")


def outside_scheme(url: str) -> str:
    """Give the scheme of a store that an installed package brings, or nothing for every other store."""
    scheme, separator, _ = url.partition(":")
    own = url.startswith((*STORES, "${"))
    return scheme if separator and not own and is_brought("store", scheme) else ""


_REMEMBERED: Final = 4_096  # names looked up once: bounds memory against made-up names
DEFAULT_TIMEOUT: Final = 300  # seconds: a held call waits no longer


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """One entry of the registry with everything that belongs to it."""

    selector: str
    entry: ToolEntry
    schema: Mapping[str, Any] | None = None
    roles: Mapping[str, TextRole]
    approval: ApprovalPolicy
    flow: ToolFlow = NOTHING


class HostTool(Struct, frozen=True, kw_only=True):
    """A tool that a host brings: the names of its arguments, what they are for, and what its results are."""

    host: str
    arguments: frozenset[str]
    roles: Mapping[str, TextRole]
    reads_workspace: bool = False
    reads_file: bool = False  # of the workspace, where a call has these arguments


class Route(NamedTuple):
    """The answer for one (server, tool); `hosts` are the tools of this name that hosts bring."""

    entry: ToolEntry | None
    schema: Mapping[str, Any] | None
    roles: Mapping[str, TextRole]
    approval: ApprovalPolicy
    hosts: tuple[HostTool, ...] = ()
    flow: ToolFlow = NOTHING

    @property
    def runs_commands(self) -> bool:
        """Whether a host brings a shell of this name."""
        return any("command" in tool.roles.values() for tool in self.hosts)

    @property
    def may_read_files(self) -> bool:
        """Whether a host brings a tool of this name that reads files, as tools of others may too."""
        return any(tool.reads_file for tool in self.hosts)

    def reads_files(self, arguments: Collection[str]) -> bool:
        """Whether a call with these arguments is one of such a tool."""
        return any(tool.reads_file and tool.arguments.issuperset(arguments) for tool in self.hosts)

    def roles_of(self, arguments: Mapping[str, Any]) -> Mapping[str, TextRole]:
        """What the arguments of a call are for: the operator's word, then that of the host whose tool takes them."""
        for tool in self.hosts:
            if arguments.keys() <= tool.arguments:
                return {**tool.roles, **self.roles}
        return self.roles


class Routes(dict[tuple[str | None, str], Route]):
    """The routes by server and tool, known or not, each looked up once.

    Restrictions match every server; what loosens, only the exact one.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        approval: ApprovalPolicy,
        hosts: Mapping[str, tuple[HostTool, ...]] | None = None,
    ):
        super().__init__()
        self._hosts = hosts or {}
        self._all = SelectorMap(tools)
        self._tools = [(Selector(name).server, name, tool) for name, tool in tools.items()]
        self._nothing = Route(None, None, {}, approval)

    def __missing__(self, name: tuple[str | None, str]) -> Route:
        if len(self) >= _REMEMBERED:
            self.clear()
        route = self._look(*name)
        if name[0] is None and name[1] in self._hosts:
            route = route._replace(hosts=self._hosts[name[1]])
        self[name] = route
        return route

    def _look(self, server: str | None, tool: str) -> Route:
        # (1) The most specific entry restricts, whatever server it was written for.
        known = self._all.find(server, tool)
        if known is None:
            return self._nothing
        # (2) The most specific entry that was written for this very server registers and loosens.
        own = self._of_server(server).find(server, tool)
        if own is None:
            entry = structs.replace(known.entry, registered=False, skip_judge=False)
            return Route(entry, known.schema, {}, known.approval.elsewhere(), flow=known.flow.elsewhere())
        if own is known:
            return Route(known.entry, known.schema, known.roles, known.approval, flow=known.flow)
        # (3) Where the two differ, the stricter of each counts.
        effects = known.entry.effects
        if own.entry.effects is not None:
            effects = own.entry.effects | (effects or frozenset())
        entry = structs.replace(
            own.entry,
            risk=max(own.entry.risk, known.entry.risk),
            irreversible=own.entry.irreversible or known.entry.irreversible,
            always_ask=own.entry.always_ask or known.entry.always_ask,
            permit=own.entry.permit or known.entry.permit,
            skip_judge=own.entry.skip_judge and known.entry.skip_judge,
            unsafe_skip_judge=own.entry.unsafe_skip_judge and known.entry.unsafe_skip_judge,
            effects=effects,
            category=known.entry.category or own.entry.category,
        )
        narrow = (*own.approval.narrow, *known.approval.elsewhere().narrow)  # of two words, the last counts
        approval = structs.replace(known.approval, narrow=narrow)
        return Route(entry, known.schema or own.schema, own.roles, approval, flow=own.flow)

    def _of_server(self, server: str | None) -> SelectorMap[Tool]:
        return SelectorMap({name: known for own, name, known in self._tools if _is_exact(own, server)})


def _is_exact(selector: str | None, server: str | None) -> bool:
    """Whether a selector's server part was written for this server: `*` counts, being written out."""
    if selector is None or server is None:
        return selector is None and server is None
    return glob_match(selector, normalise_name(server))


class Incoming(Struct, frozen=True, kw_only=True):
    """One call to be evaluated.

    `arguments` belong to the evaluation: a fresh decode of the digested bytes that nobody else
    holds, or nothing where the evaluation is given those bytes. `now` is microseconds since the epoch; `session` is
    empty for a call without one.
    `charge` is false where a known call is looked at again: it consumes no rate and no budget. `files` is what is known
    of files that its session wrote, where the call runs one of them. `orphan` says that the call names a parent, and
    the log knows no such call of its principal. `size` are the bytes of the arguments as they were sent; `counted` is
    what the guards that count said, where they were asked already. `context` is what its session said and read,
    `dependence` what is not there of the calls that this one depends on, and `trust` how far the agent has earned
    trust, where a policy asks.
    """

    tool: str
    server: str | None
    principal: Principal
    agent: str
    session: str
    call_id: str
    now: int
    arguments: dict[str, Any] = field(default_factory=dict)
    task: str | None = None
    unresolved: tuple[str, ...] = ()
    charge: bool = True
    mission: MissionView | None = None
    files: Files | None = None
    orphan: bool = False
    size: int = 0
    counted: Mapping[str, Report] | None = None
    context: SessionView | None = None
    dependence: Dependence | None = None
    trust: int = 50


class Evaluation(Struct, frozen=True, kw_only=True):
    """What a policy makes of a call.

    `arguments` are what would run: the submitted ones, or the patched ones, whose canonical bytes
    are then `canonical` (`None` where nothing was patched). `times` follows the order of the guards
    and adds up over rounds of re-analysis. `approval` says who releases the call where it is held;
    it is `None` where no policy was asked, and `held_by` names the policies whose own approvers it
    counts. `cost` is what the call takes from budgets, if it runs; `roles` are what the operator declared
    the arguments of a call under a mission to be. `judge` is what the receipt says of judges, and
    `message` what the agent is told in place of the reason's own sentence. `runs` are the files that the call runs,
    `written` those that it writes, and `recalled` says how many writing calls of its session it was judged with.
    `unread` says that the call was refused before anything looked at its arguments.
    """

    combined: Combined
    arguments: dict[str, Any]
    canonical: bytes | None
    tier: Risk
    irreversible: bool
    effects: frozenset[Effect]
    times: tuple[GuardTime, ...]
    entry: ToolEntry | None
    approval: ApprovalPolicy | None = None
    held_by: tuple[str, ...] = ()
    cost: Cost = field(default_factory=dict)
    roles: Mapping[str, TextRole] = field(default_factory=dict)
    judge: dict[str, Any] | None = None
    message: str = ""
    runs: tuple[str, ...] = ()
    written: tuple[Written, ...] = ()
    recalled: int = 0
    unread: bool = False


class IncomingResult(Struct, frozen=True, kw_only=True):
    """One tool result to be evaluated; `result` is any JSON value, held by nobody else, or left out for its bytes.

    `memory` is the key under which its session remembers values. `workspace` says that a command of a coding agent
    printed what stands in files, as a tool that reads them does.
    """

    tool: str
    server: str | None
    principal: Principal
    agent: str
    session: str
    now: int
    result: Any = None
    mission: MissionView | None = None
    provenance: Provenance = "unsigned"
    must_sign: bool = False
    memory: bytes | None = None
    workspace: bool = False


class ResultEvaluation(Struct, frozen=True, kw_only=True):
    """What a policy makes of a result; `result` is what the model may see, patched where `canonical` is set.

    `reading` is what the session remembers of it, where there is one.
    """

    combined: Combined
    result: Any
    canonical: bytes | None
    times: tuple[GuardTime, ...]
    reading: ResultReading | None = None


class MissionRules(Struct, frozen=True, kw_only=True):
    """The section `missions`, compiled. `issuers` are keys by their id, `tool_keys` public keys of 32 bytes;
    `signing` holds all of the latter.

    `required` refuses calls without a mission; the guards are asked about calls with one, and about
    every call where one is required.
    """

    guards: tuple[Guard, ...] = ()
    result_guards: tuple[ResultGuard, ...] = ()
    required: bool = False
    audience: str = "aegis"
    issuers: Mapping[str, IssuerKey] = field(default_factory=dict)
    quotes: SelectorMap[Quote] = field(default_factory=lambda: SelectorMap({}))
    tool_keys: SelectorMap[bytes] = field(default_factory=lambda: SelectorMap({}))
    signing: frozenset[bytes] = frozenset()
