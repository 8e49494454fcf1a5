"""`GET /metrics` for Prometheus."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from aegis.server.endpoint import Asked
from aegis.server.metrics import CONTENT_TYPE, exposition
from aegis.server.services import Services


async def metrics(asked: Asked) -> Response:
    """Counters and histograms of this process, and the depth of the log and its queue."""
    size, epoch = await asyncio.to_thread(_head, asked.services)
    gauges = {
        "aegis_log_size": ("Receipts in the log.", float(size)),
        "aegis_control_epoch": ("Changes of control data since the log began.", float(epoch)),
        "aegis_queue_depth": ("Units that wait for a commit.", float(asked.services.gate.depth)),
        "aegis_event_subscribers": ("Clients of the event stream.", float(asked.services.feed.subscribers)),
    }
    return Response(exposition(asked.services.metrics, gauges), media_type=CONTENT_TYPE)


def _head(services: Services) -> tuple[int, int]:
    with services.store.reader() as reader:
        head = reader.head()
    return head.size, head.epoch
