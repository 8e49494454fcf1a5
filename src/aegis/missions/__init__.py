"""Missions: a signed mandate, what it delegates, who holds it, and what became of it."""
