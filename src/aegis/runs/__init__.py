"""Governed runs: a request to a model and its tools flows through a staged spine of guards.

    ingress guards -> route -> execute (model, tool calls, tool results) -> egress guards -> finalize

LangGraph runs the spine; every guard's outcome is on the record; a held call pauses the run until a person answers.
The package itself is light: `aegis.runs.service` loads the libraries.
"""

from aegis.runs.state import GuardContext, RunGuard, RunReport, RunView, Stage

__all__ = ["GuardContext", "RunGuard", "RunReport", "RunView", "Stage"]
