from __future__ import annotations

from pathlib import Path

import pytest

from aegis.config.config import load_config
from aegis.config.reload import Change, FileWatch, PolicyHolder
from aegis.config.trusted import read_trusted
from aegis.core.outcome import Outcome
from aegis.errors import ConfigError, StoreUnavailable
from aegis.policy.model import Incoming
from support.cases import AGENT


def holder(path: Path, text: str = "version: 1\n") -> tuple[PolicyHolder, list[Change]]:
    path.write_text(text)
    path.chmod(0o600)
    changes: list[Change] = []
    return PolicyHolder(load_config(path), path=path, record=changes.append), changes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aegis.yaml"


def test_a_changed_file_is_recorded_before_it_is_in_force(path: Path) -> None:
    held, _ = holder(path)
    before = held.current.digest
    in_force_when_recorded: list[str] = []
    held.on_change(lambda change: in_force_when_recorded.append(held.current.digest))
    path.write_text("limits: {rate: 5/minute}\n")
    change = held.reload("file")
    assert change is not None
    assert (change.before, change.after, change.trigger) == (before, held.current.digest, "file")
    assert in_force_when_recorded == [before]
    assert held.current.digest != before


def test_a_file_of_the_same_meaning_is_no_change(path: Path) -> None:
    held, changes = holder(path)
    path.write_text("version: 1  # only a comment\n")
    assert held.reload("signal") is None
    assert changes == []


@pytest.mark.parametrize("text", ["limits: {rate: often}\n", "", "policies: [{name: a, cedar: 'permit('}]"])
def test_a_file_that_does_not_compile_leaves_the_old_one_in_force(path: Path, text: str) -> None:
    held, changes = holder(path)
    before = held.current
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        held.reload("file")
    assert held.current is before
    assert changes == []


def test_a_change_that_cannot_be_recorded_is_not_made(path: Path) -> None:
    held, _ = holder(path)
    before = held.current

    def refuse(_: Change) -> None:
        raise StoreUnavailable("disk full")

    held.on_change(refuse)
    path.write_text("limits: {rate: 5/minute}\n")
    with pytest.raises(StoreUnavailable):
        held.reload("file")
    with pytest.raises(StoreUnavailable):
        held.replace("version: 1\nlimits: {rate: 6/minute}\n", by="admin")
    assert held.current is before
    assert path.read_text() == "limits: {rate: 5/minute}\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["aegis.yaml"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    held, _ = holder(path)
    path.write_text("limits: {rate: 5/minute}\n")
    path.chmod(mode)
    with pytest.raises(ConfigError, match="others can write"):
        held.reload("file")


def test_a_file_that_others_can_replace_is_refused(path: Path) -> None:
    held, _ = holder(path)
    path.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="others can replace"):
        held.reload("file")
    path.parent.chmod(0o1777)
    assert held.reload("file") is None


def test_what_is_not_a_file_or_not_there_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trusted(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trusted(path.parent)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_trusted(Path("/dev/null"))


def test_a_replaced_configuration_is_in_the_file_and_in_force(path: Path) -> None:
    held, changes = holder(path)
    held.replace("version: 1\nlimits: {rate: 7/minute}\n", by="admin-key")
    assert path.read_text() == "version: 1\nlimits: {rate: 7/minute}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(change.trigger, change.by) for change in changes] == [("api", "admin-key")]
    assert held.reload("file") is None


def test_a_linked_configuration_stays_linked(path: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "config.yaml"
    real.write_text("version: 1\n")
    path.symlink_to(real)
    held = PolicyHolder(load_config(path), path=path)
    held.replace("version: 1\nlimits: {rate: 7/minute}\n", by="admin")
    assert path.is_symlink()
    assert real.read_text() == "version: 1\nlimits: {rate: 7/minute}\n"


def test_a_configuration_that_others_can_replace_is_not_written(path: Path) -> None:
    held, changes = holder(path)
    path.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="others can replace"):
        held.replace("version: 1\nlimits: {rate: 7/minute}\n", by="admin")
    assert (path.read_text(), changes) == ("version: 1\n", [])


def test_a_candidate_is_checked_without_being_in_force(path: Path) -> None:
    held, changes = holder(path)
    before = held.current
    assert held.check("limits: {rate: 5/minute}").policy.digest != before.digest
    with pytest.raises(ConfigError):
        held.check("limits: {rate: often}")
    assert held.current is before
    assert changes == []


def test_a_reload_frees_nobodys_limit(path: Path) -> None:
    held, _ = holder(path, "limits: {rate: 1/minute}\n")
    call = Incoming(tool="t", server=None, arguments={}, principal=AGENT, agent="bot", session="", call_id="c", now=0)
    assert held.current.evaluate(call).combined.outcome is Outcome.ALLOW
    held.replace("version: 1\nlimits: {rate: 1/minute, max_depth: 9}\n", by="admin")
    assert held.current.evaluate(call).combined.outcome is Outcome.BLOCK


def test_without_a_file_there_is_nothing_to_reload() -> None:
    held = PolicyHolder(load_config())
    assert held.reload("signal") is None
    held.replace("version: 1\nlimits: {rate: 5/minute}", by="admin")
    assert held.config.settings.limits.rate is not None
    assert held.config.settings.limits.rate.limit == 5


def test_a_changed_file_is_noticed_when_it_has_come_to_rest(path: Path) -> None:
    path.write_text("version: 1\n")
    calls: list[str] = []
    watch = FileWatch(path, lambda: calls.append(path.read_text()))
    assert not watch.look()
    path.write_text("version: 1 # longer\n")
    assert not watch.look()
    assert watch.look()
    assert not watch.look()
    path.unlink()
    assert not watch.look()
    assert not watch.look()
    path.write_text("version: 1 # back again\n")
    assert not watch.look()
    assert watch.look()
    assert calls == ["version: 1 # longer\n", "version: 1 # back again\n"]


def test_a_file_that_was_refused_is_read_again_when_only_its_owner_may_write_it(path: Path) -> None:
    """Nothing of what it holds changes then."""
    path.write_text("version: 1\n")
    path.chmod(0o666)
    modes: list[int] = []
    watch = FileWatch(path, lambda: modes.append(path.stat().st_mode & 0o777))
    path.chmod(0o600)
    assert not watch.look()
    assert watch.look()
    assert modes == [0o600]


def test_the_watch_runs_in_a_thread_and_stops(path: Path) -> None:
    path.write_text("version: 1\n")
    watch = FileWatch(path, lambda: None, seconds=0.001)
    watch.start()
    watch.stop()
    assert not watch._thread.is_alive()
