"""`aegis demo`, as a stranger runs it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from support.shell import AEGIS, aegis, environment


def test_the_demonstration_shows_every_outcome_and_a_log_that_verifies(tmp_path: Path) -> None:
    done = aegis("demo", "--once", env={"AEGIS_HOME": str(tmp_path / "mine")})
    assert done.returncode == 0, done.stderr
    for word in ("allow", "block", "sanitize", "require_approval", "ran after approval", "result withheld"):
        assert word in done.stdout
    assert "verified\tyes" in done.stdout
    assert not (tmp_path / "mine").exists()


def test_the_gateway_stays_up_until_ctrl_c_and_nothing_is_left() -> None:
    with subprocess.Popen(
        [str(AEGIS), "demo"], stdout=subprocess.PIPE, text=True, env=environment(), preexec_fn=_heed_ctrl_c
    ) as process:
        assert process.stdout is not None
        folder = ""
        hint = ""
        for line in process.stdout:
            if "demonstration data only" in line:
                folder = line.rpartition("under ")[2].strip(" )\n")
            if "approvals list" in line:
                hint = line.strip()
            if "Ctrl-C ends it" in line:
                break
        bare = {"PATH": "/usr/bin:/bin", "HOME": "/"}
        pasted = subprocess.run(["sh", "-c", hint], cwd="/", env=bare, capture_output=True, text=True, check=False)
        assert Path(folder, "home", "aegis.db").exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert pasted.returncode == 0, pasted.stderr
    assert "send_email" in pasted.stdout
    assert not Path(folder).exists()


def _heed_ctrl_c() -> None:
    """A runner in the background may have been told to ignore it, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
