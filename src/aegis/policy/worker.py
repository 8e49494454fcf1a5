"""A worker: a process that computes for a gateway what would hold its event loop, and knows nothing else.

It holds the compiled policies that it was sent, no key, no store and no listening socket. It answers one task at a
time over the one connection that it inherited, and ends with it. What it computes is a pure function of the task and
the policy, so that an answer does not depend on where it was computed.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, structs

from aegis.config.compile import Policy, compile_policy
from aegis.config.config import Source
from aegis.detect.analyse import preload
from aegis.errors import AegisError
from aegis.policy.model import Evaluation, Incoming, IncomingResult, ResultEvaluation

NICENESS: Final = 5  # the event loop of the gateway comes first where there are fewer cores than processes
MAX_POLICIES: Final = 4  # compiled ones that are kept: the one in force, and candidates that are tried

READY: Final = b"ready"
Answer = tuple[Literal["value", "refused", "failed"], Any]


class Task(Struct, frozen=True, kw_only=True):
    """A function of a module, its arguments, and the key of the policy that it is given first, if it needs one."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    policy: int | None = None


def evaluated(policy: Policy, incoming: Incoming, arguments: bytes) -> Evaluation:
    """What the policy makes of a call with these canonical arguments; the arguments come back where they changed."""
    evaluation = policy.evaluate(incoming, arguments)
    return evaluation if evaluation.canonical is not None else structs.replace(evaluation, arguments={})


def result_evaluated(policy: Policy, incoming: IncomingResult, result: bytes) -> ResultEvaluation:
    """The same of a result; it comes back where it changed."""
    evaluation = policy.evaluate_result(incoming, result)
    return evaluation if evaluation.canonical is not None else structs.replace(evaluation, result=None)


def main() -> None:
    """Answer tasks until the connection, whose descriptor is the one argument, ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever presses keys means the gateway, which drains
    os.nice(NICENESS)
    connection = Connection(int(sys.argv[1]))
    preload()
    gc.collect()
    gc.freeze()
    policies: OrderedDict[int, Policy] = OrderedDict()
    try:
        connection.send_bytes(READY)
        while True:
            connection.send_bytes(_answer(connection.recv_bytes(), policies))
    except (EOFError, OSError):  # the gateway is gone, or needs no worker any more
        return


def _answer(data: bytes, policies: OrderedDict[int, Policy]) -> bytes:
    answer: Answer
    try:
        asked = pickle.loads(data)  # noqa: S301 - the gateway alone holds the other end
        if isinstance(asked, Source):
            answer = "value", _compile(asked, policies)
        else:
            given = () if asked.policy is None else (policies[asked.policy],)
            answer = "value", asked.function(*given, *asked.arguments)
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except AegisError as error:
        answer = "refused", error
    except BaseException as error:  # what is written in Rust panics outside of `Exception`
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        answer = "failed", type(error).__name__
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


def _compile(source: Source, policies: OrderedDict[int, Policy]) -> bool:
    """Whether the policy came out as the gateway has it: files of rules can have changed meanwhile."""
    policy = compile_policy(
        source.config,
        scanner_folders=[Path(folder) for folder in source.folders],
        cache=None if source.cache is None else Path(source.cache),
        protected=[Path(path) for path in source.protected],
    )
    if policy.digest != source.digest:
        return False
    policies[source.key] = policy
    if len(policies) > MAX_POLICIES:
        policies.popitem(last=False)
    return True


if __name__ == "__main__":
    main()
