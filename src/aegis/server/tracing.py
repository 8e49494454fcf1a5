"""OpenTelemetry spans around decisions, where the host has configured a provider; elsewhere no cost at all."""

from __future__ import annotations

from opentelemetry import context, propagate, trace
from starlette.types import ASGIApp, Receive, Scope, Send

from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.principal import Principal
from aegis.gate.acting import Decide


def configured() -> bool:
    """Whether the host has set a tracer provider of its own."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def traced(decide: Decide) -> Decide:
    """`decide` inside a span that carries the outcome, and no argument."""
    tracer = trace.get_tracer("aegis.server")

    async def decide_traced(call: ToolCall, *, principal: Principal) -> Decision:
        with tracer.start_as_current_span("aegis.decide", kind=trace.SpanKind.SERVER) as span:
            decision = await decide(call, principal=principal)
            span.set_attributes(
                {
                    "aegis.decision": decision.outcome.word,
                    "aegis.reason": decision.reason.value,
                    "aegis.decision_id": decision.decision_id,
                    "aegis.policy_digest": decision.policy_digest,
                    "gen_ai.tool.name": call.tool,
                }
            )
            return decision

    return decide_traced


class CallersTrace:
    """Continues the trace that the caller's headers name (W3C Trace Context)."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        token = context.attach(propagate.extract(carrier))
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)
