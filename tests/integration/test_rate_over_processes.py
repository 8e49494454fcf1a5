"""One rate for an agent, whichever process on the log decides its calls."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Store
from aegis.errors import StoreUnavailable
from aegis.gate import repeat
from aegis.gate.repeat import Elsewhere
from support.deployments import deployment
from support.shell import aegis

CONFIG = "version: 1\nlimits: {rate: 6/hour}\n"
READ = ToolCall(tool="read_file", arguments={"path": "notes.txt"})


def decide(home: Path) -> CompletedProcess[str]:
    """One call of the same agent, in a process of its own."""
    return aegis("decide", "-", "--home", home, "--agent", "bot", stdin='{"tool": "read_file", "arguments": {}}')


def test_what_another_process_let_through_is_counted_from_the_first_call_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    deployment(home, CONFIG).close()
    for _ in range(2):
        assert decide(home).returncode == 0
    with closing(deployment(home, CONFIG)) as place:
        outcomes = [place.gate.decide(READ).outcome for _ in range(5)]
    assert outcomes == [Outcome.ALLOW] * 4 + [Outcome.BLOCK]
    refused = decide(home)
    assert refused.returncode != 0
    assert "rate_limited" in refused.stdout


def test_two_that_run_beside_each_other_share_the_rate(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with closing(deployment(home, CONFIG)) as one, closing(deployment(home, CONFIG)) as other:
        gates = (one.gate, other.gate) * 8
        allowed = [gate.decide(READ).allowed for gate in gates]
        assert 6 <= sum(allowed) <= 7  # a process sees what was written before its own last record
        assert not any(gate.decide(READ).allowed for gate in gates)


def test_calls_of_other_agents_and_refused_ones_take_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with closing(deployment(home, CONFIG, agent="other")) as other:
        assert [other.gate.decide(READ).allowed for _ in range(9)] == [True] * 6 + [False] * 3
    with closing(deployment(home, CONFIG)) as place:
        assert place.gate.decide(READ).allowed


def test_a_call_that_is_repeated_is_counted_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    call = ToolCall(tool="read_file", arguments={"path": "notes.txt"}, call_id="c-1")
    with closing(deployment(home, CONFIG)) as place:
        assert all(place.gate.decide(call).allowed for _ in range(9))
    with closing(deployment(home, CONFIG)) as place:
        assert [place.gate.decide(READ).allowed for _ in range(6)] == [True] * 5 + [False]


def test_where_the_log_cannot_be_read_nothing_passes_uncounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    with closing(deployment(home, CONFIG)) as place:
        for _ in range(6):
            assert place.gate.decide(READ).allowed

    def gone(store: Store, **_: object) -> None:
        raise StoreUnavailable("the disk is gone")

    with closing(deployment(home, CONFIG)) as place:
        with monkeypatch.context() as patched:
            patched.setattr(type(place.store), "reader", gone)
            refused = place.gate.decide(READ)
        assert (refused.outcome, refused.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
        assert place.gate.decide(READ).reason is Reason.RATE_LIMITED


def test_a_process_that_comes_late_looks_at_a_bounded_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeat, "MAX_RECEIPTS", 3)
    with closing(deployment(tmp_path / "home", CONFIG)) as place:
        decisions = [place.gate.decide(READ) for _ in range(6)]
        late = Elsewhere(place.store)
        assert len(list(late.take(0))) == 3
        assert not late.moved
        assert decisions[-1].receipt is not None
        end = decisions[-1].receipt.index + 1
        late.written(0, end)  # it was there before
        assert list(late.take(0)) == []


def test_only_what_lies_in_the_window_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "_PAGE", 2)
    with closing(deployment(tmp_path / "home", CONFIG)) as place:
        for _ in range(5):
            place.gate.decide(READ)
        times = [time for _, time in Elsewhere(place.store).take(0)]
        assert times == sorted(times)
        assert [agent for agent, _ in Elsewhere(place.store).take(times[2])] == ["bot"] * 3
        assert list(Elsewhere(place.store).take(times[-1] + 1)) == []
