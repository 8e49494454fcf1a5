"""Models behind the APIs of their vendors: one request, one whole answer, in the shape of chat completions.

Judges and runs ask through here, so that each vendor's requests, answers, tool calls, token counts and errors are
written and read in one place. What is asked goes out through `aegis.egress`.
"""
