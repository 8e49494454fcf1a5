"""Properties are looked at for as long as they take: what a busy machine does is no counterexample."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
