"""Every endpoint, in the order of the reference: routing, checks and the API description read this one table."""

from __future__ import annotations

from typing import Final

from aegis.server.endpoint import Endpoint
from aegis.server.table import (
    administration,
    approvals,
    audit,
    deliveries,
    judging,
    missions,
    models,
    open_doors,
    permits,
    runs,
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *judging.ENDPOINTS,
    *missions.ENDPOINTS,
    *models.ENDPOINTS,
    *runs.ENDPOINTS,
    *approvals.ENDPOINTS,
    *permits.ENDPOINTS,
    *deliveries.ENDPOINTS,
    *audit.ENDPOINTS,
    *administration.ENDPOINTS,
    *open_doors.ENDPOINTS,
)
