"""The one state that every node of a run shares. Plain JSON, so that a checkpoint is data and never code."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Literal, TypedDict

Status = Literal["running", "paused", "completed", "refused", "failed"]


class RunState(TypedDict, total=False):
    """A run on its way. Members are replaced by what a node returns; `events` are appended.

    `vault` maps placeholders to what they stand for; nothing that is sent to a model is made from it. `cost` is in
    millionths of the currency of the price list.
    """

    run_id: str
    principal: dict[str, Any]
    route: str
    status: Status
    reason: str
    message: str
    messages: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    labels: dict[str, str]
    vault: dict[str, str]
    models: list[str]
    model: str
    turns: int
    calls: int
    usage: dict[str, int]
    cost: int
    output: str
    started: int
    events: Annotated[list[dict[str, Any]], operator.add]
