"""Sessions: how they begin, and what the calls of one left behind."""
