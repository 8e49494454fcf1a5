"""Payloads beside an export: written for a verifier that is to see arguments, and read in step with the receipts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from aegis.core.breaks import Break
from aegis.core.canonical import payload_commitment
from aegis.core.json import parse
from aegis.core.ports import Reader
from aegis.errors import InvalidCall, LogInvalid

PAYLOADS: Final = "payloads.jsonl"
MAX_LINE: Final = 67_108_864  # one payload, escaped at worst: bounds memory
Open = Callable[[bytes, bytes], bytes]


def payload_lines(reader: Reader, size: int, open_payload: Open) -> Iterator[bytes]:
    """Every payload that is still stored below leaf `size`, decrypted, as lines of JSON."""
    for index in range(size):
        stored = reader.payload(index)
        if stored is not None:
            text = open_payload(stored.key, stored.body).decode()
            yield orjson.dumps({"index": index, "salt": stored.salt.hex(), "payload": text}) + b"\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenPayload:
    """One payload as somebody handed it over: nothing of it is believed before it was compared."""

    index: int
    salt: bytes
    text: bytes


class Payloads:
    """The payloads of a file, taken in the order of the log."""

    def __init__(self, given: Iterable[GivenPayload]):
        self._given = iter(given)
        self._next = next(self._given, None)

    def of(self, receipt: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
        """The payload of a receipt and its salt, compared with what the receipt commits to.

        `None` where there is none; raises `LogInvalid` where it is another one.
        """
        index = receipt["index"]
        while self._next is not None and self._next.index < index:
            self._next = next(self._given, None)
        if self._next is None or self._next.index != index:
            return None
        given = self._next
        if receipt.get("payload_commitment") != payload_commitment(given.salt, given.text):
            raise _changed("`payload_commitment`")
        payload: dict[str, Any] = parse(given.text)
        return payload, given.salt


def read_payloads(path: Path) -> Iterator[GivenPayload]:
    """The payloads of a file, line by line, in growing order; raises `LogInvalid` for anything else."""
    last = -1
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE):
            try:
                value = parse(line)
                given = GivenPayload(
                    index=value["index"], salt=bytes.fromhex(value["salt"]), text=value["payload"].encode()
                )
            except (InvalidCall, KeyError, TypeError, ValueError, AttributeError) as error:
                raise _changed("a line is malformed") from error
            if type(given.index) is not int or given.index <= last:
                raise _changed("a line stands in the wrong place")
            last = given.index
            yield given


def _changed(detail: str) -> LogInvalid:
    return LogInvalid(Break(kind="payload_changed", detail=detail))
