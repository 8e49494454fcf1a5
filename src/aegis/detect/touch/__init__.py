"""What a call touches, in one spelling, and whether a mission's scope allows it."""
