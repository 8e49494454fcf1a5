"""The `Decider` over HTTP; every failure on the way is a refusal."""
