"""Governed runs."""

from __future__ import annotations

from typing import Final

from aegis.server import runs
from aegis.server.endpoint import Body, Endpoint
from aegis.server.permissions import RUN
from aegis.server.schemas.common import ref
from aegis.server.table.parts import failing, named, ok

_ID: Final = named("the run's id")
_RUN: Final = {**ok("it ended", "Run"), **ok("a person has to answer, or it is at work", "Run", 202)}
_NONE: Final = failing(s404="there is no such run, or no route is configured")

ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/v1/runs",
        operation="startRun",
        tag="runs",
        summary="Run a request through the guards of a route, a model and its tools",
        permission=RUN,
        handler=runs.start_run,
        body=Body(schema=ref("RunOpening")),
        replies={**_RUN, **failing(s404="there is no such route", s409="the id belongs to another run")},
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/chat/completions",
        operation="completeChat",
        tag="runs",
        summary="The same in the shape of chat completions; `model` names the route",
        permission=RUN,
        handler=runs.complete_chat,
        body=Body(schema=ref("ChatRequest")),
        replies={**ok("the answer, a refusal, or word that it waits", "ChatAnswer"), **_NONE},
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{id}",
        operation="getRun",
        tag="runs",
        summary="Where a run stands",
        permission=RUN,
        handler=runs.get_run,
        path_params=_ID,
        replies={**_RUN, **_NONE},
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{id}/resume",
        operation="resumeRun",
        tag="runs",
        summary="Go on with a paused run: what was approved runs, what was denied is told to the model",
        permission=RUN,
        handler=runs.resume_run,
        path_params=_ID,
        replies={**_RUN, **_NONE},
    ),
)
