"""Runs programs that nobody trusts, in a bubblewrap sandbox: what they see, what they may use, when they end.

It runs what it is told to run; what a run means is for others to say. Where bubblewrap cannot make a
sandbox, nothing is run.
"""

from aegis.sandbox.command import Box as Box
from aegis.sandbox.command import Finished as Finished
from aegis.sandbox.command import Limits as Limits
from aegis.sandbox.command import Mount as Mount
from aegis.sandbox.command import unavailable as unavailable
from aegis.sandbox.run import run as run
