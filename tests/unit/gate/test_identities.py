"""What the files of a held call are bound by."""

from __future__ import annotations

from pathlib import Path

import pytest

from aegis.detect.facts import ReadLimits
from aegis.gate import identities
from aegis.gate.identities import identities_of

CHANGING = "/proc/sys/kernel/random/uuid"  # no size, and something else at every reading


@pytest.mark.skipif(not Path(CHANGING).exists(), reason="the file is the kernel's of Linux")
def test_a_file_whose_size_says_nothing_is_read_no_further_than_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest() -> str | None:
        return identities_of({"command": f"sh {CHANGING}"}, ReadLimits(), "").digest

    assert digest() != digest()
    monkeypatch.setattr(identities, "MAX_PROGRAM", 8)
    assert digest() == digest() is not None
