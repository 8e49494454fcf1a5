"""The `openai` package: chat completions and responses, sync and async, whole and streamed, and its runners.

What cannot be covered is barred while the hooks are in place: a call over it raises `UnhookedFramework`.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._transport import Transport
from aegis.adapters.seams import Seams
from aegis.dialects.model import Dialect
from aegis.dialects.openai_chat import OpenAIChat
from aegis.dialects.openai_responses import OpenAIResponses
from aegis.errors import UnhookedFramework

DISTRIBUTION: Final = "openai"
SUPPORTED: Final = ((2, 54), (4,))
_RUNNERS_SINCE: Final = 3  # the major version that brought runners

# What arrives over these is not seen.
_CONNECTIONS: Final = (
    "realtime.connect", "beta.realtime.connect", "responses.connect", "beta.responses.connect", "live.connect",
    "live.forks.connect", "live.sideband.connect",
)  # fmt: skip
# The modules that have them; not every version has all.
CONNECTING: Final = (
    "openai.resources.realtime.realtime", "openai.resources.beta.realtime.realtime",
    "openai.resources.responses.responses", "openai.resources.beta.responses.responses",
    "openai.resources.live.live", "openai.resources.live.forks", "openai.resources.live.sideband",
)  # fmt: skip
_DECISIONS: Final = ("DecisionsToolRunner",)
_CLIENTS: Final = (
    "SyncAPIClient.request",
    "SyncAPIClient._process_response",
    "AsyncAPIClient.request",
    "AsyncAPIClient._process_response",
)
_RUNNERS: Final = ("ResponsesToolRunner", "AsyncResponsesToolRunner", "agents session tool dispatch")

_CHAT: Final = OpenAIChat()
_RESPONSES: Final = OpenAIResponses()


def dialect_of(path: str) -> Dialect | None:
    """The dialect that a request path speaks; raises for one that proposes calls and is not covered."""
    parts = path.partition("?")[0].split("/")
    if "threads" in parts:
        raise UnhookedFramework("runs of the Assistants API are not covered; use chat completions or responses")
    if "responses" in parts:
        return _RESPONSES
    if "completions" in parts and "chat" in parts:
        return _CHAT
    return None


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; `bar` refuses the paths that are not covered. Raises `UnhookedFramework`."""
    from openai import Omit, __version__
    from openai._base_client import AsyncAPIClient, SyncAPIClient
    from openai._utils._json import openapi_dumps

    runners = int(__version__.partition(".")[0]) >= _RUNNERS_SINCE
    transport = Transport(enforcer, memory, dialect_of, openapi_dumps, Omit())
    transport.hook(patches, SyncAPIClient, AsyncAPIClient, send="request")
    unseen = _CONNECTIONS + (_DECISIONS if runners else ())
    if runners:
        from aegis.adapters import openai_runner

        openai_runner.hook(enforcer, memory, patches)
    if bar:
        _bar(patches, runners=runners)
    return Seams(
        seams=_CLIENTS + (_RUNNERS if runners else ()),
        barred=("beta.threads", *(unseen if bar else ())),
        uncovered=(
            "results of batches",
            "stored completions and items of conversations that are read again",
            "function calls read by hand from agent session events",
        )
        + (() if bar else unseen),
    )


def _bar(patches: Patches, *, runners: bool) -> None:
    """Refuse WebSocket connections and the decisions runner: what arrives over them is not seen."""
    for module in CONNECTING:
        patches.when(module, lambda loaded: _disconnect(loaded, patches))
    if runners:
        from openai.lib.decisions_tool_runner import AsyncDecisionsToolRunner, DecisionsToolRunner

        for runner in (DecisionsToolRunner, AsyncDecisionsToolRunner):
            patches.replace(runner, "run", _refuse)


def _disconnect(module: Any, patches: Patches) -> None:
    """Refuse the connections that the classes of a module make."""
    for owner in list(vars(module).values()):
        if inspect.isclass(owner) and owner.__module__ == module.__name__ and "connect" in vars(owner):
            patches.replace(owner, "connect", _refuse)


def _refuse(original: Method) -> Method:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnhookedFramework(f"`{original.__qualname__}` is not covered, so it is refused while the hooks are on")

    async def arefuse(*args: Any, **kwargs: Any) -> Any:
        refuse()

    return arefuse if inspect.iscoroutinefunction(original) else refuse
