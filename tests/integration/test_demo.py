"""`aegis demo --once`, as a stranger runs it."""

from __future__ import annotations

from pathlib import Path

from support.shell import aegis


def test_the_demonstration_shows_every_outcome_and_a_log_that_verifies(tmp_path: Path) -> None:
    done = aegis("demo", "--once", home=tmp_path)
    assert done.code == 0, done.err
    for outcome in ("allow", "block", "sanitize", "require_approval", "ran after approval", "result withheld"):
        assert outcome in done.out
    assert "offline verification" in done.out
    assert not list(tmp_path.glob("*.db"))
