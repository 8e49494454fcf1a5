"""What every judge of a package promises, whatever it thinks of a call."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from aegis.core.canonical import call_digest, canonical
from aegis.judges.payload import JudgeSubject, make_payload
from aegis.judges.values import Result, read_answer
from aegis.testing.guards import HOSTILE, NAMES

AT_ONCE: Final = 4
MAX_SHOWN: Final = 65_536  # bytes of arguments that are shown in full, as in the profiles


class Judge(Protocol):
    """Scores one call; asked in threads of the gateway, several at a time."""

    def judge(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Give the result object: `score`, `confidence`, `reasoning`, `signals` and `metadata`."""
        ...


def payload_of(*, tool: str = "tool", server: str | None = None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Make what a judge is shown of a call."""
    canonical_arguments = canonical(arguments)
    subject = JudgeSubject(
        tool=tool,
        server=server,
        arguments=arguments,
        call_id="call-1",
        call_digest=call_digest(server=server, tool=tool, arguments=canonical_arguments),
        agent="bot",
        principal="key-1",
        session="s",
        turn=None,
        task="answer the question",
        task_is_trusted=True,
        available_tools=[],
        mounts=(),
        facts={},
        findings=[],
        policy_violations=[],
        recent_calls=[],
        executed=frozenset(),
    )
    return make_payload(subject, "serve the task", MAX_SHOWN).value


def check_answer(judge: Judge, payload: dict[str, Any]) -> Result:
    """Assert that this payload gets a well-formed result and is left as it was."""
    kept = copy.deepcopy(payload)
    answer = judge.judge(payload)
    assert payload == kept, "a judge changes nothing of what it is shown"
    return read_answer(json.dumps(answer, allow_nan=False))


def check_judge(make: Callable[[], Judge]) -> None:
    """Assert the contract of a judge; `make` gives a new one each time."""
    for value in HOSTILE:
        check_answer(make(), payload_of(arguments={"to": value}))
    for name in NAMES:
        check_answer(make(), payload_of(tool=name, server=name, arguments={}))
    judge = make()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = [payload_of(arguments={"n": number}) for number in range(4 * AT_ONCE)]
        alone = [check_answer(judge, payload) for payload in asked]
        together = list(threads.map(lambda payload: check_answer(judge, payload), asked))
    assert together == alone, "calls that are judged at the same time know nothing of each other"
