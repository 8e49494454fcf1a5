"""Values, pure functions and ports; no I/O, and the clock is always a parameter."""
