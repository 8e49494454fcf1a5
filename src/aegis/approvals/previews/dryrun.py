"""Dry runs of the tools themselves: a callable of this process, or an endpoint of the tool's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import TYPE_CHECKING, Any, Final

import orjson

from aegis.core.approval import Looked, Preview, ToolPreview
from aegis.core.names import SelectorMap
from aegis.errors import EgressError

if TYPE_CHECKING:
    from aegis.outbound.client import EgressPolicy, Request

MAX_ANSWER: Final = 262_144  # bytes of one answer that an approval keeps
DryRun = Callable[[dict[str, Any]], Any]


class DryRuns:
    """The callables that tools registered: each is given the arguments, and says what would happen."""

    def __init__(self) -> None:
        self._registered: dict[str, DryRun] = {}

    def register(self, selector: str, dry_run: DryRun) -> None:
        """Use `dry_run` for calls of the tools that `selector` covers."""
        self._registered[selector] = dry_run

    def find(self, look: Looked) -> DryRun | None:
        """The callable for this call, or `None`."""
        return SelectorMap(self._registered).find(look.server, look.tool)


def by_callable(look: Looked, dry_run: DryRun) -> Preview:
    """What the tool's own callable says; it has the preview's time and no more."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aegis-dry-run")
    try:
        answer = worker.submit(dry_run, look.arguments).result(look.rules.seconds)
        data = orjson.dumps(answer)
    except Late:
        return _failed("it did not end in time")
    except Exception as error:  # the tool's own code
        return _failed(f"`{type(error).__name__}`")
    finally:
        worker.shutdown(wait=False, cancel_futures=True)
    return _answered(data)


def by_endpoint(look: Looked, how: ToolPreview) -> Preview:
    """What the tool's own endpoint says; it is posted tool and arguments, and nothing that lends authority."""
    from aegis.outbound.client import EgressPolicy, Request

    body = orjson.dumps({"tool": look.tool, "server": look.server, "arguments": look.arguments, "dry_run": True})
    request = Request(method="POST", url=how.url, headers={"Content-Type": "application/json"}, body=body)
    policy = EgressPolicy(private=look.rules.private, total_seconds=look.rules.seconds, max_bytes=MAX_ANSWER)
    try:
        status, data = asyncio.run(_post(policy, request))
    except EgressError as error:
        return _failed(str(error))
    if status != 200:
        return _failed(f"the endpoint answered {status}")
    return _answered(data)


async def _post(policy: EgressPolicy, request: Request) -> tuple[int, bytes]:
    from aegis.outbound.client import Egress

    async with Egress(policy) as egress:
        response = await egress.send(request)
        return response.status, response.body


def _answered(data: bytes) -> Preview:
    if len(data) > MAX_ANSWER:
        return _failed("the answer is too long")
    try:
        said = orjson.loads(data)
    except ValueError:
        return _failed("the answer is not JSON")
    effect = dict(said) if isinstance(said, Mapping) else {"answer": said}
    return Preview(state="done", kind="dry_run", effect=effect)


def _failed(why: str) -> Preview:
    return Preview(state="failed", kind="dry_run", why=f"the dry run failed: {why}")
