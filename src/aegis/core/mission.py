"""A mission: what an agent was sent to do and what it may touch, as signed by its issuer.

One definition serves as schema and as value. Unknown members are refused at every level; sizes are
bounded; what members mean together is checked where a mission is read (`aegis.missions.declare`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from aegis.core.outcome import Effect, EvidencePolicy

MAX_ENTRIES: Final = 256  # selectors or resources of one list: bounds what one call is compared with
MAX_LINEAGE: Final = 8  # missions from the root to the one that acts: bounds what one call is judged against
MAX_LIFETIME_S: Final = 366 * 86_400
MAX_SKEW_S: Final = 60  # how far the clock of whoever signs may differ from ours
_LARGEST: Final = 2**53 - 1

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Prose = Annotated[str, msgspec.Meta(min_length=1, max_length=4_000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
Currency = Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]
Word = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")]
Sha256 = Annotated[str, msgspec.Meta(pattern="^sha-256:[0-9a-f]{64}$")]
Key = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")]
Selectors = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
Resource = Annotated[str, msgspec.Meta(min_length=7, max_length=1_024, pattern="^(exact|glob):")]
Resources = Annotated[tuple[Resource, ...], msgspec.Meta(max_length=MAX_ENTRIES)]

Kind = Literal["paths", "hosts", "tables", "recipients", "commands"]
KINDS: Final[tuple[Kind, ...]] = ("paths", "hosts", "tables", "recipients", "commands")
Evidence = Literal["session_proof", "call_proof", "task", "tool_manifest", "signed_results"]
Recourse = Literal["withhold", "block_chain", "escalate", "void_session"]
Check = Literal["no_pii", "no_secrets", "no_instructions", "max_bytes", "schema", "allowed_sources", "signed"]


class _Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every part: closed and never changed."""


class Tools(_Closed, frozen=True, kw_only=True):
    """Tools by full-match selectors (`tool`, `server/tool`, with `*`); what is forbidden wins."""

    allow: Selectors
    forbid: Selectors = ()


class Scope(_Closed, frozen=True, kw_only=True):
    """Resources as `exact:VALUE` or `glob:PATTERN`; an empty list allows none. `base` is where relative paths start."""

    paths: Resources = ()
    hosts: Resources = ()
    tables: Resources = ()
    recipients: Resources = ()
    commands: Resources = ()
    base: Annotated[str, msgspec.Meta(max_length=1_024)] = ""

    def of(self, kind: Kind) -> tuple[str, ...]:
        """The entries of one kind."""
        entries: tuple[str, ...] = getattr(self, kind)
        return entries


class EffectLimits(_Closed, frozen=True, kw_only=True):
    """How many calls of each effect class."""

    read: Count | None = None
    write: Count | None = None
    network: Count | None = None
    exec: Count | None = None
    external_send: Count | None = None


class RiskLimits(_Closed, frozen=True, kw_only=True):
    """How much damage at most: calls that cannot be undone, and objects that calls change or send to."""

    destructive: Count | None = None
    objects: Count | None = None


class Budgets(_Closed, frozen=True, kw_only=True):
    """Ceilings; an absent one does not limit. `seconds` is wall time, `money` is in minor units by currency."""

    calls: Count | None = None
    seconds: Seconds | None = None
    bytes_out: Count | None = None
    tokens: Count | None = None
    effects: EffectLimits = EffectLimits()
    risk: RiskLimits = RiskLimits()
    money: Annotated[dict[Currency, Count], msgspec.Meta(max_length=16)] = {}

    def ceilings(self) -> dict[str, int]:
        """Every counted ceiling by its name: `calls`, `effects.write`, `money.EUR`; time is not counted."""
        found: dict[str, int] = {}
        for name, value in (("calls", self.calls), ("bytes_out", self.bytes_out), ("tokens", self.tokens)):
            if value is not None:
                found[name] = value
        for group, limits in (("effects", self.effects), ("risk", self.risk)):
            for name in limits.__struct_fields__:
                value = getattr(limits, name)
                if value is not None:
                    found[f"{group}.{name}"] = value
        found.update({f"money.{currency}": value for currency, value in self.money.items()})
        return found


