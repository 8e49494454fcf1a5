"""The quickstart of the documentation runs, as it stands there, over an embedded gate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from aegis.cli.demo.provider import Call, Turn
from frameworks.conftest import NAME, framework

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "hook-a-framework.md"
INJECTION = {"name": "x' OR '1'='1' --"}


def test_the_quickstart_refuses_the_injection_and_goes_on(tmp_path: Path) -> None:
    mark = f"<!-- not run: runs where `{NAME}` is tested -->\n```python\n"
    code = PAGE.read_text(encoding="utf-8").split(mark)[1].split("\n```")[0]
    turns = [
        Turn(calls=(Call(tool="find_customer", arguments=INJECTION, id="call_find_0123456789"),)),
        Turn(text="done"),
    ]
    with framework().provide(turns) as provider:
        environment = {**os.environ, "PROVIDER_URL": provider.url, "HOME": str(tmp_path)}
        tmp_path.chmod(0o700)
        script = tmp_path / "quickstart.py"
        script.write_text(code, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "done" in done.stdout
        told = json.dumps([asked.body for asked in provider.asked])
    assert "`find_customer` was not run" in told
    assert "attack_detected" in told
    assert "one customer called" not in told
