"""The sections `tools` and `approvals`, compiled into routes."""

from __future__ import annotations

from typing import Any, Final

from aegis.core.approval import ApprovalPolicy, ApprovalRules, Notifier
from aegis.core.outcome import EFFECTS, risk_of
from aegis.core.pointer import tokens
from aegis.core.text import TextRole
from aegis.facts.schema_roles import schema_roles
from aegis.guards.base import ToolEntry
from aegis.pipeline.routes import Routes, Tool
from aegis.pipeline.settings import Settings
from aegis.pipeline.settings_tools import (
    ApprovalSettings,
    OwnApprovalSettings,
    ToolApprovalSettings,
    ToolSettings,
)

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
    return Routes(tools, approval_policy(settings.approvals))


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
        notify=tuple(
            Notifier(kind=one.kind, url=one.url, secret=one.secret, private=tuple(one.private), arguments=one.arguments)
            for one in chosen("notify")
        ),
        always=isinstance(own, ToolApprovalSettings) and own.always,
        narrow=tuple(own.narrow.items()) if isinstance(own, ToolApprovalSettings) else (),
        separate_owner=chosen("separate_owner"),
        session_grant_seconds=chosen("session_grant"),
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
        notifies=any(own is not None and own.notify for own in own_settings),
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
    )


def _roles(tool: ToolSettings) -> dict[str, TextRole]:
    """What arguments are for: the operator's word, then that of the tool's schema for what it leaves open."""
    told = schema_roles(tool.schema_)
    return {path: role for path, role in told.items() if tokens(path)[-1] not in tool.roles} | tool.roles
