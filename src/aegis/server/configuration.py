"""The configuration over HTTP: shown, checked, replaced; what does not compile changes nothing."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from starlette.responses import Response

from aegis.errors import ConfigError, InvalidCall, Problem
from aegis.pipeline.document import plain
from aegis.server.answers import answer
from aegis.server.endpoint import Asked

MAX_PROBLEMS: Final = 100  # what one answer lists; the rest shows once these are repaired


async def get_config(asked: Asked) -> Response:
    """The configuration in force: the file laid over its profile, and the digest that receipts carry."""
    holder = asked.services.policy
    return answer({"digest": holder.current.digest, "config": plain(holder.config.node)})


async def put_config(asked: Asked) -> Response:
    """Put a configuration in force, recorded first, and into the file where there is one."""
    text, holder = text_of(asked.text), asked.services.policy
    try:
        change = await asyncio.to_thread(holder.replace, text, by=asked.principal.id)
    except OSError as error:
        raise InvalidCall(
            "the configuration could not be written to its file, the old one stays in force",
            code="not_written",
            hint=os.strerror(error.errno).lower() if error.errno else "",
            status=503,
        ) from error
    return answer({"digest": change.after, "before": change.before})


async def check_config(asked: Asked) -> Response:
    """Whether a configuration compiles, and every problem that keeps it from doing so."""
    try:
        candidate = await asyncio.to_thread(asked.services.policy.check, text_of(asked.text))
    except ConfigError as error:
        return answer(
            {"valid": False, "digest": None, "problems": [problem_of(one) for one in error.problems[:MAX_PROBLEMS]]}
        )
    return answer({"valid": True, "digest": candidate.policy.digest, "problems": []})


def text_of(body: bytes) -> str:
    """The body as text; raises `InvalidCall` where it is none."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidCall("the configuration is not UTF-8 text") from error


def problem_of(problem: Problem) -> dict[str, Any]:
    """A problem as the API shows it."""
    return {
        "message": problem.message,
        "line": problem.line,
        "pointer": problem.pointer,
        "hint": problem.hint,
    }
