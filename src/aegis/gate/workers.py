"""Heavy evaluations away from the event loop: a few worker processes, and a queue that serves principals in turns.

A principal that asks for much waits for its own tasks and for one task of everybody else's, never the others for all
of its. Where no worker can be had, a thread of this process computes the same. A worker that dies fails the task that
it had, and that call is refused; the next task starts another worker.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Condition, Lock, Thread
from time import thread_time_ns
from typing import Any, Final, Generic, TypeVar

from aegis.config.config import Source
from aegis.errors import AegisError
from aegis.gate.parts import Slow
from aegis.policy.model import Evaluation, Incoming, IncomingResult, ResultEvaluation
from aegis.policy.policy import Policy
from aegis.policy.worker import MAX_POLICIES, READY, Task, evaluated, result_evaluated

LIGHT_BYTES: Final = 4_096  # arguments up to this size are evaluated where they are, as long as that is quick
USUAL_S: Final = 0.001  # of the processor that one evaluation may take without being counted
EXCESS_S: Final = 0.02  # beyond so much of it, a principal's evaluations are done by workers ...
REGAINED: Final = 0.05  # ... and it is forgotten at this share of the time
MAX_PRINCIPALS: Final = 10_000  # counted at once: bounds memory
MAX_WORKERS: Final = 4  # each one takes about 100 MB
MAX_STARTS: Final = 3  # workers that died in a row before threads are made do
ANSWER_S: Final = 120.0  # a worker that is silent for longer than any task takes is taken for dead

T = TypeVar("T")
Evaluating = Generator[Slow[Any], Any, T | None]
_log = logging.getLogger("aegis.gate.workers")


class WorkerLost(AegisError):
    """The worker that had a task died, or the task failed in it."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    task: Task
    policy: Policy | None
    here: Callable[[], Any]  # the same, computed by this process
    answer: Future[Any] = field(default_factory=Future)


