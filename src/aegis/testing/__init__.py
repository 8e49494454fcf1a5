"""The contracts of adapters, guards, judges and stores as checks that packages of other people run over their own.

Nothing in here is loaded by a gateway. `adapters`, `guards` and `judges` need no package beside this one, `stores`
needs pytest and hypothesis.
"""
