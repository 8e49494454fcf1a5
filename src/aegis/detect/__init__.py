"""Facts: what a call is and would do, computed by us from the call alone."""

from aegis.detect.extract import extract
from aegis.detect.gather import gather

__all__ = ["extract", "gather"]
