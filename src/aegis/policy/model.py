"""What goes into a policy and what comes out: one call, or one result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct, field

from aegis.core.approval import ApprovalPolicy
from aegis.core.combine import Combined
from aegis.core.decision import GuardTime
from aegis.core.extensions import is_brought
from aegis.core.finding import Report
from aegis.core.names import SelectorMap
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


DEFAULT_TIMEOUT: Final = 300  # seconds: a held call never waits for ever


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
