"""The contracts of guards, judges and stores as checks that packages of other people run over their own.

Nothing in here is loaded by a gateway. `guards` and `judges` need no package beside this one, `stores` needs pytest and
hypothesis.
"""
