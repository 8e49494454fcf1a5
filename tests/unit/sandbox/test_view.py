"""Copies of a workspace, what they show of changes, and digests of folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aegis.errors import WorkspaceError
from aegis.sandbox import Box, Limits, Mount, run
from aegis.sandbox.view import copied, read_folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "src" / "deep").mkdir(parents=True)
    (place / "src" / "a.txt").write_text("a")
    (place / "src" / "deep" / "b.txt").write_text("b")
    (place / "run.sh").write_text("#!/bin/sh\n")
    (place / "run.sh").chmod(0o750)
    (place / "link").symlink_to("src/a.txt")
    os.mkfifo(place / "pipe")
    return place


def digest(place: Path) -> str:
    return read_folder(str(place)).digest


def test_a_run_changes_the_copy_and_never_the_workspace(workspace: Path) -> None:
    before = digest(workspace)
    with copied(str(workspace)) as view:
        mount = Mount(source=view.folder, target=str(workspace), writable=True)
        script = "rm -rf src/deep && echo more >> src/a.txt && chmod 700 run.sh && mkdir out && echo x > out/y"
        run(["sh", "-c", script], Box(mounts=(mount,), cwd=str(workspace)), Limits())
        changes = [(change.path, change.change, change.before, change.after) for change in view.changes()]
        folder = view.folder
    assert changes == [
        ("out", "created", None, 0),
        ("out/y", "created", None, 2),
        ("run.sh", "changed", 10, 10),
        ("src/a.txt", "changed", 1, 6),
        ("src/deep", "deleted", 0, None),
        ("src/deep/b.txt", "deleted", 1, None),
    ]
    assert digest(workspace) == before
    assert not Path(folder).parent.exists()


def test_a_copy_is_removed_whatever_was_done_to_its_modes(workspace: Path) -> None:
    with copied(str(workspace)) as view:
        mount = Mount(source=view.folder, target="/w", writable=True)
        run(["sh", "-c", "chmod -R 000 /w"], Box(mounts=(mount,)), Limits())
        folder = view.folder
    assert not Path(folder).parent.exists()


def test_a_copy_is_removed_however_deep_a_run_nested_it(workspace: Path) -> None:
    with copied(str(workspace)) as view:
        mount = Mount(source=view.folder, target="/w", writable=True)
        script = "import os\nos.chdir('/w')\nfor _ in range(1_500): os.mkdir('d'); os.chdir('d')\nos.mkfifo('p')"
        assert run(["python3", "-c", script], Box(mounts=(mount,)), Limits()).code == 0
        folder = view.folder
    assert not Path(folder).parent.exists()


def test_an_untouched_copy_shows_no_change(workspace: Path) -> None:
    with copied(str(workspace)) as view:
        assert view.changes() == []


@pytest.mark.parametrize(
    "change",
    ["echo z > src/a.txt", "touch new", "rm link", "chmod 600 src/a.txt", "mv src/a.txt src/c.txt", "ln -sfn src link"],
)
def test_every_change_moves_the_digest(workspace: Path, change: str) -> None:
    before = digest(workspace)
    assert digest(workspace) == before
    assert os.system(f"cd {workspace} && {change}") == 0
    assert digest(workspace) != before


def test_a_change_that_keeps_size_and_times_moves_the_digest(workspace: Path) -> None:
    file = workspace / "src" / "a.txt"
    before, seen = digest(workspace), file.stat()
    file.write_text("z")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert digest(workspace) != before


def test_what_leads_out_is_named(workspace: Path) -> None:
    assert read_folder(str(workspace)).special == ("pipe",)


def test_bounds_and_missing_folders_are_refused(workspace: Path) -> None:
    with pytest.raises(WorkspaceError, match="more than 3 files"):
        read_folder(str(workspace), max_files=3)
    with pytest.raises(WorkspaceError, match="more than 5 bytes"):
        read_folder(str(workspace), max_bytes=5)
    with pytest.raises(WorkspaceError, match="cannot be read"):
        read_folder(str(workspace / "gone"))
