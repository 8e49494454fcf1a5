"""AWS Bedrock through `boto3`: `converse` and `converse_stream`, of every client and session.

Every operation of every client goes through one method of `botocore`. Models invoked in a wire format of their own
are refused where they are given tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.scope import current_scope
from aegis.enforce.turn import ProviderTurn
from aegis.errors import UnhookedFramework
from aegis.wire.bedrock import BEDROCK, BedrockStream

DISTRIBUTION: Final = "boto3"
SUPPORTED: Final = ((1, 44), (2,))

_INVOKE: Final = ("InvokeModel", "InvokeModelWithResponseStream")
_UNSEEN: Final = ("InvokeModelWithBidirectionalStream", "InvokeAgent", "InvokeInlineAgent")


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; `bar` refuses the paths that are not covered. Raises `UnhookedFramework`."""
    calls = _Calls(enforcer, memory, bar=bar)
    patches.methods("botocore.client", "BaseClient", _make_api_call=calls.make_api_call)
    unseen = ("invoke_model with tools", "agents that hand control back")
    return Seams(
        seams=("BaseClient._make_api_call",),
        barred=unseen if bar else (),
        uncovered=("clients of aiobotocore",) + (() if bar else unseen),
    )


class _Calls:
    """The operations of all clients; only those that propose tool calls are touched."""

    def __init__(self, enforcer: Enforcer, memory: Memory, *, bar: bool) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._bar = bar

    def make_api_call(self, original: Method) -> Method:
        def make_api_call(client: Any, operation: str, params: Any, *args: Any, **kwargs: Any) -> Any:
            if operation not in ("Converse", "ConverseStream"):
                if self._bar and (operation in _UNSEEN or (operation in _INVOKE and _has_tools(params))):
                    raise UnhookedFramework(f"`{operation}` is not covered; use `converse` or `converse_stream`")
                return original(client, operation, params, *args, **kwargs)
            turn = ProviderTurn(self._enforcer, self._memory, BEDROCK, deferred=current_scope().deferred)
            asked = self._enforcer.run(turn.amended(params))
            answer = original(client, operation, asked, *args, **kwargs)
            if operation == "Converse":
                return self._enforcer.run(turn.settled(answer))
            return {**answer, "stream": _Stream(answer["stream"], turn)}

        return make_api_call


class _Stream:
    """The event stream of one answer, with its calls held back until they are decided."""

    def __init__(self, original: Any, turn: ProviderTurn) -> None:
        self._original = original
        self._turn = turn

    def __iter__(self) -> Iterator[dict[str, Any]]:
        held = BedrockStream()
        for event in self._original:
            yield from held.feed(event)
            if held.answer is not None:
                yield from held.released(self._turn.enforcer.run(self._turn.settled(held.answer)))

    def close(self) -> None:
        """Close the connection."""
        self._original.close()

    def __getattr__(self, name: str) -> Any:
        if name == "get_initial_response":
            raise AttributeError(name)
        return getattr(self._original, name)


def _has_tools(params: Any) -> bool:
    """Whether the body of an invocation holds tools; one that cannot be read is taken to hold some."""
    body = params.get("body") if isinstance(params, dict) else None
    if not isinstance(body, (str, bytes, bytearray)):
        return body is not None
    try:
        read = json.loads(body)
    except ValueError:
        return True
    return isinstance(read, dict) and bool(read.get("tools") or read.get("toolConfig") or read.get("functions"))
