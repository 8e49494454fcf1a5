"""What a sandboxed program can see, do, and leave behind; every run is a real one."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from aegis.errors import SandboxUnavailable
from aegis.sandbox import Box, Limits, Mount, command, run
from aegis.sandbox.run import Cancel
from aegis.sandbox.view import copied

QUICK = Limits(seconds=20)


def shell(script: str, box: Box | None = None, limits: Limits = QUICK) -> str:
    finished = run(["sh", "-c", script], box or Box(), limits)
    assert finished.ended == "exited"
    return finished.stdout.decode()


def mounted(folder: Path, *, writable: bool = False, hidden: tuple[str, ...] = ()) -> Box:
    mount = Mount(source=str(folder), target=str(folder), writable=writable)
    return Box(mounts=(mount,), cwd=str(folder), hidden=hidden)


def test_a_run_gives_output_status_and_input() -> None:
    finished = run(["sh", "-c", "cat; echo wrong >&2; exit 7"], Box(), QUICK, stdin=b"words" * 50_000)
    assert (finished.ended, finished.code, finished.stderr) == ("exited", 7, b"wrong\n")
    assert finished.stdout == b"words" * 50_000


def test_neither_environment_home_nor_accounts_are_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEGIS_SECRET", "hush")
    seen = shell("env; ls -A / /etc 2>&1; cat /etc/shadow /etc/passwd 2>&1; ls -d ~root /home /root /run /var 2>&1")
    assert "hush" not in seen
    assert "HOME=/tmp" in seen
    assert "root:" not in seen
    assert "/root\n" not in seen.replace("'/root'", "")


def test_there_is_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        finished = run(["python3", "-c", script], Box(), QUICK)
    assert finished.code != 0
    assert b"Error" in finished.stderr


@pytest.mark.parametrize(
    "attempt",
    [
        "echo x > file", "rm file", "mv file other", "chmod 777 file", "touch new", "ln -s /etc x", "ln file y",
        "mknod d c 1 3", "truncate -s 0 file", "mkdir m", "touch -d 2001-01-01 file",
    ],
)  # fmt: skip
def test_nothing_of_a_read_only_mount_can_be_changed(tmp_path: Path, attempt: str) -> None:
    (tmp_path / "file").write_text("kept")
    finished = run(["sh", "-c", attempt], mounted(tmp_path), QUICK)
    assert finished.code != 0
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "kept")]


def test_links_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "link").symlink_to(secret)
    (workspace / "up").symlink_to("..")
    assert "hush" not in shell("cat link up/secret ../secret 2>&1", mounted(workspace))


def test_a_hidden_socket_cannot_be_spoken_to(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r})"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        finished = run(["python3", "-c", script], mounted(tmp_path, hidden=(str(path),)), QUICK)
    assert finished.code != 0


def test_system_and_devices_are_out_of_reach() -> None:
    script = "touch /usr/x /x /dev/x /proc/sys/kernel/hostname 2>&1; mount -t tmpfs t /mnt 2>&1; unshare -U true 2>&1"
    seen = run(["sh", "-c", script + "; ls /dev"], Box(), QUICK)
    assert seen.stdout.count(b"Read-only file system") + seen.stdout.count(b"Permission denied") >= 3
    assert not {b"sda", b"vda", b"mem", b"kmsg"} & set(seen.stdout.split())


@pytest.mark.parametrize(
    "script", ["sleep 60", "trap '' TERM INT; sleep 60 & sleep 60 & wait", "setsid sleep 60; true"]
)
def test_a_run_that_takes_too_long_is_gone_with_every_process(script: str) -> None:
    began = time.monotonic()
    finished = run(["sh", "-c", f"exec 9>/dev/null; {script}"], Box(), Limits(seconds=0.3))
    assert (finished.ended, finished.code) == ("timeout", None)
    assert time.monotonic() - began < 0.3 + 2


def test_a_run_can_be_cancelled_from_another_thread() -> None:
    cancel = Cancel()
    timer = threading.Timer(0.2, cancel)
    timer.start()
    assert run(["sleep", "60"], Box(), QUICK, cancel=cancel).ended == "cancelled"
    cancel.close()


def test_processes_left_behind_are_ended_with_the_run() -> None:
    mark = f"61.{os.getpid()}"
    assert run(["sh", "-c", f"setsid sleep {mark} & exit 0"], Box(), QUICK).code == 0
    assert not any(_runs(process, mark) for process in Path("/proc").glob("[0-9]*"))


def _runs(process: Path, mark: str) -> bool:
    try:
        return mark.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_memory_is_bounded_for_one_process_and_for_the_tree() -> None:
    limits = Limits(seconds=20, memory_bytes=100_000_000)
    one = run(["python3", "-c", "x = bytearray(200_000_000)"], Box(), limits)
    assert b"MemoryError" in one.stderr
    script = "import time; x = bytearray(60_000_000); x[::4096] = b'x' * len(x[::4096]); time.sleep(30)"
    tree = run(["sh", "-c", f'for i in 1 2 3; do python3 -c "{script}" & done; wait'], Box(), limits)
    assert tree.ended == "memory"


def test_processes_are_counted() -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 30 & done; wait"
    finished = run(["sh", "-c", script], Box(), Limits(seconds=20, processes=10))
    assert finished.ended == "processes" or b"fork" in finished.stderr


def test_output_is_cut_and_a_flood_ends_the_run() -> None:
    limits = Limits(seconds=20, output_bytes=1_000)
    some = run(["sh", "-c", "head -c 5000 /dev/zero"], Box(), limits)
    assert (some.ended, some.cut, len(some.stdout)) == ("exited", True, 1_000)
    assert run(["yes"], Box(), limits).ended == "output"


def test_disk_use_of_a_writable_mount_is_bounded(tmp_path: Path) -> None:
    limits = Limits(seconds=30, disk_bytes=3_000_000)
    script = "for i in 1 2 3 4 5 6; do head -c 1000000 /dev/zero > f$i; done; sleep 30"
    assert run(["sh", "-c", script], mounted(tmp_path, writable=True), limits).ended == "disk"
    assert b"No space left" in run(["sh", "-c", "head -c 9000000 /dev/zero > /tmp/x"], Box(), limits).stderr


@pytest.mark.parametrize(
    "script",
    [
        # Folders whose path is longer than the system takes; more files than anybody needs, and nothing in them.
        "n = 'd' * 250\nfor _ in range(20): os.mkdir(n); os.chdir(n)\nopen('f', 'wb').write(bytes(9_000_000))",
        "for n in range(9_000): open(str(n), 'w').close()",
    ],
)
def test_what_is_hidden_from_a_look_at_the_disk_counts(tmp_path: Path, script: str) -> None:
    with copied(str(tmp_path)) as view:
        box = mounted(Path(view.folder), writable=True)
        line = ["python3", "-c", f"import os, time\n{script}\ntime.sleep(30)"]
        assert run(line, box, Limits(seconds=30, disk_bytes=3_000_000)).ended == "disk"


def test_the_program_alone_speaks_through_its_result_descriptor() -> None:
    spoken = run(["bash", "-c", "echo mine >&$AEGIS_RESULT_FD"], Box(), QUICK, result=True)
    assert (spoken.message, spoken.forged) == (b"mine\n", False)
    script = 'bash -c "echo theirs >&$AEGIS_RESULT_FD"; echo mine >&$AEGIS_RESULT_FD'
    forged = run(["bash", "-c", script], Box(), QUICK, result=True)
    assert (forged.message, forged.forged) == (b"mine\n", True)


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "program", lambda: None)
    assert command.unavailable() == command.MISSING
    with pytest.raises(SandboxUnavailable, match="not installed"):
        run(["true"], Box(), QUICK)


def test_a_bubblewrap_that_fails_is_named_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: no permission to make a namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(command, "program", lambda: str(broken))
    assert "no permission to make a namespace" in (command.unavailable() or "")
