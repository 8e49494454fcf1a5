"""A streamed answer on its way through its filter: what is like an event that was read passes as it came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from aegis.core.strict_json import parse
from aegis.dialects.forms import Form, form_of
from aegis.dialects.model import Event, Step, StreamFilter
from aegis.dialects.sse import SseReader
from aegis.errors import ForeignAnswer, InvalidCall

_MOST_FORMS: Final = 4
_TRIES: Final = 32  # forms made in vain before no more are made: a stream may repeat itself never


class Flow:
    """Bytes in; out come bytes that pass as they are, and steps of the filter for what had to be read.

    The filter has to be settled after a step with calls before the next part is asked for.
    """

    def __init__(self, gate: StreamFilter) -> None:
        self._gate = gate
        self._reader = SseReader()
        self._forms: list[Form] = []
        self._tries = _TRIES

    def feed(self, chunk: bytes) -> Iterator[bytes | Step]:
        """The parts of what the chunk completes, in order; raises `ForeignAnswer` for what is not understood."""
        start = at = 0
        whole = self._reader.at_rest
        while (end := chunk.find(b"\n\n", at) + 2) > 1:
            if not (whole and self._forms and self._passes(chunk[at : end - 2])):
                if start < at:
                    yield chunk[start:at]
                yield from self._steps(self._reader.feed(chunk[at:end]))
                start, whole = end, self._reader.at_rest
            at = end
        if start < at:
            yield chunk[start:at]
        if at < len(chunk):
            yield from self._steps(self._reader.feed(chunk[at:]))

    def end(self) -> Iterator[bytes | Step]:
        """The step of an event that stands at the end of the stream without a blank line."""
        yield from self._steps(self._reader.end())

    def _passes(self, frame: bytes) -> bool:
        for form in self._forms:
            if form.takes(frame):
                self._tries = _TRIES
                return True
        return False

    def _steps(self, events: Iterable[Event]) -> Iterator[Step]:
        for event in events:
            value = _read(event)
            step = self._gate.feed(event, value)
            self._learn(event, value, step)
            yield step

    def _learn(self, event: Event, value: Any, step: Step) -> None:
        """Keep the form of an event that passed unchanged; any other one may change what the forms stand for."""
        passed = not step.calls and len(step.events) == 1 and step.events[0] is event
        alike = self._gate.alike(value) if passed and isinstance(value, dict) else None
        if alike is None:
            self._forms = []
        elif self._tries:
            self._tries -= 1
            form = form_of(event, value, alike)
            if form is not None and all(form.pieces != one.pieces for one in self._forms):
                self._forms = [form, *self._forms][:_MOST_FORMS]


def _read(event: Event) -> Any:
    """What an event says, read once. What two parsers could read differently is refused: a call that one of them sees
    must be seen here."""
    if not event.data or event.data.startswith("[DONE]"):
        return None
    try:
        return parse(event.data.encode())
    except InvalidCall as error:
        raise ForeignAnswer("an event of the stream is not strict JSON") from error
