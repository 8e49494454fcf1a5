"""Whether every path to every tool leads through a decision: canaries are fired, and no body runs."""
