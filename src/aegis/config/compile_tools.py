"""The sections `tools` and `approvals`, compiled into routes."""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any, Final

from aegis.config.config import Config
from aegis.config.settings import Settings
from aegis.config.tools import (
    ApprovalSettings,
    NotifierSettings,
    OwnApprovalSettings,
    PolicySettings,
    SessionSelectSettings,
    ToolApprovalSettings,
    ToolSettings,
)
from aegis.core.approval import ApprovalPolicy, ApprovalRules, Notifier
from aegis.core.json import escape, tokens
from aegis.core.names import Selector, SelectorMap, split_selector
from aegis.core.outcome import EFFECTS, Outcome, risk_of
from aegis.core.shipped import shipped_folder
from aegis.core.text import TextRole
from aegis.errors import ConfigError, Problem
from aegis.policy.dataflow.declare import NOTHING, ArgumentFlow, ResultFlow, ToolFlow
from aegis.policy.guards.base import ToolEntry
from aegis.policy.guards.schema import SchemaGuard, SchemaPolicy, compile_schema
from aegis.policy.guards.standing import StandingApproval
from aegis.policy.model import Routes, Tool
from aegis.policy.session import SessionSelector

if TYPE_CHECKING:
    import jsonschema_rs


from collections.abc import Mapping
from functools import cache
from typing import Literal

import yaml
from pydantic import Field

from aegis.config.fields import Section
from aegis.policy.model import HostTool

# The tools of the hosts that many people use, as data: `data/hosts/*.yaml`, one file a host, pinned to its version.
#
# What an argument is for is taken from there only where a call has no server, carries a name that a host gives a tool,
# and no argument that this tool does not have. The operator's word about a tool comes first.

_Use = Literal["inert", "plain", "content", "path", "command", "url"]
# What is `plain` says nothing: the name of the argument, and the value, say what it is for.
_ROLES: Final[Mapping[_Use, TextRole]] = {
    "inert": "document", "content": "content", "path": "path", "command": "command", "url": "url",
}  # fmt: skip


class _Tool(Section):
    name: str
    arguments: dict[str, _Use]
    """What the arguments are for, with the names of what stands inside of them."""
    reads: Literal["workspace", "file", ""] = ""
    """Whether its results are what stands in the folder that the agent works in.

    `file`: only where a call has the arguments of this tool, since others give tools of their own the same name.
    """


class HostFile(Section):
    """One file: a host, the version that was looked at, where its tools are documented, and they."""

    host: str
    title: str
    version: str
    documents: str
    tools: list[_Tool] = Field(min_length=1)


@cache
def host_tools() -> Mapping[str, tuple[HostTool, ...]]:
    """The tools of all known hosts by their names, which some hosts share; `ConfigError` where there are none."""
    found: dict[str, tuple[HostTool, ...]] = {}
    for file in host_files():
        for tool in file.tools:
            known = HostTool(
                host=file.host,
                arguments=frozenset(tool.arguments),
                roles={name: _ROLES[use] for name, use in tool.arguments.items() if use != "plain"},
                reads_workspace=tool.reads == "workspace",
                reads_file=tool.reads == "file",
            )
            found[tool.name] = (*found.get(tool.name, ()), known)
    return found


def host_files() -> list[HostFile]:
    """Every file of `data/hosts`, checked."""
    return [
        HostFile.model_validate(yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader))
        for path in sorted(shipped_folder("data/hosts").glob("*.yaml"))
    ]


# The schemas of tools and policies, compiled into the schema guard.

# JSON Schema, drafts 3 to 2020-12: keywords that hold one schema, a list or a mapping of them.
_ONE: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "extends", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_LIST: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_MAPPING: Final = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip
_PLAIN: Final = frozenset({
    "$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$ref",
    "$schema", "$vocabulary", "const", "contentEncoding", "contentMediaType", "default", "dependentRequired",
    "deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "id",
    "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "pattern", "readOnly", "required", "title", "type", "uniqueItems",
    "writeOnly",
})  # fmt: skip
# Of the dialects that tools are described in: OpenAPI 3.0 (Schema Object), Gemini (`propertyOrdering`), draft 3.
_OTHER: Final = frozenset({
    "disallow", "discriminator", "divisibleBy", "example", "externalDocs", "nullable", "propertyOrdering", "xml",
})  # fmt: skip
_KEYWORDS: Final = _ONE | _LIST | _MAPPING | _PLAIN | _OTHER
_OF_REGISTRY: Final = frozenset({"irreversible", "approval-required"})  # holds that no rule of a detector makes
_OWN: Final = "x-"  # begins keywords that somebody made for themselves


