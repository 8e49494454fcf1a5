"""One gateway's cockpit, put together."""

from __future__ import annotations

from typing import Any

from aegis.bootstrap import Deployment
from aegis.bootstrap.state import is_demonstration
from aegis.keys.public import public_keys
from aegis.server.cockpit.alerting import Alerting
from aegis.server.cockpit.drafts import Drafts
from aegis.server.cockpit.live import shape
from aegis.server.cockpit.parts import Cockpit
from aegis.server.cockpit.replaying import Replays
from aegis.server.cockpit.retention import Retention
from aegis.server.cockpit.rollup import Rollup
from aegis.server.cockpit.throttle import Throttle
from aegis.server.cockpit.unusual import Unusual
from aegis.server.cockpit.verifying import Verifications
from aegis.server.feed import Feed
from aegis.server.services import Services


def build_cockpit(deployment: Deployment, services: Services) -> Cockpit:
    """The cockpit of `deployment`."""
    rollup = Rollup(services)
    return Cockpit(
        services=services,
        feed=Feed(services.store, shape),
        rollup=rollup,
        alerting=Alerting(services, rollup),
        throttle=Throttle(services.store, services.clock),
        replays=Replays(),
        drafts=Drafts(),
        unusual=Unusual(),
        retention=Retention(),
        demo=is_demonstration(services.store),
        verifications=Verifications(
            home=deployment.home,
            config=deployment.config_path,
            log=deployment.log,
            keys=_log_keys(deployment),
        ),
    )


def _log_keys(deployment: Deployment) -> list[dict[str, Any]]:
    """The keys of the log as they stand when the gateway starts, replaced ones included."""
    with deployment.store.reader() as reader:
        return [key for key in public_keys(reader)["keys"] if key["purpose"] == "log"]
