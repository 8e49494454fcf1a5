"""What a policy is made of, what goes into it, and what comes out: one call, or one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct, field

from aegis.core.approval import ApprovalPolicy
from aegis.core.combine import Combined
from aegis.core.decision import GuardTime
from aegis.core.extensions import is_brought
from aegis.core.finding import Report
from aegis.core.names import Selector, SelectorMap, glob_match, normalise_name
from aegis.core.outcome import Effect, Risk
from aegis.core.principal import Principal
from aegis.core.text import TextRole
from aegis.detect.files import Files, Written
from aegis.keys.jws import IssuerKey
from aegis.keys.references import is_reference
from aegis.policy.guards.base import Guard, Provenance, ResultGuard, ToolEntry
from aegis.policy.mission import Cost, MissionView, Quote

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

# Named in the documentation, and refused with a clear word until they exist.
PLANNED_GUARDS: Final = frozenset({"dataflow", "anomaly", "stream"})


def check_guard(name: str, known: tuple[str, ...]) -> str:
    """`name`, where this version has that guard at this place; raises `ValueError` otherwise."""
    if name in known:
        return name
    if name in PLANNED_GUARDS:
        raise ValueError(f"the guard `{name}` is not available in this version")
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


class Route(NamedTuple):
    """The answer for one (server, tool)."""

    entry: ToolEntry | None
    schema: Mapping[str, Any] | None
    roles: Mapping[str, TextRole]
    approval: ApprovalPolicy


class Routes(dict[tuple[str | None, str], Route]):
    """The routes by server and tool, known or not, each looked up once.

    Restrictions match every server; what loosens, only the exact one.
    """

    def __init__(self, tools: Mapping[str, Tool], approval: ApprovalPolicy):
        super().__init__()
        self._all = SelectorMap(tools)
        self._tools = [(Selector(name).server, name, tool) for name, tool in tools.items()]
        self._nothing = Route(None, None, {}, approval)

    def __missing__(self, name: tuple[str | None, str]) -> Route:
        if len(self) >= _REMEMBERED:
            self.clear()
        route = self[name] = self._look(*name)
        return route

    def _look(self, server: str | None, tool: str) -> Route:
        # (1) The most specific entry restricts, whatever server it was written for.
        known = self._all.find(server, tool)
        if known is None:
            return self._nothing
        # (2) The most specific entry that was written for this very server registers and loosens.
        own = self._of_server(server).find(server, tool)
        if own is None:
            entry = replace(known.entry, registered=False, skip_judge=False)
            return Route(entry, known.schema, {}, known.approval.elsewhere())
        if own is known:
            return Route(known.entry, known.schema, known.roles, known.approval)
        # (3) Where the two differ, the stricter of each counts.
        effects = known.entry.effects
        if own.entry.effects is not None:
            effects = own.entry.effects | (effects or frozenset())
        entry = replace(
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
        return Route(entry, known.schema or own.schema, own.roles, replace(known.approval, narrow=narrow))

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
    what the guards that count said, where they were asked already.
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
    """One tool result to be evaluated; `result` is any JSON value, held by nobody else, or left out for its bytes."""

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


class ResultEvaluation(Struct, frozen=True, kw_only=True):
    """What a policy makes of a result; `result` is what the model may see, patched where `canonical` is set."""

    combined: Combined
    result: Any
    canonical: bytes | None
    times: tuple[GuardTime, ...]


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
