"""What a gateway tells its operator: structured logs, and metrics for Prometheus.

A log line is one JSON object on standard error, without argument values.

Whatever a record carries in `extra` becomes a member; an exception becomes its type and the places
of its traceback, never its message, which may quote what was being handled. A line that nobody reads
holds nothing up.
"""

from __future__ import annotations

import logging
import logging.config
import os
import queue
import threading
import time
import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from opentelemetry import context, propagate, trace
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome
from aegis.core.principal import Principal
from aegis.core.times import rfc3339
from aegis.gate.events import Event
from aegis.gate.gate import Decide

# Writing log lines without ever waiting for their reader.
#
# Whoever logs puts a line into a bounded queue; one thread writes it. Where nobody reads the other end of a pipe,
# that thread waits and the queue fills; what comes then is dropped and counted, and the count is written as a line
# of its own once there is room.

MAX_LINES: Final = 10_000  # bounds what a reader that sleeps can make us hold in memory
FLUSH_S: Final = 2.0  # how long the end of the process waits for the lines before it

Write = Callable[[str], object]


class LineHandler(logging.Handler):
    """Formats records where they are made, and has `write` called with each line by a thread of its own."""

    def __init__(self, write: Write, *, most: int = MAX_LINES):
        super().__init__()
        self._write = write
        self._lines: queue.Queue[str] = queue.Queue(most)
        self._counting = threading.Lock()
        self._unreported = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="aegis-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take the record; never waits."""
        try:
            self._lines.put_nowait(self.format(record) + "\n")
        except queue.Full:
            with self._counting:
                self.dropped += 1
                self._unreported += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until everything taken so far is written, for `FLUSH_S` at most."""
        until = time.monotonic() + FLUSH_S
        while self._lines.unfinished_tasks and time.monotonic() < until and self._thread.is_alive():
            time.sleep(0.001)

    def _work(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._write(line)
                if self._unreported:
                    self._write(self.format(self._report()) + "\n")
            except (OSError, ValueError):  # nobody is left to read, and nobody else could be told
                with self._counting:
                    self.dropped += 1
            finally:
                self._lines.task_done()

    def _report(self) -> logging.LogRecord:
        with self._counting:
            count, self._unreported = self._unreported, 0
        record = logging.LogRecord("aegis.server", logging.WARNING, "", 0, "log lines were dropped", None, None)
        record.dropped = count
        return record


_PLAIN: Final = frozenset(
    {*logging.LogRecord("", 0, "", 0, "", None, None).__dict__, "message", "asctime", "taskName", "color_message"}
)
MAX_FRAMES: Final = 20
_STDERR: Final = 2


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": rfc3339(int(record.created * 1e6)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _PLAIN:
                line[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = type(record.exc_info[1]).__qualname__
            line["at"] = [
                f"{frame.filename}:{frame.lineno} in {frame.name}"
                for frame in traceback.extract_tb(record.exc_info[2])[-MAX_FRAMES:]
            ]
        return orjson.dumps(line, default=str).decode()


def configure_logs(level: str = "info") -> None:
    """Send every record of this process through the one formatter, to standard error."""
    handler = LineHandler(_to_stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.error").setLevel("WARNING")  # its start and stop lines say less than ours


def dropped_lines() -> int:
    """Return how many log lines of this process nobody read in time."""
    return sum(handler.dropped for handler in logging.getLogger().handlers if isinstance(handler, LineHandler))


def _to_stderr(line: str) -> None:
    """Write past the buffer of `sys.stderr`: who waits inside that holds a lock that the end of Python needs."""
    data = line.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(_STDERR, data) :]


# Prometheus metrics, counted in plain numbers on the way and put into words only when somebody asks.
#
# Everything that the gate records passes `count`, which costs about a microsecond; it is called from the event loop
# alone. Labels come from closed sets: nothing that a caller can choose is a label.

# OpenTelemetry spans around decisions, where the host has configured a provider; elsewhere no cost at all.


def configured() -> bool:
    """Tell whether the host has set a tracer provider of its own."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def traced(decide: Decide) -> Decide:
    """`decide` inside a span that carries the outcome, and no argument."""
    tracer = trace.get_tracer("aegis.server")

    async def decide_traced(call: ToolCall, *, principal: Principal) -> Decision:
        with tracer.start_as_current_span("aegis.decide", kind=trace.SpanKind.SERVER) as span:
            decision = await decide(call, principal=principal)
            span.set_attributes(
                {
                    "aegis.decision": decision.outcome.word,
                    "aegis.reason": decision.reason.value,
                    "aegis.decision_id": decision.decision_id,
                    "aegis.policy_digest": decision.policy_digest,
                    "gen_ai.tool.name": call.tool,
                }
            )
            return decision

    return decide_traced


