"""Tests that run beside each other: all of them run, and whatever becomes of one is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = {
    "test_first.py": """
        import os, warnings
        from pathlib import Path
        import pytest
        HERE = Path(__file__).parent
        @pytest.fixture(scope="module")
        def module():
            yield
            (HERE / "torn").touch()
        def test_one(module):
            (HERE / "first").write_text(str(os.getpid()))
            while not (HERE / "second").exists():
                pass
            warnings.warn("worn out")
        def test_two(module):
            print("said before")
            assert 1 == 2
        """,
    "test_second.py": """
        import os
        from pathlib import Path
        HERE = Path(__file__).parent
        def test_three():
            (HERE / "second").write_text(str(os.getpid()))
        def test_four():
            os._exit(7)
        def test_five(tmp_path):
            assert tmp_path.is_dir()
        def test_six():
            raise KeyboardInterrupt("struck")
        """,
}


def started(place: Path, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    words = ["-p", "support.beside", "--beside", "2", "--rootdir", str(place), "-c", os.devnull, *options, str(place)]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *words], stdout=subprocess.PIPE, env=environment, text=True
    )


def test_every_test_runs_once_and_a_worker_that_dies_fails_its_test_alone(tmp_path: Path) -> None:
    for name, text in TESTS.items():
        lines = text.splitlines()
        (tmp_path / name).write_text("\n".join(line[8:] for line in lines))
    with started(tmp_path, "-ra") as run:
        said, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "3 failed, 3 passed, 1 warning" in said
    assert "E       assert 1 == 2" in said
    assert "said before" in said
    assert "worn out" in said
    assert "its process ended with status 7" in said
    assert "KeyboardInterrupt: struck" in said
    assert (tmp_path / "torn").exists()
    assert (tmp_path / "first").read_text() != (tmp_path / "second").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_the_session_ends_its_workers_which_clean_up(tmp_path: Path, number: int) -> None:
    (tmp_path / "test_long.py").write_text(
        "import time, pytest\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        "@pytest.fixture\ndef held():\n    yield\n    (HERE / 'torn').touch()\n"
        "def test_long(held):\n    (HERE / 'up').touch()\n    time.sleep(300)\n"
    )
    with started(tmp_path) as run:
        while not (tmp_path / "up").exists():
            assert run.poll() is None
        run.send_signal(number)
        run.communicate(timeout=120)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert (tmp_path / "torn").exists()
