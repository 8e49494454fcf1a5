"""Tests beside each other in forks of one process that has collected them: `pytest --beside N`.

What is imported, collected and compiled is so once, whatever the number of workers, and they share its memory. A worker
is given the tests of one file at a time; one that dies fails the test it was at, and another takes the rest.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from tempfile import TemporaryFile
from typing import Any

import pytest

END_S = 60  # for the teardown of what an interrupted worker was at


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the number of workers."""
    parser.addoption("--beside", type=int, default=1, metavar="N", help="run the tests of N files beside each other")


def pytest_configure(config: pytest.Config) -> None:
    """Have workers run the tests where more than one is wanted."""
    if (workers := config.getoption("--beside")) > 1:
        config.pluginmanager.register(Beside(workers), "beside")


@dataclass(kw_only=True)
class Worker:
    """A fork, and the tests that it was given and has not finished."""

    pid: int
    line: Connection
    given: deque[int] = field(default_factory=deque)
    broke: str = ""  # what ended it, where it could say so


class Beside:
    """Runs the tests of a session in forks, and reports what they say."""

    def __init__(self, workers: int):
        self._count = workers
        self._workers: list[Worker] = []
        self._files: deque[list[int]] = deque()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests; a session that only collects, or could not, is left to pytest."""
        if session.config.option.collectonly or session.testsfailed or threading.active_count() > 1:
            return None
        numbered = enumerate(session.items)
        self._files.extend([number for number, _ in tests] for _, tests in groupby(numbered, lambda one: one[1].path))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends this ends what it started
        try:
            for _ in range(min(self._count, len(self._files))):
                self._start(session)
            while self._workers:
                for line in wait([worker.line for worker in self._workers]):
                    self._hear(session, next(worker for worker in self._workers if worker.line is line))
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            self._end()
        return True

    def _start(self, session: pytest.Session) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self._workers:
                other.line.close()
            _work(session, theirs)
        theirs.close()
        self._workers.append(Worker(pid=pid, line=ours))

    def _hear(self, session: pytest.Session, worker: Worker) -> None:
        hook = session.config.hook
        try:
            said, value = worker.line.recv()
        except (EOFError, ConnectionError):
            self._lost(session, worker)
            return
        if said == "wants":
            given = self._files.popleft() if self._files else []
            worker.given.extend(given)
            with suppress(BrokenPipeError):  # it died, and is heard of no more
                worker.line.send(given)
        elif said == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=value)
            hook.pytest_runtest_logreport(report=report)
        elif said == "broke":
            worker.broke = value
        elif said == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=value)
        elif said == "start":
            item = session.items[value]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        else:
            item = session.items[worker.given.popleft()]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _lost(self, session: pytest.Session, worker: Worker) -> None:
        """Report the test at which a worker ended before its time, and have another one do the rest."""
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        worker.line.close()
        self._workers.remove(worker)
        if worker.given:
            item = session.items[worker.given.popleft()]
            said = f"its process ended with status {status}\n{worker.broke}".rstrip()
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            session.config.hook.pytest_runtest_logreport(report=report)
        if worker.given:
            self._files.appendleft(list(worker.given))
        if self._files:
            self._start(session)

    def _end(self) -> None:
        """Interrupt whatever still runs, and kill what does not end."""
        for worker in self._workers:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        for worker in self._workers:
            while worker.line.poll(END_S):
                with suppress(Exception):
                    worker.line.recv_bytes()
                    continue
                break
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


class _Told:
    """Passes on what pytest reports in a worker."""

    def __init__(self, config: pytest.Config, line: Connection):
        self._config = config
        self._line = line
        self.is_live = False  # what was recorded before the fork is told once it is registered, and known

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass on a report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._line.send(("report", data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: object) -> None:
        """Pass on a warning that can be passed on."""
        if not self.is_live:
            return
        told = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            self._line.send(("warning", told))


def _work(session: pytest.Session, line: Connection) -> None:
    """Run what the other end gives, in a process of its own, and end it."""
    config, status = session.config, 1
    try:
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.resume_global_capture()
        for stream in (sys.stdout, sys.stderr):  # which others have taken hold of: they stay, over files of their own
            if (descriptor := stream.fileno()) > 2:
                with TemporaryFile() as own:
                    os.dup2(own.fileno(), descriptor)
        capture.suspend_global_capture()
        config.pluginmanager.unregister(name="terminalreporter")
        told = _Told(config, line)
        config.pluginmanager.register(told)
        told.is_live = True
        numbers = _given(line)
        number = next(numbers, None)
        while number is not None:
            line.send(("start", number))
            following = next(numbers, None)
            item = session.items[number]
            item.config.hook.pytest_runtest_protocol(
                item=item, nextitem=None if following is None else session.items[following]
            )
            line.send(("finish", number))
            number = following
        status = 0
    except BaseException:
        with suppress(OSError):  # who is not heard any more ends all the same
            line.send(("broke", traceback.format_exc()))
    finally:
        with suppress(BaseException):
            config.pluginmanager.getplugin("runner").pytest_sessionfinish(session)  # what an interrupted test left
            atexit._run_exitfuncs()
        os._exit(status)


def _given(line: Connection) -> Iterator[int]:
    """The tests that the other end gives, asked for when they are needed."""
    while True:
        line.send(("wants", None))
        if not (numbers := line.recv()):
            return
        yield from numbers