def compile_schema_guard(config: Config, problems: list[Problem]) -> SchemaGuard:
    """The schema guard of a configuration; what is wrong is added to `problems`."""
    tools: dict[str, jsonschema_rs.Validator] = {}
    for name, tool in config.settings.tools.items():
        if tool.schema_ is not None:
            # Schemas of tools are often written by others, with formats of their own (`int32`).
            validator = _compile(config, ("tools", name, "schema"), tool.schema_, problems, known_formats_only=False)
            if validator is not None:
                tools[name] = validator
    policies: list[SchemaPolicy] = []
    for position, policy in enumerate(config.settings.policies):
        deny = policy.deny is not None
        schema = policy.deny if deny else policy.schema_
        if schema is not None:
            where = ("policies", position, "deny" if deny else "schema")
            validator = _compile(config, where, schema, problems, known_formats_only=True)
            if validator is not None:
                policies.append(_policy(policy, validator, deny=deny))
    return SchemaGuard(SelectorMap(tools), policies)


def compile_standing(
    config: Config, detectors: Container[str], problems: list[Problem]
) -> tuple[StandingApproval, ...]:
    """The standing approvals of a configuration; what is wrong is added to `problems`."""
    found: list[StandingApproval] = []
    policies = {policy.name for policy in config.settings.policies}
    for position, one in enumerate(config.settings.approvals.standing):
        where = ("approvals", "standing", position)
        for rule in one.rules:
            if rule not in policies and rule not in detectors and rule not in _OF_REGISTRY:
                problems.append(config.problem((*where, "rules"), f"nothing holds a call as `{rule}`"))
        validator = _compile(config, (*where, "arguments"), one.arguments, problems, known_formats_only=True)
        if validator is not None:
            server, tool = split_selector(one.tool)
            found.append(
                StandingApproval(
                    server=server,
                    tool=tool,
                    agent=one.agent,
                    principal=one.principal,
                    rules=frozenset(one.rules),
                    arguments=validator,
                    expires=one.expires,
                )
            )
    return tuple(found)


def _policy(policy: PolicySettings, validator: jsonschema_rs.Validator, *, deny: bool) -> SchemaPolicy:
    select = policy.select
    return SchemaPolicy(
        name=policy.name,
        validator=validator,
        tools=() if select is None else tuple(Selector(text) for text in select.tool or ()),
        category="" if select is None else select.category or "",
        effect=None if select is None else select.effect,
        deny=deny,
        outcome=Outcome.BLOCK if policy.outcome == "block" else Outcome.REQUIRE_APPROVAL,
        defers=policy.outcome == "defer",
        session=None if select is None or select.session is None else _session(select.session),
        trust_below=0 if select is None else select.trust_below or 0,
    )


def _session(settings: SessionSelectSettings) -> SessionSelector:
    wanted = settings.model_dump(exclude_none=True)
    return SessionSelector(wanted={name: tuple(one) if isinstance(one, list) else one for name, one in wanted.items()})


