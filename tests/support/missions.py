"""Missions for tests: real keys, real stores, declarations with short defaults."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from aegis.bootstrap import Deployment
from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import Decision, ResultDecision
from aegis.core.mission import Declaration
from aegis.core.principal import Principal
from aegis.keys.keyring import Ed25519Signer
from aegis.missions.declare import read_declaration
from aegis.missions.holder import prove_calls, prove_session
from support.deployments import deployment

TOOLS = """
tools:
  read_file: {risk: low, effects: [read]}
  list_rows: {risk: low, effects: [read]}
  write_file: {risk: low, effects: [write]}
  fetch_url: {risk: low, effects: [network]}
  run_sql: {risk: low, effects: [read]}
  run_shell: {risk: low, effects: [exec]}
  send_mail: {risk: low, effects: [external_send]}
  ask_model: {risk: low, effects: [read]}
  wipe_disk: {risk: low, irreversible: true, effects: [write]}
  hold_me: {risk: low, effects: [read], approvals: {always: true}}
"""
ISSUER = Principal(id="issuer-1", roles=frozenset({"issuer"}))
APPROVER = Principal(id="person-1", roles=frozenset({"approver"}))

EVERYTHING: dict[str, Any] = {
    "sub": "bot",
    "purpose": "answer questions about the reports",
    "tools": {"allow": ["*"]},
    "effects": ["read", "write", "network", "exec", "external_send"],
    "scope": {
        "paths": ["glob:/ws/**"],
        "hosts": ["exact:api.example.com", "glob:*.cdn.example.com"],
        "tables": ["exact:reports", "glob:public.*"],
        "recipients": ["glob:*@example.com", "exact:#team"],
        "commands": ["exact:git status", "glob:ls **"],
    },
}


# One end for all of a run, so that a mission made a second later than its parent does not outlive it.
_END = int(time.time()) + 6 * 3_600


def claims(**changes: Any) -> dict[str, Any]:
    """The members of a mission that an issuer hands in; it lasts for hours."""
    return {**EVERYTHING, "exp": _END, **changes}


def declaration(**changes: Any) -> Declaration:
    """A complete declaration, as it is after signing."""
    ours = {"iss": "issuer-1", "aud": "aegis", "iat": int(time.time()) - 10, "jti": "j-1", "mission_id": "m-1"}
    return read_declaration({**ours, **claims(), **changes})


def build(declared: Declaration, **changes: Any) -> Declaration:
    """`declared` with other members, checked anew."""
    return read_declaration({**msgspec.to_builtins(declared), **changes})


def signer(seed: int = 1, purpose: Any = "mission") -> Ed25519Signer:
    """A key that is the same in every run."""
    return Ed25519Signer(bytes([seed]) * 32, purpose)


def jwk(key: Ed25519Signer) -> dict[str, Any]:
    """The confirmation member that names a key."""
    return {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": b64(key.public)}}


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(kw_only=True)
class Desk:
    """A deployment with missions, and the shortest way to every step."""

    home: Deployment
    calls: int = 0

    @property
    def gate(self) -> Any:
        return self.home.gate

    def issue(self, **changes: Any) -> str:
        """The id of a fresh root mission."""
        issued = self.gate.issuing.issue(ISSUER, claims=claims(**changes))
        self.gate.record(issued.unit)
        return str(issued.declaration.mission_id)

    def delegate(self, parent: str, request: str = "r-1", **changes: Any) -> str:
        """The id of a mission below `parent`."""
        issued = self.gate.issuing.delegate(ISSUER, parent, claims=claims(**changes), request_id=request)
        if issued.unit is not None:
            self.gate.record(issued.unit)
        return str(issued.declaration.mission_id)

    def open(self, mission: str, session: str = "s-1", *, key: Ed25519Signer | None = None, **more: Any) -> str:
        """Open a session under a mission, proving possession of `key` where there is one."""
        principal = more.pop("principal", self.gate.principal)
        task = more.pop("task", "")
        if key is not None and "proof" not in more:
            more["proof"] = self.prove(mission, session, key)
        self.gate.open_session(session, task=task, mission=mission, principal=principal, **more)
        return session

    def prove(self, mission: str, session: str, key: Ed25519Signer) -> str:
        """A session proof under a fresh challenge."""
        nonce, unit = self.gate.issuing.challenge(self.gate.principal)
        self.gate.record(unit)
        return prove_session(
            key, audience="aegis", nonce=nonce, mission_id=mission, session=session, now_seconds=int(time.time())
        )

    def move(self, mission: str, to: Any) -> None:
        self.gate.record(self.gate.issuing.move(ISSUER, mission, to, "test"))

    def call(self, tool: str = "read_file", session: str | None = "s-1", **arguments: Any) -> Decision:
        """The decision on a call of `tool`."""
        self.calls += 1
        return self.ask(ToolCall(tool=tool, arguments=arguments, session=session, call_id=f"c-{self.calls}"))

    def ask(self, call: ToolCall, **more: Any) -> Decision:
        decision: Decision = self.gate.decide(call, **more)
        return decision

    def proved(self, key: Ed25519Signer, number: int, tool: str = "read_file", **arguments: Any) -> ToolCall:
        """A call with its proof."""
        self.calls += 1
        digest = call_digest(server=None, tool=tool, arguments=canonical(arguments))
        proof = prove_calls(key, audience="aegis", session="s-1", number=number, digests=(digest,))
        return ToolCall(tool=tool, arguments=arguments, session="s-1", call_id=f"c-{self.calls}", proof=proof)

    def result(self, decision: Decision, value: Any, **more: Any) -> ResultDecision:
        answer: ResultDecision = self.gate.observe(ToolResult(decision_id=decision.decision_id, result=value, **more))
        return answer

    def rules(self, decision: Decision | ResultDecision) -> list[str]:
        """The rules of its findings."""
        return [finding.rule for finding in decision.findings]

    def receipt(self, decision: Decision | ResultDecision) -> dict[str, Any]:
        """The receipt as recorded."""
        assert decision.receipt is not None
        with self.home.store.reader() as reader:
            entry = reader.entry(decision.receipt.index)
        assert entry is not None
        return dict(msgspec.json.decode(entry.body))


def desk(home: Path, more: str = "", *, tools: str = TOOLS) -> Desk:
    """A fresh deployment; `more` are further lines of its configuration."""
    text = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\ndurability: os\n{tools}\n{more}"
    return Desk(home=deployment(home, text))


def other(call: ToolCall, **changes: Any) -> ToolCall:
    """A call with other members."""
    return replace(call, **changes)
