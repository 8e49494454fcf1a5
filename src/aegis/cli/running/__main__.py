"""`python -m aegis.cli.running`: the gateway of one run, in a process of its own.

While it loads nothing is searched for garbage: there is next to none, and each search walks every module so far.
"""

import gc

gc.disable()

from aegis.cli.running.gateway import main  # noqa: E402

main()
gc.freeze()  # nor at the end, when whoever started it waits
