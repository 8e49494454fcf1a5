"""What the pages of one gateway share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aegis.server.services import Services

if TYPE_CHECKING:
    from aegis.server.cockpit.alerting import Alerting
    from aegis.server.cockpit.drafts import Drafts
    from aegis.server.cockpit.live import Row
    from aegis.server.cockpit.replaying import Replays
    from aegis.server.cockpit.retention import Retention
    from aegis.server.cockpit.rollup import Rollup
    from aegis.server.cockpit.throttle import Throttle
    from aegis.server.cockpit.unusual import Unusual
    from aegis.server.cockpit.verifying import Verifications
    from aegis.server.feed import Feed


@dataclass(frozen=True, kw_only=True)
class Cockpit:
    """One cockpit's parts; what it counted of the log is `rollup`, and `feed` follows the log live.

    `demo` says that everything shown was made by the demonstration.
    """

    services: Services
    feed: Feed[Row]
    rollup: Rollup
    verifications: Verifications
    alerting: Alerting
    throttle: Throttle
    replays: Replays
    drafts: Drafts
    unusual: Unusual
    retention: Retention
    demo: bool = False

    async def close(self) -> None:
        """End what runs beside requests."""
        await self.feed.close()
        await self.verifications.close()
        await self.replays.job.close()
        await self.drafts.job.close()
        await self.unusual.job.close()
        await self.retention.job.close()
