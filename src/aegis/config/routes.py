"""The configuration over HTTP: shown, checked, replaced; what does not compile changes nothing."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from threading import Thread
from typing import Any, Final

from starlette.responses import Response

from aegis.config.document import dump, plain, read
from aegis.config.reload import FileWatch, PolicyHolder, Trigger
from aegis.config.trusted import read_trusted
from aegis.errors import AegisError, ConfigError, InvalidCall, Problem
from aegis.server.endpoint import Asked
from aegis.server.http import answer

# The configuration as text that a person edits: as it is in force, and with one thing more.


def text_in_force(holder: PolicyHolder) -> str:
    """The configuration in force as text: its file where there is one, else everything that it says."""
    if holder.path is not None:
        return read_trusted(holder.path)
    return dump(plain(holder.config.node))


def with_exception(text: str, exception: dict[str, Any]) -> str:
    """`text` with one more exception of the content guard; comments around it stay where they can.

    The file is a person's: it is edited in place where its shape is plain, and written anew otherwise.
    """
    parsed = _parsed(text)
    content = parsed.setdefault("guards", {}).setdefault("content", {})
    item = [f"- {dump(exception, flow=True).strip()}"]
    if content.get("exceptions"):
        placed = _into_list(text.splitlines(), "exceptions:", item)
    elif "guards" in _parsed(text):
        placed = None
    else:
        placed = _joined([*text.splitlines(), "", "guards:", "  content:", "    exceptions:", f"      {item[0]}"])
    content["exceptions"] = [exception, *content.get("exceptions", ())]
    return _as_meant(placed, parsed)


def with_policy(text: str, policy: dict[str, Any]) -> str:
    """`text` with one more policy, in front of the others; written anew where its shape is not plain."""
    parsed = _parsed(text)
    item = dump([policy]).splitlines()
    lines = text.splitlines()
    if parsed.get("policies"):
        placed = _into_list(lines, "policies:", item)
    else:
        kept = [line for line in lines if line.split("#")[0].strip() not in ("policies:", "policies: []")]
        placed = _joined([*kept, "", "policies:", *(f"  {line}" for line in item)])
    parsed["policies"] = [policy, *(parsed.get("policies") or ())]
    return _as_meant(placed, parsed)


def _parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = plain(read(text, file="aegis.yaml")) or {}
    return found


def _into_list(lines: Sequence[str], key: str, item: Sequence[str]) -> str | None:
    """The item as the first of the list below a `key` that has a line of its own."""
    for at, line in enumerate(lines):
        if line.strip() == key and at + 1 < len(lines):
            indent = " " * (len(lines[at + 1]) - len(lines[at + 1].lstrip()))
            return _joined([*lines[: at + 1], *(f"{indent}{one}" for one in item), *lines[at + 1 :]])
    return None


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _as_meant(placed: str | None, meant: dict[str, Any]) -> str:
    """The edited text where it says what is meant, and otherwise what is meant, written anew."""
    try:
        if placed is not None and _parsed(placed) == meant:
            return placed
    except ConfigError:  # the shape was not as plain as it looked
        return dump(meant)
    return dump(meant)


# When the configuration is read again: on SIGHUP, and when its file or one of its own rules changes.
#
# What does not compile, or cannot be recorded, leaves the old configuration in force, and the log says so.

_log = logging.getLogger("aegis.server.reload")


class Reloads:
    """Reloads the policy of one gateway, in threads beside the event loop."""

    def __init__(self, policy: PolicyHolder):
        self._policy = policy
        path = policy.path
        self._watch = None if path is None else FileWatch(path, self._changed, drawn_in=policy.drawn_in)

    def start(self) -> None:
        """Begin to watch the file, where there is one."""
        if self._watch is not None:
            self._watch.start()

    def stop(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.stop()

    def _changed(self) -> None:
        self.now("file")

    def soon(self) -> None:
        """Reload for a signal, without holding up whoever was interrupted."""
        Thread(target=self.now, args=("signal",), name="aegis-reload", daemon=True).start()

    def now(self, trigger: Trigger) -> bool:
        """Reload; whether the configuration in force is the one in the file."""
        try:
            change = self._policy.reload(trigger)
        except ConfigError as error:
            problems = [str(problem) for problem in error.problems]
            _log.error(
                "the configuration was refused, the old one stays in force",
                extra={"trigger": trigger, "problems": problems},
            )
            return False
        except AegisError:
            _log.exception("the configuration was not reloaded, the old one stays in force", extra={"trigger": trigger})
            return False
        if change is None:
            _log.info("the configuration is the one in force", extra={"trigger": trigger})
        else:
            _log.info("another configuration is in force", extra={"trigger": trigger, "policy_digest": change.after})
        return True


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