class CallersTrace:
    """Continues the trace that the caller's headers name (W3C Trace Context)."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        token = context.attach(propagate.extract(carrier))
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
_CLOCK: Final = "clock"  # the one event that is no receipt
_GUARD_MICROS: Final = tuple(round(bound * 1e6) for bound in SECONDS)


class _Histogram:
    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]):
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        seen, rows = 0, []
        for bound, count in zip((*(str(bound) for bound in SECONDS), "+Inf"), self.counts, strict=True):
            seen += count
            rows.append((bound, float(seen)))
        return rows


class Metrics(Collector):
    """The counters of one process of a gateway, or with `is_own` false of those that `add` takes in."""

    def __init__(self, *, is_own: bool = True) -> None:
        self._is_own = is_own
        self._dropped = 0
        self._decisions: dict[tuple[str, str], int] = defaultdict(int)
        self._receipts: dict[str, int] = defaultdict(int)
        self._results: dict[tuple[str, str], int] = defaultdict(int)
        self._guards: dict[tuple[str, Outcome], int] = defaultdict(int)
        self._guard_time: dict[str, _Histogram] = {}
        self._decision_time = _Histogram(SECONDS)
        self._unrecorded = 0

    def count(self, event: Event) -> None:
        """Take one recorded event in; a listener of the gate."""
        self._receipts[event.kind] += 1
        decision = event.decision
        if decision is not None:
            self._decisions[decision.outcome.word, decision.reason.word] += 1
            self._decision_time.observe(event.seconds)
            for time in decision.guards:
                guard, us = time.guard, time.us
                self._guards[guard, time.outcome] += 1
                histogram = self._guard_time.get(guard)
                if histogram is None:
                    histogram = self._guard_time[guard] = _Histogram(_GUARD_MICROS)
                histogram.counts[bisect_left(_GUARD_MICROS, us)] += 1
                histogram.total += us
        elif event.kind == "result" and event.members.get("execution") != "unknown":  # one that never came
            self._results[event.members["decision"], event.members["reason"]] += 1

    def count_unrecorded(self) -> None:
        """Take in one call that was refused because the log could not be written."""
        self._unrecorded += 1

    def counted(self) -> dict[str, Any]:
        """Everything counted so far, as JSON can hold it; `add` takes it in."""
        histograms = {"": self._decision_time, **self._guard_time}
        return {
            "decisions": [[*key, count] for key, count in list(self._decisions.items())],
            "receipts": [[key, count] for key, count in list(self._receipts.items())],
            "results": [[*key, count] for key, count in list(self._results.items())],
            "guards": [[name, outcome.word, count] for (name, outcome), count in list(self._guards.items())],
            "times": [[name, one.counts, one.total] for name, one in list(histograms.items())],
            "unrecorded": self._unrecorded,
            "dropped": self._lines_dropped,
        }

    def add(self, counted: Mapping[str, Any]) -> None:
        """Take in what another process counted."""
        for outcome, reason, count in counted["decisions"]:
            self._decisions[outcome, reason] += count
        for kind, count in counted["receipts"]:
            self._receipts[kind] += count
        for outcome, reason, count in counted["results"]:
            self._results[outcome, reason] += count
        for name, outcome, count in counted["guards"]:
            self._guards[name, Outcome[outcome.upper()]] += count
        for name, counts, total in counted["times"]:
            one = self._guard_time.setdefault(name, _Histogram(_GUARD_MICROS)) if name else self._decision_time
            one.counts = [mine + others for mine, others in zip(one.counts, counts, strict=True)]
            one.total += total
        self._unrecorded += counted["unrecorded"]
        self._dropped += counted["dropped"]

    def quantiles(self, shares: Sequence[float]) -> list[float | None]:
        """Upper bounds (microseconds) of the time within which these shares of the decisions were made."""
        counts = self._decision_time.counts
        total, found = sum(counts), []
        for share in shares:
            seen, bound = 0, None
            for at, count in enumerate(counts if total else ()):
                seen += count
                if seen >= share * total:
                    bound = SECONDS[min(at, len(SECONDS) - 1)] * 1e6
                    break
            found.append(bound)
        return found

    @property
    def _lines_dropped(self) -> int:
        return self._dropped + (dropped_lines() if self._is_own else 0)

    def collect(self) -> Iterable[Metric]:
        """Return the metric families of this moment."""
        decisions = CounterMetricFamily(
            "aegis_decisions", "Decisions by outcome and reason.", labels=("outcome", "reason")
        )
        for pair, count in list(self._decisions.items()):
            decisions.add_metric(pair, count)
        yield decisions
        results = CounterMetricFamily(
            "aegis_results", "Judged tool results by outcome and reason.", labels=("outcome", "reason")
        )
        for pair, count in list(self._results.items()):
            results.add_metric(pair, count)
        yield results
        guards = CounterMetricFamily("aegis_guard_outcomes", "What each guard demanded.", labels=("guard", "outcome"))
        for (guard, outcome), count in list(self._guards.items()):
            guards.add_metric((guard, outcome.word), count)
        yield guards
        receipts = CounterMetricFamily("aegis_receipts", "Receipts recorded by this process.", labels=("kind",))
        for kind, count in list(self._receipts.items()):
            if kind != _CLOCK:
                receipts.add_metric((kind,), count)
        yield receipts
        yield CounterMetricFamily(
            "aegis_unrecorded_refusals",
            "Calls refused because the log could not be written.",
            value=self._unrecorded,
        )
        latency = HistogramMetricFamily("aegis_decision_seconds", "Time from evaluation to durable record.")
        latency.add_metric((), self._decision_time.buckets(), self._decision_time.total)
        yield latency
        yield CounterMetricFamily(
            "aegis_clock_regressions",
            "How often the clock ran behind the log's last time.",
            value=self._receipts.get(_CLOCK, 0),
        )
        guard_time = HistogramMetricFamily("aegis_guard_seconds", "Time in each guard.", labels=("guard",))
        for guard, histogram in list(self._guard_time.items()):
            guard_time.add_metric((guard,), histogram.buckets(), histogram.total / 1e6)
        yield guard_time
        yield CounterMetricFamily(
            "aegis_log_lines_dropped",
            "Lines of the program's own log that nobody read in time.",
            value=self._lines_dropped,
        )


def exposition(metrics: Metrics, gauges: Mapping[str, tuple[str, float]]) -> bytes:
    """Return the Prometheus text of `metrics` and of `gauges` (name to description and value)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    registry.register(_Gauges(gauges))
    return generate_latest(registry)


class _Gauges(Collector):
    def __init__(self, gauges: Mapping[str, tuple[str, float]]):
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for name, (text, value) in self._gauges.items():
            yield GaugeMetricFamily(name, text, value=value)
