"""The configuration, compiled into an ordered list of guards, and the run of that list."""
