"""The records of conversations in the store: found again while they are young, forgotten when they are old."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aegis.bootstrap import Deployment
from aegis.core.ports import Document
from aegis.core.times import MICROS
from aegis.proxies.models.book import CALLS, KEPT_MONTHS, REMOVALS, Book
from support.deployments import deployment

MONTH = 31 * 86_400 * MICROS


def kept(place: Deployment) -> list[str]:
    with place.store.reader() as reader:
        return sorted(one.key for name in (CALLS, REMOVALS) for one in reader.documents(name))


def record(collection: str, key: str) -> Document:
    return Document(collection=collection, key=key, version=1, body=b'""')


async def test_records_are_forgotten_after_their_months_and_no_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = deployment(tmp_path / "home")
    try:
        parts, now = place.gate.parts, place.gate.parts.clock()
        book = Book(place.gate)
        await book.write([record(CALLS, f"old-{number:04}") for number in range(700)])
        await book.write([record(REMOVALS, "held"), record(REMOVALS, "old")])
        monkeypatch.setattr(place.gate, "parts", replace(parts, clock=lambda: now + (KEPT_MONTHS - 1) * MONTH))
        await book.write([record(REMOVALS, "held"), record(CALLS, "young")])  # written again, so it is young
        assert book.prune() == 0
        monkeypatch.setattr(place.gate, "parts", replace(parts, clock=lambda: now + (KEPT_MONTHS + 2) * MONTH))
        assert book.prune() == 701
        assert kept(place) == ["held", "young"]
        assert book.prune() == 0
    finally:
        place.close()
