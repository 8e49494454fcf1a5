"""`python -m aegis.cli`: the command line under an interpreter of one's choice."""

from aegis.cli import main

main()
