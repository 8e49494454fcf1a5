"""Analyse, patch and analyse again, until nothing is left to patch: what runs was looked at as it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from aegis.core.canonical import canonical
from aegis.core.combine import Combined
from aegis.core.outcome import EvidencePolicy, Outcome
from aegis.core.pointer import apply_patches
from aegis.core.strict_json import parse
from aegis.errors import InvalidCall
from aegis.pipeline.reports import merged, unsettled

MAX_ROUNDS: Final = 4  # patches that still change something after so many rounds are fighting each other

Analyse = Callable[[Any], Combined]


class Settled(NamedTuple):
    """What came out: the value that was last looked at, and its canonical bytes where it was patched."""

    combined: Combined
    value: Any
    canonical: bytes | None


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