class FairQueue(Generic[T]):
    """A queue that takes one item of each key in turn, however many items a key has."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, deque[T]] = OrderedDict()
        self._changed = Condition()
        self._closed = False

    def put(self, key: str, item: T) -> None:
        """Add an item behind the others of its key."""
        with self._changed:
            self._lanes.setdefault(key, deque()).append(item)
            self._changed.notify()

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._lanes.values()))

    def take(self) -> T | None:
        """Wait for the next item; `None` once the queue is closed."""
        with self._changed:
            while not self._lanes and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            key, lane = self._lanes.popitem(last=False)
            item = lane.popleft()
            if lane:  # its next turn comes after everybody else's
                self._lanes[key] = lane
            return item

    def close(self) -> list[T]:
        """Wake whoever waits; the items that nobody took."""
        with self._changed:
            self._closed = True
            left = [item for lane in self._lanes.values() for item in lane]
            self._lanes.clear()
            self._changed.notify_all()
            return left


class Workers:
    """The worker processes of one gateway, started when something is heavy; safe from any thread."""

    def __init__(self, *, processes: int | None = None, clock: Callable[[], float] = time.monotonic):
        self._count = processes or max(1, min(MAX_WORKERS, (os.cpu_count() or 2) - 1))
        self._clock = clock
        self._queue: FairQueue[_Job] = FairQueue()
        self._threads: list[Thread] = []
        self._running: set[_Worker] = set()
        self._lock = Lock()
        self._excess: OrderedDict[str, tuple[float, float]] = OrderedDict()  # seconds, and when they were counted

    def start(self) -> None:
        """Start one worker now, so that no call waits for that."""
        with self._lock:
            self._add()

    def takes(self, principal: str, size: int) -> bool:
        """Whether an evaluation of `size` bytes for this principal is done by a worker; the answer is the same."""
        if size > LIGHT_BYTES:
            return True
        return bool(self._excess) and self._counted(principal) >= EXCESS_S

    def spent(self, principal: str, seconds: float) -> None:
        """Count an evaluation that took `seconds` of the processor."""
        if seconds > USUAL_S:
            self._excess[principal] = (self._counted(principal) + seconds - USUAL_S, self._clock())
            self._excess.move_to_end(principal)
            if len(self._excess) > MAX_PRINCIPALS:
                self._excess.popitem(last=False)

    def evaluate(self, policy: Policy, incoming: Incoming, arguments: bytes) -> Future[Evaluation]:
        """Begin `policy.evaluate` over canonical arguments, in the turn of the call's principal."""
        here = lambda: evaluated(policy, incoming, arguments)  # noqa: E731
        return self._submit(incoming.principal.id, evaluated, (incoming, arguments), here, policy)

    def evaluate_result(self, policy: Policy, incoming: IncomingResult, result: bytes) -> Future[ResultEvaluation]:
        """Begin `policy.evaluate_result` over a canonical result, in the turn of its principal."""
        here = lambda: result_evaluated(policy, incoming, result)  # noqa: E731
        return self._submit(incoming.principal.id, result_evaluated, (incoming, result), here, policy)

    def call(self, policy: Policy, incoming: Incoming, data: bytes) -> Evaluating[Evaluation]:
        """The steps of evaluating a call with the canonical arguments `data`, wherever that is done.

        `None` where its worker was lost. Where a worker did it, `arguments` are empty unless they were patched.
        """
        principal = incoming.principal.id
        if self.takes(principal, len(data)):
            return (yield from _awaited(self.evaluate(policy, incoming, data)))
        started = thread_time_ns()
        evaluation = policy.evaluate(incoming, data)
        self.spent(principal, (thread_time_ns() - started) / 1e9)
        return evaluation

    def result(self, policy: Policy, incoming: IncomingResult, data: bytes) -> Evaluating[ResultEvaluation]:
        """The same of a result; `result` is left out by a worker unless it was patched."""
        principal = incoming.principal.id
        if self.takes(principal, len(data)):
            return (yield from _awaited(self.evaluate_result(policy, incoming, data)))
        started = thread_time_ns()
        evaluation = policy.evaluate_result(incoming, data)
        self.spent(principal, (thread_time_ns() - started) / 1e9)
        return evaluation

    def compute(self, principal: str, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin a pure function of a module, in the turn of this principal."""
        return self._submit(principal, function, arguments, lambda: function(*arguments), None)

    def close(self) -> None:
        """End the workers; what waits is given up."""
        for job in self._queue.close():
            job.answer.cancel()
        for worker in tuple(self._running):  # wakes the thread that waits for its answer
            worker.kill()
        for thread in self._threads:
            thread.join()

    def _counted(self, principal: str) -> float:
        seconds, since = self._excess.get(principal, (0.0, 0.0))
        return max(0.0, seconds - (self._clock() - since) * REGAINED)

    def _submit(
        self,
        principal: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        here: Callable[[], Any],
        policy: Policy | None,
    ) -> Future[Any]:
        key = None if policy is None or policy.source is None else policy.source.key
        job = _Job(task=Task(function=function, arguments=arguments, policy=key), policy=policy, here=here)
        self._queue.put(principal, job)
        with self._lock:
            if len(self._threads) < min(self._count, len(self._queue) + 1):
                self._add()
        return job.answer

    def _add(self) -> None:
        thread = Thread(target=self._work, name="aegis-worker", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        worker = self._start()
        lost = 0
        while (job := self._queue.take()) is not None:
            if not job.answer.set_running_or_notify_cancel():
                continue
            try:
                if worker is None and lost < MAX_STARTS:
                    worker = self._start()
                if worker is None or not worker.knows(job):
                    value = job.here()
                else:
                    value = worker.ask(job.task)
                    lost = 0
            except _Died:
                _log.warning("a worker died; the call that it had is refused")
                lost += 1
                self._end(worker)
                worker = None
                job.answer.set_exception(WorkerLost("the worker that looked at this died"))
            except BaseException as error:
                job.answer.set_exception(error)
            else:
                job.answer.set_result(value)
            del job  # what it holds may be large, and the next one may be long in coming
        self._end(worker)

    def _start(self) -> _Worker | None:
        worker = _Worker.start()
        if worker is not None:
            self._running.add(worker)
        return worker

    def _end(self, worker: _Worker | None) -> None:
        if worker is not None:
            worker.kill()
            worker.close()
            self._running.discard(worker)


def _awaited(work: Future[T]) -> Evaluating[T]:
    """Wait for a worker; `None` where it was lost with its task."""
    slow = Slow(work)
    yield slow
    try:
        return slow.work.result()
    except (WorkerLost, CancelledError):
        return None


class _Died(Exception):
    """The connection to a worker ended, or it fell silent."""


class _Worker:
    """One worker process and the connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection):
        self._process = process
        self._connection = connection
        self._ready = False
        self._known: OrderedDict[int, None] = OrderedDict()  # as the worker keeps them
        self._other: set[int] = set()  # policies that came out otherwise there

    @classmethod
    def start(cls) -> _Worker | None:
        """A new process that gets ready meanwhile, or `None` where none can be had."""
        ours, theirs = Pipe()
        try:
            with theirs:
                process = subprocess.Popen(  # noqa: S603 - this interpreter, with a module of ours
                    # `-P`: nothing is imported from the folder that the gateway happens to stand in.
                    [sys.executable, "-P", "-m", "aegis.policy.worker", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            return None
        return cls(process, ours)

    def knows(self, job: _Job) -> bool:
        """Whether it has the policy of the job, which it is sent where it has not; raises `_Died` where it ended."""
        if not self._ready:
            self._ready = self._receive() == READY
        if job.policy is None:
            return True
        source = job.policy.source
        if source is None or source.key in self._other:
            return False
        if source.key not in self._known:
            if not self._exchange(source):
                self._other.add(source.key)
                return False
            self._known[source.key] = None
            if len(self._known) > MAX_POLICIES:
                self._known.popitem(last=False)
        return True

    def ask(self, task: Task) -> Any:
        """The value of a task; raises what it refused, `WorkerLost` where it failed, `_Died` where it did not end."""
        return self._exchange(task)

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """Release what this process holds of one that ended."""
        self._connection.close()
        self._process.wait()

    def _exchange(self, asked: Source | Task) -> Any:
        try:
            self._connection.send_bytes(pickle.dumps(asked, pickle.HIGHEST_PROTOCOL))
        except OSError as error:
            raise _Died from error
        kind, value = pickle.loads(self._receive())  # noqa: S301 - of a process of our own
        if kind == "refused":
            raise value
        if kind == "failed":
            raise WorkerLost(f"a worker failed: `{value}`")
        return value

    def _receive(self) -> bytes:
        try:
            if not self._connection.poll(ANSWER_S):
                raise _Died
            return self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise _Died from error
