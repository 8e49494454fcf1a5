"""The texts that the scorer of orders learns from, and its training."""
