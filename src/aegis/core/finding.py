"""What a guard saw, and the report in which it hands that in."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that a guard saw, at one place of the call.

    `path` is a JSON pointer into the arguments (or the result); a key is pointed at by its own
    pointer. `evidence` is what was matched, unmasked: it stays inside the encrypted payload and is
    masked wherever it is shown. `message` is one sentence without matched text. `origins` say in which
    results a value stands: the receipt of each, and the place in it.
    """

    guard: str
    rule: str
    category: Category
    severity: Risk
    outcome: Outcome
    path: str = ""
    message: str = ""
    evidence: str = ""
    origins: tuple[tuple[str, str], ...] = ()


class Patch(Struct, frozen=True, kw_only=True):
    """Replace the value at the JSON pointer `path` with `value`."""

    path: str
    value: Any


class Report(Struct, frozen=True, kw_only=True):
    """Says that a guard ran, and what it makes of the call.

    `outcome` is what the guard demands for what it saw; `missing` names evidence that it needed and
    did not get, which is answered by the evidence policy and by nothing else. `reason` explains a
    restrictive `outcome`; `risk` is the lowest tier the guard will call this. `retry_after` is the
    number of whole seconds after which the same call would pass this guard, where that is known. `awaits` says what a
    report with reason `deferred` waits for, in the words of an approval's `waiting_for`.
    """

    guard: str
    outcome: Outcome = Outcome.ALLOW
    verdict: Verdict = Verdict.COMPLIANT
    reason: Reason = Reason.NONE
    risk: Risk = Risk.LOW
    findings: tuple[Finding, ...] = ()
    patches: tuple[Patch, ...] = ()
    missing: tuple[str, ...] = ()
    retry_after: int | None = None
    awaits: tuple[str, ...] = ()