def _compile(
    config: Config,
    where: tuple[str | int, ...],
    schema: dict[str, Any],
    problems: list[Problem],
    *,
    known_formats_only: bool,
) -> jsonschema_rs.Validator | None:
    before = len(problems)
    for place, keyword in _unknown(schema, ()):
        message = f"`{keyword}` is no keyword of JSON Schema, and would check nothing"
        close = difflib.get_close_matches(keyword[:40], _KEYWORDS, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"begin a keyword of your own with `{_OWN}`"
        problems.append(config.problem((*where, *place, keyword), message, hint))
    try:
        validator = compile_schema(schema, known_formats_only=known_formats_only)
    except ConfigError as error:
        problems.extend(
            config.problem((*where, *tokens(found.pointer)), found.message, found.hint) for found in error.problems
        )
        return None
    return validator if len(problems) == before else None


def _unknown(schema: object, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Keywords that no dialect knows, with the place of their schema; names and values may be any words."""
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        here = (*place, keyword)
        if keyword not in _KEYWORDS:
            if not keyword.startswith(_OWN):
                yield place, keyword
        elif keyword in _MAPPING and isinstance(value, dict):
            for name, inner in value.items():
                yield from _unknown(inner, (*here, name))
        elif keyword in _LIST and isinstance(value, list):
            for position, inner in enumerate(value):
                yield from _unknown(inner, (*here, str(position)))
        elif keyword in _ONE:
            yield from _unknown(value, here)


CONTINUE_RUN: Final = "aegis:runs/continue_run"
"""What a person answers when a guard of a run asks for one; the operator may set its approvers, like any tool's."""
READ_DOCUMENT: Final = "aegis:proxies/read_document"
READ_TEXT: Final = "aegis:proxies/read_text"
"""What a client of a model proxy brings for the model to read, as the result of a call."""
UNINSPECTED: Final = "aegis:proxies/pass_uninspected"
"""What a client brings and nobody here can read, passed on as it came."""
_READS: Final = ToolSettings(risk="low", effects=["none"], skip_judge=True)
_ASKS: Final = ToolSettings(risk="low", effects=["none"], approvals=ToolApprovalSettings(always=True))


def compile_routes(settings: Settings) -> Routes:
    """What the configuration says about each tool."""
    named = {CONTINUE_RUN: _ASKS, READ_DOCUMENT: _READS, READ_TEXT: _READS, UNINSPECTED: _READS, **settings.tools}
    tools = {name: _tool(name, tool, settings.approvals) for name, tool in named.items()}
    return Routes(tools, approval_policy(settings.approvals), host_tools())


def approval_policy(default: ApprovalSettings, own: OwnApprovalSettings | None = None) -> ApprovalPolicy:
    """Who releases a held call: the general section, and what one tool or policy sets differently."""

    def chosen(name: str) -> Any:
        value = None if own is None else getattr(own, name)
        return getattr(default, name) if value is None else value

    return ApprovalPolicy(
        timeout_seconds=chosen("timeout"),
        on_timeout=chosen("on_timeout"),
        approvers=tuple(chosen("approvers")),
        quorum=chosen("quorum"),
        notify=tuple(_notifier(one) for one in chosen("notify")),
        always=isinstance(own, ToolApprovalSettings) and own.always,
        narrow=tuple(own.narrow.items()) if isinstance(own, ToolApprovalSettings) else (),
        separate_owner=chosen("separate_owner"),
        session_grant_seconds=chosen("session_grant"),
    )


def _notifier(one: NotifierSettings) -> Notifier:
    return Notifier(
        kind=one.kind,
        url=one.url,
        secret=one.secret,
        private=tuple(one.private),
        arguments=one.arguments,
        values=one.values,
        people=tuple(one.people.items()),
    )


def approval_rules(settings: Settings) -> ApprovalRules:
    """What holds for all held calls."""
    approvals = settings.approvals
    own_settings = (
        approvals,
        *(tool.approvals for tool in settings.tools.values()),
        *(policy.approvals for policy in settings.policies),
    )
    return ApprovalRules(
        groups={name: frozenset(people) for name, people in approvals.groups.items()},
        hourly_limit=approvals.hourly_limit,
        max_pending=approvals.max_pending,
        link=approvals.link.rstrip("/"),
        bind_files=settings.missions.file_system == "shared",
        flow_grants=approvals.flow_grants == "on",
        defer_seconds=approvals.defer_timeout,
        deferred_chain=settings.limits.deferred_chain,
        defers=settings.insufficient_evidence == "defer" or any(one.outcome == "defer" for one in settings.policies),
        notifies=any(own is not None and own.notify for own in own_settings),
        slack=tuple(
            _notifier(one) for own in own_settings if own is not None for one in own.notify or () if one.people
        ),
    )


def policy_approvals(settings: Settings) -> dict[str, ApprovalPolicy]:
    """Who releases what a policy holds, by the policy's name, where it says so itself."""
    return {
        one.name: approval_policy(settings.approvals, one.approvals)
        for one in settings.policies
        if one.approvals is not None
    }


def _tool(name: str, tool: ToolSettings, approvals: ApprovalSettings) -> Tool:
    effects = None if tool.effects is None else frozenset(one for one in EFFECTS if one in tool.effects)
    entry = ToolEntry(
        name=name,
        risk=risk_of(tool.risk),
        irreversible=tool.irreversible,
        effects=effects,
        category=tool.category,
        skip_judge=tool.skip_judge,
        unsafe_skip_judge=tool.unsafe_skip_judge_with_effects,
        always_ask=tool.approvals is not None and tool.approvals.always,
        permit=tool.permit,
    )
    return Tool(
        selector=name,
        entry=entry,
        schema=tool.schema_,
        roles=_roles(tool),
        approval=approval_policy(approvals, tool.approvals),
        flow=_flow(tool),
    )


def _flow(tool: ToolSettings) -> ToolFlow:
    result = ResultFlow()
    if tool.result is not None:
        result = ResultFlow(
            trust=tool.result.trust, sensitivity=tool.result.sensitivity, fields=dict(tool.result.fields)
        )
    if tool.does is None and not tool.arguments and tool.result is None:
        return NOTHING
    arguments = {name: ArgumentFlow(kind=one.is_, sink=one.sink) for name, one in tool.arguments.items()}
    return ToolFlow(does=tool.does, arguments=arguments, result=result)


def _roles(tool: ToolSettings) -> dict[str, TextRole]:
    """What arguments are for: the operator's word, then that of the tool's schema for what it leaves open."""
    told = schema_roles(tool.schema_)
    return {path: role for path, role in told.items() if tokens(path)[-1] not in tool.roles} | tool.roles


# What arguments are for by the word of the tool's own JSON Schema.
#
# Formats and media types are said by whoever declared the tool, so they count before names do (JSON Schema 2020-12,
# validation vocabulary, clauses 7 and 8). Descriptions are prose and decide nothing.

_MOST: Final = 1_000  # properties of one schema that are looked at
_DEEPEST: Final = 8
_FORMATS: Final[Mapping[str, TextRole]] = {
    "uri": "url", "uri-reference": "url", "iri": "url", "iri-reference": "url", "hostname": "url",
    "idn-hostname": "url", "ipv4": "url", "ipv6": "url",
    "email": "identifier", "idn-email": "identifier", "uuid": "identifier", "date": "identifier",
    "date-time": "identifier", "time": "identifier", "duration": "identifier",
}  # fmt: skip
_MEDIA: Final[Mapping[str, TextRole]] = {
    "application/sql": "sql", "application/x-sh": "command", "text/x-shellscript": "command",
    "application/x-shellscript": "command", "text/javascript": "code", "application/javascript": "code",
    "text/x-python": "code", "application/x-php": "code", "text/plain": "content", "text/html": "content",
    "text/markdown": "content",
}  # fmt: skip


def schema_roles(schema: Mapping[str, Any] | None) -> dict[str, TextRole]:
    """The roles that a schema of arguments gives, by JSON pointer; empty where it says nothing.

    References, alternatives and items of arrays give nothing: names decide there.
    """
    found: dict[str, TextRole] = {}
    waiting: list[tuple[str, Any, int]] = [("", schema, 0)]
    seen = 0
    while waiting and seen < _MOST:
        path, part, depth = waiting.pop()
        seen += 1
        if not isinstance(part, Mapping):
            continue
        role = _role(part)
        if path and role is not None:
            found[path] = role
        properties = part.get("properties")
        if isinstance(properties, Mapping) and depth < _DEEPEST:
            waiting.extend((f"{path}/{escape(str(name))}", inner, depth + 1) for name, inner in properties.items())
    return found


def _role(part: Mapping[str, Any]) -> TextRole | None:
    media, form = part.get("contentMediaType"), part.get("format")
    if isinstance(media, str) and media.partition(";")[0].strip().lower() in _MEDIA:
        return _MEDIA[media.partition(";")[0].strip().lower()]
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form]
    return None
