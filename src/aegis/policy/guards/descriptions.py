"""What tools say about themselves: scanned for instructions to the model, and pinned against silent change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, field

from aegis.core.finding import Finding
from aegis.core.names import normalise_name
from aegis.core.outcome import Category, Outcome, Risk
from aegis.core.patterns import Lazy
from aegis.detect import extract
from aegis.detect.facts import ReadLimits
from aegis.detect.fold import hidden_text, skeleton
from aegis.detect.rules.model import Rule
from aegis.detect.rules.scanner import Scanner
from aegis.detect.views import views_of
from aegis.errors import InvalidCall
from aegis.wire.tool_lists import MEMBERS, ToolDescription

# Names that take another tool's place: look-alikes, doubles across servers, and descriptions that speak of others.

_WORD: Final = Lazy(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")
"""A name of two words or more: one word (`search`) is also plain English."""


def confusions(
    tools: Sequence[ToolDescription], known: Sequence[ToolDescription]
) -> Iterator[tuple[ToolDescription, Finding]]:
    """For each of `tools`, how its name or text takes the place of another tool's, here or among `known`."""
    everything = [*tools, *known]
    spellings: dict[str, set[str]] = defaultdict(set)
    servers: dict[str, set[str | None]] = defaultdict(set)
    for tool in everything:
        spellings[skeleton(normalise_name(tool.name))].add(tool.name)
        servers[normalise_name(tool.name)].add(tool.server)
    for tool in tools:
        others = spellings[skeleton(normalise_name(tool.name))] - {tool.name}
        if others or not tool.name.isascii():
            yield (
                tool,
                _finding("tool-name-look-alike", "obfuscation", "a name that looks like another tool's", tool.name),
            )
        if len(servers[normalise_name(tool.name)]) > 1:
            yield (
                tool,
                _finding(
                    "tool-name-twice", "policy", "another server has a tool of this name", tool.name, Outcome.ALLOW
                ),
            )
        for word in dict.fromkeys(match.group() for match in _WORD.finditer(tool.description)):
            elsewhere = servers.get(normalise_name(word), set()) - {tool.server}
            if elsewhere and tool.server not in servers[normalise_name(word)]:
                yield (
                    tool,
                    _finding(
                        "tool-speaks-of-another",
                        "prompt_injection",
                        "its text speaks of a tool of another server",
                        word,
                    ),
                )


def _finding(
    rule: str, category: Category, message: str, evidence: str, outcome: Outcome = Outcome.REQUIRE_APPROVAL
) -> Finding:
    return Finding(
        guard="descriptions",
        rule=rule,
        category=category,
        severity=Risk.LOW if outcome is Outcome.ALLOW else Risk.HIGH,
        outcome=outcome,
        path="/description" if rule == "tool-speaks-of-another" else "/name",
        message=message,
        evidence=evidence,
    )


# Pins: what each tool said when a person accepted it. A tool that says something else later is another tool.

VERSION: Final = 1
ChangeKind = Literal["added", "changed", "removed"]


class Pins(Struct, frozen=True, kw_only=True):
    """Accepted tools: by `server/name` the digest of every member that was announced."""

    tools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Iterable[ToolDescription]) -> Pins:
        """Pins of these tools. Raises `InvalidCall` where one is announced twice."""
        pinned: dict[str, Mapping[str, str]] = {}
        for tool in tools:
            if tool.identity in pinned:
                raise InvalidCall(f"the tool `{tool.identity}` is announced twice", hint="pin each server by itself")
            pinned[tool.identity] = tool.digests()
        return cls(tools=pinned)

    @classmethod
    def from_document(cls, document: Any) -> Pins:
        """Reads what `document` wrote. Raises `InvalidCall` for anything else: a damaged file pins nothing."""
        if not isinstance(document, dict) or document.keys() != {"version", "tools"} or document["version"] != VERSION:
            raise InvalidCall(f"not a file of pins of version {VERSION}", hint="make one with `aegis tools pin`")
        tools = document["tools"]
        if not isinstance(tools, dict) or not all(_is_pin(pin) for pin in tools.values()):
            raise InvalidCall("a pin is not an object of digests", hint="make the file anew with `aegis tools pin`")
        return cls(tools=tools)

    def document(self) -> dict[str, Any]:
        """The pins as JSON, in the order of their names."""
        return {"version": VERSION, "tools": {name: dict(self.tools[name]) for name in sorted(self.tools)}}

    def merged(self, tools: Iterable[ToolDescription]) -> Pins:
        """These pins, with those of `tools` in place of older ones of the same names."""
        return Pins(tools={**self.tools, **Pins.of(tools).tools})


