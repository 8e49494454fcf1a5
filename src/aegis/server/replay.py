"""`POST /v1/config:replay`: what a candidate configuration would have made of recorded calls.

A dry run: nothing is recorded, nothing is charged, no call runs. An answer says which calls it is about: the newest
that match, from `span.since` to `span.until`, and whether there are earlier ones (`next`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from aegis.config.compile import Policy
from aegis.config.text import MAX_REPLAYED, text_of
from aegis.core.ports import Search
from aegis.core.principal import Principal
from aegis.gate.replay import replayed
from aegis.policy.model import Evaluation, Incoming
from aegis.server.admission import ADMINISTER
from aegis.server.audit import moment
from aegis.server.endpoint import ApiRequest, Endpoint, Param
from aegis.server.http import answer, encode_cursor, index_of
from aegis.server.schemas import CURSOR, SINCE, UNTIL, YAML, exact, ok
from aegis.server.services import Services

# What a policy makes of a call that nobody made: nothing is recorded, charged or run.

WHO = "playground"  # the principal and, where none is named, the agent of such a call


def tried(policy: Policy, call: dict[str, Any], *, now: int) -> Evaluation:
    """Return the evaluation of `call`, which holds `tool` and `arguments`, and may hold what else a call has."""
    agent = call.get("agent") or WHO
    return policy.evaluate(
        Incoming(
            tool=call["tool"],
            server=call.get("server"),
            arguments=call["arguments"],
            principal=Principal(id=WHO, roles=frozenset({"agent"}), agent=agent),
            agent=agent,
            session=call.get("session", ""),
            call_id=WHO,
            now=now,
            task=call.get("task"),
            charge=False,
        )
    )


DEFAULT_CALLS: Final = 200


async def replay_config(request: ApiRequest) -> Response:
    """Show the recorded calls that would have ended otherwise, and how many did not."""
    candidate = await asyncio.to_thread(request.services.policy.check, text_of(request.text))
    return answer(await asyncio.to_thread(replay, request.services, candidate.policy, request.query))


REPLAY_CONFIG: Final = Endpoint(
    method="POST",
    path="/v1/config:replay",
    operation="replayConfig",
    tag="administration",
    summary="What a configuration would have made of recorded calls; changes nothing",
    permission=ADMINISTER,
    handler=replay_config,
    body=YAML,
    query=(
        *exact("agent", "session", "tool"),
        SINCE,
        UNTIL,
        Param(
            name="limit",
            schema={"type": "integer", "minimum": 1, "maximum": MAX_REPLAYED, "default": DEFAULT_CALLS},
            text="how many calls, newest first",
        ),
        CURSOR,
    ),
    replies=ok("the calls that would have ended otherwise", "Replay"),
)


def replay(services: Services, candidate: Policy, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the candidate makes of one page of recorded calls, by the parameters of `REPLAY_CONFIG`."""
    search = Search(
        kind="decision",
        **{name: query[name] for name in ("agent", "session", "tool") if name in query},
        since=moment(query, "since"),
        until=moment(query, "until"),
        before=index_of(query.get("cursor")),
        limit=query.get("limit", DEFAULT_CALLS),
    )
    found = replayed(services.gate.parts, services.evaluate, candidate, search)
    last = found.pop("last")
    following = last if found["replayed"] + found["skipped"] == search.limit else None
    found["span"]["complete"] = following is None
    return {**found, "next": None if following is None else encode_cursor(str(following))}
