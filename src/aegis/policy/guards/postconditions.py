"""The guard of post-conditions: what must hold of a result, by the missions of its session's lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

import orjson

from aegis.core.canonical import canonical
from aegis.core.finding import Finding, Report
from aegis.core.mission import Check, Postcondition
from aegis.core.names import Selector, matches
from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict
from aegis.detect.facts import Text
from aegis.detect.rules.scanner import Scanner
from aegis.detect.touch import hosts
from aegis.detect.touch.touch import compile_entry
from aegis.errors import InvalidCall
from aegis.policy.guards.base import ResultCase
from aegis.policy.mission import attested

_QUIET: Final = Report(guard="postconditions")
FORBIDDEN: Final[dict[Check, frozenset[Category]]] = {
    "no_pii": frozenset({"pii"}),
    "no_secrets": frozenset({"secret"}),
    "no_instructions": frozenset({"prompt_injection"}),
}


class PostconditionsGuard:
    """Judges results against the post-conditions of every mission of the lineage."""

    name = "postconditions"

    def __init__(self, scanner: Scanner):
        self._scanner = scanner
        self._checks: dict[Check, Callable[[ResultCase, Postcondition], bool]] = {
            "no_pii": self._is_clean,
            "no_secrets": self._is_clean,
            "no_instructions": self._is_clean,
            "max_bytes": _is_small,
            "schema": lambda case, condition: is_shaped(case.result, condition),
            "allowed_sources": lambda case, condition: is_from_allowed(
                (text.value for text in case.texts.strings), condition
            ),
            "signed": _is_signed,
        }

    def check_result(self, case: ResultCase) -> Report:
        """`block` with one finding for each condition that does not hold; its rule names the condition."""
        view = case.mission
        lineage = () if view is None else view.lineage
        failed = [
            condition
            for compiled in lineage
            for condition in compiled.declaration.postconditions
            if _concerns(condition, case) and not self._checks[condition.check](case, condition)
        ]
        names = [condition.id for condition in failed]
        withhold = any("withhold" in condition.recourse for condition in failed)
        # A tool that must sign and does not, or whose signature does not hold, gives no result.
        must_sign = case.must_sign or any("signed_results" in one.declaration.evidence for one in lineage)
        if case.provenance == "invalid" or (must_sign and case.provenance != "valid"):
            names.append("signed-results")
            withhold = True
        if not names:
            return _QUIET
        report = Report(
            guard=self.name,
            outcome=Outcome.BLOCK if withhold else Outcome.ALLOW,
            verdict=Verdict.VIOLATION,
            reason=Reason.POSTCONDITION_FAILED if withhold else Reason.NONE,
            risk=Risk.HIGH,
            findings=tuple(
                Finding(
                    guard=self.name,
                    rule=f"postcondition-{name}",
                    category="policy",
                    severity=Risk.HIGH,
                    outcome=Outcome.BLOCK if withhold else Outcome.ALLOW,
                    message="the result does not meet a condition of the mission",
                )
                for name in dict.fromkeys(names)
            ),
        )
        return attested(report) if view is not None and view.attests else report

    def _is_clean(self, case: ResultCase, condition: Postcondition) -> bool:
        forbidden = FORBIDDEN[condition.check]
        left = condition.window
        for text in case.texts.strings:
            value = _within(text, left) if condition.window else text.value
            if any(hit.rule.category in forbidden for hit in self._scanner.scan(value, "result")):
                return False
            if condition.window:
                left -= len(text.value.encode())
                if left <= 0:
                    break
        return not case.texts.limits or bool(condition.window and left <= 0)


def _within(text: Text, left: int) -> str:
    return text.value if len(text.value) * 4 <= left else text.value.encode()[:left].decode("utf-8", "ignore")


def _concerns(condition: Postcondition, case: ResultCase) -> bool:
    return any(_selector(one).matches(case.server, case.tool) for one in condition.tools)


def _is_small(case: ResultCase, condition: Postcondition) -> bool:
    result = case.result
    return len(result.encode() if isinstance(result, str) else canonical(result)) <= condition.limit


def is_shaped(result: Any, condition: Postcondition) -> bool:
    """Whether a result, or the value that its text spells, is valid under the schema of a condition."""
    try:
        return bool(_validator(condition.schema).is_valid(_value(result)))
    except (ValueError, InvalidCall):
        return False


def is_from_allowed(texts: Iterable[str], condition: Postcondition) -> bool:
    """Whether every URL that stands in the texts of a result leads to a host that a condition allows."""
    allowed = [compile_entry("hosts", one) for one in condition.sources]
    for text in texts:
        for word in text.split():
            if "://" not in word:
                continue
            found = hosts.readings(word.strip("()[]<>\"',;"))
            if found is None or not all(any(matches(one, name) for one in allowed) for name in found):
                return False
    return True


def _is_signed(case: ResultCase, condition: Postcondition) -> bool:
    return case.provenance == "valid"


def _value(result: Any) -> Any:
    """The result, or what it spells where it is JSON text: tools often give that."""
    if isinstance(result, str):
        return orjson.loads(result)
    return result


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    import jsonschema_rs  # loading it takes longer than most calls may: only where a schema is declared

    return jsonschema_rs.validator_for(orjson.loads(schema))


@lru_cache(maxsize=1_024)
def _selector(text: str) -> Selector:
    return Selector(text)
