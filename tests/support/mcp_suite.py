"""The published conformance suite of the protocol, run against a server, and what each of its checks came to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from mcp_conformance import NODE, SUITE, demanded, standing

SUPPORT: Final = Path(__file__).parent
Outcomes = dict[str, list[tuple[str, str]]]
NOT_BUILT: Final = "the conformance suite is not built, and `CI` is set; `make conformance` says why"
needs_suite = pytest.mark.skipif(
    not standing() and not demanded(), reason="the conformance suite is not built; `make conformance` builds it"
)
# How the suite's client comes by a credential: it has no option for one.
_AUTHORISED: Final = (
    "data:text/javascript,const f=globalThis.fetch;globalThis.fetch=(u,o={{}})=>{{"
    "const h=new Headers(o.headers);h.set('authorization','Bearer {key}');return f(u,{{...o,headers:h}})}}"
)


def against_server(url: str, folder: Path, *, key: str = "") -> Outcomes:
    """Every check of every scenario for servers, by scenario."""
    assert standing(), NOT_BUILT
    authorised = ["--import", _AUTHORISED.format(key=key)] if key else []
    words = [str(NODE), *authorised, str(SUITE), "server", "--url", url, "--suite", "all", "-o", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert "=== SUMMARY ===" in done.stdout, done.stdout + done.stderr
    return outcomes(folder)


def against_client(scenario: str, command: str, folder: Path) -> Outcomes:
    """Every check of one scenario for clients."""
    assert standing(), NOT_BUILT
    words = [str(NODE), str(SUITE), "client", "--command", command, "--scenario", scenario, "-o", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    found = outcomes(folder)
    assert found, done.stdout + done.stderr
    return found


def outcomes(folder: Path) -> Outcomes:
    """What the files in `folder` say; what a check only remarks is left out."""
    found: Outcomes = {}
    for file in folder.rglob("checks.json"):
        scenario = file.parent.name.partition("-20")[0].removeprefix("server-")
        checks = [(check["id"], check["status"]) for check in json.loads(file.read_text())]
        found[scenario] = sorted(one for one in checks if one[1] != "INFO")
    return found


@contextmanager
def everything() -> Iterator[str]:
    """The URL of a server that has everything, over streamable HTTP."""
    with serving([sys.executable, str(SUPPORT / "mcp_everything.py")]) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def serving(command: Sequence[str], env: Mapping[str, str] | None = None, stderr: int | None = None) -> Iterator[int]:
    """The port of a program that calls `serve`: nobody else can have taken it, as the program itself looks for it."""
    base = os.environ if env is None else env
    folders = filter(None, (str(SUPPORT.parent), base.get("PYTHONPATH")))
    env = {**base, "PYTHONPATH": os.pathsep.join(folders)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.strip().isdigit():
                pytest.fail(f"the server did not come up: {line!r}")
            yield int(line)
        finally:
            server.terminate()
