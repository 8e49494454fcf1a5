"""A streamed answer on its way through its filter: what is like an event that was read passes as it came."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import orjson
from msgspec import Struct

from aegis.core.json import parse
from aegis.errors import ForeignAnswer, InvalidCall
from aegis.wire.model import Alike, Path, Step, StreamFilter, Values, WireEvent
from aegis.wire.sse import SSE, Framing

# Events that differ from one which was read in a few texts and numbers alone: they pass without being read again.
#
# A form is the event's own bytes with gaps. What fits has the same structure by construction, a call included: a
# gap takes exactly one JSON text, or one number in digits, and every other byte is the same. What does not fit is
# read.

_MAX_DIGITS: Final = 15  # below what a double holds exactly
_CLOSING: Final = b'"}] '
_PUNCTUATION: Final = " \t\r\n,:[]{}"
_DECODER: Final = json.JSONDecoder()
_MOST_LEVELS: Final = 32  # of a document that is looked at; deeper ones have no form


class Form(Struct, frozen=True, kw_only=True):
    """`pieces` are the bytes around the gaps, `names` what the gaps are called, `digits` which of them are numbers."""

    pieces: tuple[bytes, ...]
    names: tuple[str, ...]
    digits: tuple[bool, ...]
    closing: bytes  # the last piece without its blanks where it only closes; some providers pad it
    passed: Callable[[Values], bool]

    def takes(self, frame: bytes) -> bool:
        """Whether the event, as it came without the blank line after it, fits; then the filter knows of it."""
        pieces = self.pieces
        if not frame.startswith(pieces[0]):
            return False
        at = len(pieces[0])
        if frame.endswith(pieces[-1]):
            stop = len(frame) - len(pieces[-1])
        else:
            stop = frame.rfind(b'"')
            if not self.closing or frame[stop:].replace(b" ", b"") != self.closing:
                return False
        values: dict[str, Any] = {}
        for number, name in enumerate(self.names):
            last = number == len(self.names) - 1
            end = stop if last else frame.find(pieces[number + 1], at, stop)
            if end < at:
                return False
            value = _forms_read(frame[at:end], self.digits[number])
            if value is None:
                return False
            values[name] = value
            at = end if last else end + len(pieces[number + 1])
        return self.passed(values)


def form_of(event: WireEvent, value: Any, alike: Alike) -> Form | None:
    """The form of an event that spells `value`; `None` where it has none."""
    if event.id or event.retry or "\n" in event.data:
        return None
    spans = _spans(event.data, value)
    found = sorted((spans[path], path) for path in alike.gaps if path in spans)
    if not found:
        return None
    data, name = event.data, f"event: {event.event}\n" if event.event else ""
    pieces: list[bytes] = []
    digits: list[bool] = []
    at, head = 0, f"{name}data: "
    for (start, end), _ in found:
        text = data[start] == '"'
        if not text and _forms_read(data[start:end].encode(), True) is None:
            return None
        pieces.append((head + data[at : start + text]).encode())
        digits.append(not text)
        at, head = end - text, ""
    last = data[at:].encode()
    return Form(
        pieces=(*pieces, last),
        names=tuple(str(path[-1]) for _, path in found),
        digits=tuple(digits),
        closing=b"" if last.strip(_CLOSING) or digits[-1] else last.replace(b" ", b""),
        passed=alike.passed,
    )


def _forms_read(raw: bytes, digits: bool) -> Any:
    """What stands in a gap, `None` where it is anything but one text or one number."""
    if digits:
        plain = raw.isdigit() and len(raw) <= _MAX_DIGITS and (raw[:1] != b"0" or raw == b"0")
        return int(raw) if plain else None
    try:
        text = orjson.loads(b'"%b"' % raw)
    except orjson.JSONDecodeError:
        return None
    return text if isinstance(text, str) else None


def _spans(data: str, value: Any) -> dict[Path, tuple[int, int]]:
    """Where in `data`, which spells `value`, its texts and numbers stand; nothing where the two do not go together."""
    words, tokens = list(_words(value, ())), list(_tokens(data))
    if len(words) != len(tokens):
        return {}
    return {path: span for path, span in zip(words, tokens, strict=True) if path is not None}


def _words(value: Any, path: Path) -> Iterator[Path | None]:
    """The path of every word of a document in its order; `None` for names of members."""
    if len(path) > _MOST_LEVELS:
        return
    if isinstance(value, dict):
        for name, member in value.items():
            yield None
            yield from _words(member, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _words(item, (*path, index))
    else:
        yield path


def _tokens(data: str) -> Iterator[tuple[int, int]]:
    """The words of a document: texts with their quotes, numbers and constants."""
    at = 0
    while at < len(data):
        if data[at] in _PUNCTUATION:
            at += 1
            continue
        start = at
        _, at = _DECODER.raw_decode(data, start)
        yield start, at


_MOST_FORMS: Final = 4
_TRIES: Final = 32  # forms made in vain before no more are made: a stream may repeat itself never


class WireFlow:
    """Bytes in; out come bytes that pass as they are, and steps of the filter for what had to be read.

    The filter has to be settled after a step with calls before the next part is asked for. `watch` is told what every
    event says that is read; what comes like one that it wants is read as well.
    """

    def __init__(
        self, gate: StreamFilter, framing: Framing = SSE, watch: Callable[[Any], bool] = lambda _: False
    ) -> None:
        self._gate = gate
        self._watch = watch
        self._reader = framing.reader()
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

    def _steps(self, events: Iterable[WireEvent]) -> Iterator[Step]:
        for event in events:
            value = _read(event)
            wanted = self._watch(value)
            step = self._gate.feed(event, value)
            self._learn(event, value, step, wanted)
            yield step

    def _learn(self, event: WireEvent, value: Any, step: Step, wanted: bool) -> None:
        """Keep the form of an event that passed unchanged; any other one may change what the forms stand for."""
        passed = not step.calls and len(step.events) == 1 and step.events[0] is event
        alike = self._gate.alike(value) if passed and not wanted and isinstance(value, dict) else None
        if alike is None:
            self._forms = []
        elif self._tries:
            self._tries -= 1
            form = form_of(event, value, alike)
            if form is not None and all(form.pieces != one.pieces for one in self._forms):
                self._forms = [form, *self._forms][:_MOST_FORMS]


def _read(event: WireEvent) -> Any:
    """What an event says, read once. What two parsers could read differently is refused: a call that one of them sees
    must be seen here."""
    if not event.data or event.data.startswith("[DONE]"):
        return None
    try:
        return parse(event.data.encode())
    except InvalidCall as error:
        raise ForeignAnswer("an event of the stream is not strict JSON") from error