class PinChange(Struct, frozen=True, kw_only=True):
    """How one tool differs from its pin; `members` names what changed (empty for added and removed)."""

    tool: str
    kind: ChangeKind
    members: tuple[str, ...] = ()


def compare(pins: Pins, tools: Iterable[ToolDescription], *, server: str | None = None) -> list[PinChange]:
    """Every difference, in the order of names. Pins of other servers than `server` are not called removed."""
    now = Pins.of(tools).tools
    changes: list[PinChange] = []
    for name in sorted(now.keys() | pins.tools.keys()):
        old, new = pins.tools.get(name), now.get(name)
        if new is None:
            if _server_of(name) == server:
                changes.append(PinChange(tool=name, kind="removed"))
        elif old is None:
            changes.append(PinChange(tool=name, kind="added"))
        elif old != new:
            members = tuple(member for member in MEMBERS if old.get(member) != new.get(member))
            changes.append(PinChange(tool=name, kind="changed", members=members))
    return changes


def _server_of(identity: str) -> str | None:
    server, slash, _ = identity.rpartition("/")
    return server if slash else None


def _is_pin(pin: Any) -> bool:
    return isinstance(pin, dict) and all(name in MEMBERS and isinstance(value, str) for name, value in pin.items())


# Reads descriptions as a model would, and finds what speaks to the model in place of describing the tool.

GUARD: Final = "descriptions"
MOST_FINDINGS: Final = 50  # of one tool; a hostile server must not fill a report
_EVIDENCE: Final = 200


class ToolFinding(Struct, frozen=True, kw_only=True):
    """One finding in what a tool says; `finding.path` points into its members (`/description`, `/input_schema/...`)."""

    tool: ToolDescription
    finding: Finding


class DescriptionScanner:
    """Judges lists of tools by the rules that apply to descriptions, and by how their names relate; no I/O."""

    def __init__(self, scanner: Scanner, *, limits: ReadLimits | None = None) -> None:
        self._scanner = scanner
        self._limits = limits or ReadLimits()

    def scan(self, tools: Sequence[ToolDescription], *, known: Sequence[ToolDescription] = ()) -> list[ToolFinding]:
        """Findings of `tools` in their order; `known` are tools of other servers that they could imitate."""
        found = [ToolFinding(tool=tool, finding=one) for tool in tools for one in self._texts(tool)]
        return found + [ToolFinding(tool=tool, finding=one) for tool, one in confusions(tools, known)]

    def _texts(self, tool: ToolDescription) -> list[Finding]:
        texts = extract({"name": tool.name, **tool.members()}, self._limits)
        findings = list(texts.limits)
        seen: set[tuple[str, str]] = set()
        for text in texts.strings:
            for rule, evidence in self._hits(text.value):
                if (rule.id, text.path) not in seen:
                    seen.add((rule.id, text.path))
                    findings.append(_scan_finding(rule, text.path, evidence))
        findings.sort(key=lambda finding: -finding.outcome)
        return findings[:MOST_FINDINGS]

    def _hits(self, value: str) -> Iterator[tuple[Rule, str]]:
        for reading in (value, *(reading for reading, kinds in views_of(value) if "shell" not in kinds)):
            for hit in self._scanner.scan(reading, "description"):
                yield hit.rule, reading[hit.start : hit.end]
        hidden = hidden_text(value)
        if hidden:
            for rule in self._scanner.rules_for("text.hidden"):
                yield rule, hidden


def _scan_finding(rule: Rule, path: str, evidence: str) -> Finding:
    return Finding(
        guard=GUARD,
        rule=rule.id,
        category=rule.category,
        severity=rule.severity,
        outcome=rule.outcome if rule.maturity == "stable" else Outcome.ALLOW,
        path=path,
        message=rule.message,
        evidence=evidence[:_EVIDENCE],
    )
