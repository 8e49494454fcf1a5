"""The queue of held calls: a state machine with compare-and-set in the store."""
