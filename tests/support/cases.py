"""Cases for guards, as `aegis.testing` makes them for everybody."""

from __future__ import annotations

from aegis.testing.guards import AGENT, make_case, make_result_case

__all__ = ["AGENT", "make_case", "make_result_case"]
