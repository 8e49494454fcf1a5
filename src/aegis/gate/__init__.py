"""The policy decision point: one call in, one recorded decision out."""
