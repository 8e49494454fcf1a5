"""Judges: agents with little authority that look at a call before it runs, and can only say no.

A judge's answer is evidence, not a decision: the gate combines it by `max` with what the deterministic
guards said. Whatever goes wrong with a judge rejects the call, and each way of going wrong has a name.
"""
