"""Puts one example of a rule through facts and content guards, as a call, a result or a tool would go."""

from __future__ import annotations

from typing import Any, Final, cast

from aegis.core.principal import Principal
from aegis.core.text import TEXT_ROLES, TextRole
from aegis.detect import extract, gather
from aegis.detect.facts import FactSubject, ReadLimits
from aegis.detect.rules.model import Example
from aegis.detect.rules.scanner import Scanner
from aegis.detect.rules.testing import Detect
from aegis.policy.guards.base import Case, ResultCase
from aegis.policy.guards.content import ContentGuard
from aegis.policy.guards.descriptions import DescriptionScanner
from aegis.policy.guards.result import ResultContentGuard
from aegis.wire.tool_lists import ToolDescription

_NOBODY: Final = Principal(id="examples", roles=frozenset({"agent"}))
_ARGUMENT: Final = "value"


def examiner(scanner: Scanner) -> Detect:
    """A function from an example to the ids of the rules that find something in it."""
    content, result = ContentGuard(scanner), ResultContentGuard(scanner)
    descriptions = DescriptionScanner(scanner)

    def detect(example: Example) -> frozenset[str]:
        if example.surface == "description" and example.text is not None:
            tool = ToolDescription(name="example", description=example.text)
            return frozenset(found.finding.rule for found in descriptions.scan([tool]))
        if example.arguments is None and example.surface not in TEXT_ROLES:
            value = example.result if example.text is None else example.text
            return frozenset(finding.rule for finding in result.check_result(_result_case(value)).findings)
        return frozenset(finding.rule for finding in content.check(_case(example)).findings)

    return detect


def _case(example: Example) -> Case:
    roles: dict[str, TextRole] = {}
    if example.arguments is None:
        arguments: dict[str, Any] = {_ARGUMENT: example.text}
        roles[_ARGUMENT] = cast(TextRole, example.surface)
    else:
        arguments = dict(example.arguments)
    facts = gather(FactSubject(tool=example.tool, server=None, arguments=arguments, limits=ReadLimits(), roles=roles))
    return Case(
        tool=example.tool,
        server=None,
        arguments=arguments,
        principal=_NOBODY,
        agent="",
        session="",
        call_id="",
        entry=None,
        facts=facts,
        tier=facts.tier,
        irreversible=facts.irreversible,
        effects=facts.effects,
        now=0,
    )


def _result_case(value: Any) -> ResultCase:
    return ResultCase(
        tool="example",
        server=None,
        result=value,
        texts=extract(value, ReadLimits()),
        principal=_NOBODY,
        agent="",
        session="",
        entry=None,
        now=0,
    )
