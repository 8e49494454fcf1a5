"""The `anthropic` package: messages and beta messages, sync and async, whole and streamed, and its runners.

What cannot be covered is barred while the hooks are in place: a call over it raises `UnhookedFramework`.
"""

from __future__ import annotations

from typing import Final

from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Patches
from aegis.adapters._transport import Transport
from aegis.adapters.seams import Seams
from aegis.dialects.anthropic_messages import AnthropicMessages
from aegis.dialects.model import Dialect

DISTRIBUTION: Final = "anthropic"
SUPPORTED: Final = ((2, 10), (3,))

_MESSAGES: Final = AnthropicMessages()


def dialect_of(path: str) -> Dialect | None:
    """The dialect that a request path speaks, or `None` for one that proposes no calls."""
    parts = path.partition("?")[0].split("/")
    return _MESSAGES if "messages" in parts and "batches" not in parts else None


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; `bar` refuses the paths that are not covered. Raises `UnhookedFramework`."""
    from anthropic._base_client import AsyncAPIClient, SyncAPIClient
    from anthropic._types import Omit
    from anthropic._utils._json import openapi_dumps

    from aegis.adapters import anthropic_runner

    transport = Transport(enforcer, memory, dialect_of, openapi_dumps, Omit())
    transport.hook(patches, SyncAPIClient, AsyncAPIClient, send="_request")
    anthropic_runner.hook(enforcer, memory, patches)
    return Seams(
        seams=(
            "SyncAPIClient._request", "SyncAPIClient._process_response", "AsyncAPIClient._request",
            "AsyncAPIClient._process_response", "BetaToolRunner", "BetaStreamingToolRunner", "BetaAsyncToolRunner",
            "BetaAsyncStreamingToolRunner", "SessionToolRunner",
        ),
        barred=("streams over Bedrock's event-stream encoding",),
        uncovered=(
            "results of message batches",
            "tool calls read by hand from the events of managed sessions, or out of a tool runner's message",
        ),
    )  # fmt: skip
