"""Looking at the effect of a held call without doing it.

Nothing here runs a call for real: programs run on a copy in a sandbox, SQL in a transaction that is
rolled back, and what cannot be tried is summed up. A look that fails says so and decides nothing.
"""