class Delegation(_Closed, frozen=True, kw_only=True):
    """Whether the agent may send others: how deep, and which subjects (selectors); depth 0 is nobody."""

    depth: Annotated[int, msgspec.Meta(ge=0, le=MAX_LINEAGE - 1)] = 0
    subjects: Selectors = ()


class FlowClass(_Closed, frozen=True, kw_only=True):
    """What belongs to a class: the tools that read it or send to it."""

    tools: Selectors


class FlowRule(_Closed, frozen=True, kw_only=True):
    """What was read from `source` may (not) go on to `sink`; both name classes."""

    source: Word
    sink: Word
    action: Literal["allow", "deny"]


class Flow(_Closed, frozen=True, kw_only=True):
    """Where data may go. Between two classes of which no rule speaks, nothing goes."""

    classes: Annotated[dict[Word, FlowClass], msgspec.Meta(max_length=32)] = {}
    rules: Annotated[tuple[FlowRule, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()


class Postcondition(_Closed, frozen=True, kw_only=True):
    """What must hold of a result of `tools`, and what follows where it does not.

    `window` looks at the first so many bytes alone (0: all of them). `limit` belongs to `max_bytes`,
    `schema` (JSON text) to `schema`, `sources` (hosts, as in a scope) to `allowed_sources`.
    """

    id: Word
    check: Check
    tools: Selectors = ("*",)
    window: Count = 0
    limit: Count = 0
    schema: Annotated[str, msgspec.Meta(max_length=65_536)] = ""
    sources: Resources = ()
    recourse: tuple[Recourse, ...] = ("withhold",)


class Jwk(_Closed, frozen=True, kw_only=True):
    """A public Ed25519 key (RFC 8037)."""

    x: Key
    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"


class Confirmation(_Closed, frozen=True, kw_only=True):
    """Whose key must prove possession (RFC 7800)."""

    jwk: Jwk


class RevocationReference(_Closed, frozen=True, kw_only=True):
    """The status list that an issuer keeps about this mission, and how old (seconds) it may be."""

    reference: Text
    max_age: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)]


class Declaration(_Closed, frozen=True, kw_only=True):
    """One mission. Times are seconds since the epoch; `jti` names this document, `mission_id` the mission.

    `parent` is the mission that delegated this one, empty for a root. `mode: attest` records what it
    finds and refuses nothing; everything else refuses.
    """

    iss: Text
    sub: Text
    aud: Text
    iat: Seconds
    exp: Seconds
    jti: Text
    mission_id: Text
    purpose: Prose
    tools: Tools
    effects: tuple[Effect, ...]
    scope: Scope = Scope()
    forbidden_scope: Scope = Scope()
    budgets: Budgets = Budgets()
    session_budgets: Budgets = Budgets()
    agent_budgets: Budgets = Budgets()
    delegation: Delegation = Delegation()
    parent: Annotated[str, msgspec.Meta(max_length=256)] = ""
    flow: Flow = Flow()
    evidence: tuple[Evidence, ...] = ()
    postconditions: Annotated[tuple[Postcondition, ...], msgspec.Meta(max_length=64)] = ()
    insufficient_evidence: EvidencePolicy = "fail-closed"
    mode: Literal["enforce", "attest"] = "enforce"
    cnf: Confirmation | None = None
    tool_manifest: Sha256 | None = None
    revocation: RevocationReference | None = None
    max_denials: Count | None = None


_STRICTNESS: Final[tuple[EvidencePolicy, ...]] = (
    "fail-open-with-attestation", "defer", "require-approval", "fail-closed",
)  # fmt: skip


@lru_cache
def stricter(*policies: EvidencePolicy) -> EvidencePolicy:
    """The evidence policy, of one or more, that lets least through."""
    return max(policies, key=_STRICTNESS.index)
