"""Approving with changes: an approver may take away from a held call, and never put anything into it."""

from aegis.approvals.narrowing.check import check_narrower

__all__ = ["check_narrower"]
