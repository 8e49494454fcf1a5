"""Facts: what a call is and would do, computed by us from the call alone."""
