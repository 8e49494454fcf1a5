"""The sections `tools` and `approvals`, compiled into routes."""

from __future__ import annotations

from aegis.core.approval import ApprovalPolicy, Notifier
from aegis.core.outcome import EFFECTS, risk_of
from aegis.guards.base import ToolEntry
from aegis.pipeline.routes import Routes, Tool
from aegis.pipeline.settings import Settings
from aegis.pipeline.settings_tools import ApprovalSettings, ToolApprovalSettings, ToolSettings


def compile_routes(settings: Settings) -> Routes:
    """What the configuration says about each tool."""
    tools = {name: _tool(name, tool, settings.approvals) for name, tool in settings.tools.items()}
    return Routes(tools, approval_policy(settings.approvals))


def approval_policy(default: ApprovalSettings, own: ToolApprovalSettings | None = None) -> ApprovalPolicy:
    """Who releases a held call: the general section, and what one tool sets differently."""
    own = own or ToolApprovalSettings()
    notify = default.notify if own.notify is None else own.notify
    return ApprovalPolicy(
        timeout_seconds=default.timeout if own.timeout is None else own.timeout,
        on_timeout=default.on_timeout if own.on_timeout is None else own.on_timeout,
        approvers=tuple(default.approvers if own.approvers is None else own.approvers),
        quorum=default.quorum if own.quorum is None else own.quorum,
        notify=tuple(Notifier(kind=one.kind, url=one.url, secret=one.secret) for one in notify),
        always=own.always,
    )


def _tool(name: str, tool: ToolSettings, approvals: ApprovalSettings) -> Tool:
    effects = None if tool.effects is None else frozenset(one for one in EFFECTS if one in tool.effects)
    entry = ToolEntry(
        name=name,
        risk=risk_of(tool.risk),
        irreversible=tool.irreversible,
        effects=effects,
        category=tool.category,
        skip_judge=tool.skip_judge,
        always_ask=tool.approvals is not None and tool.approvals.always,
    )
    return Tool(
        selector=name,
        entry=entry,
        schema=tool.schema_,
        roles=tool.roles,
        approval=approval_policy(approvals, tool.approvals),
    )
