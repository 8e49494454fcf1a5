"""Facts: what a call is and would do, computed by us from the call alone."""

from aegis.facts.extract import extract
from aegis.facts.gather import gather

__all__ = ["extract", "gather"]
