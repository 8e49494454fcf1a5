"""Run the contract of adapters over every framework, each with its real package in an environment of its own kind.

    python scripts/run_frameworks.py [--only-oldest] [--record] [--beside N] [NAME ...]

An environment is `requirements/frameworks/<environment>.in` with its hashed lock. Its first line names the
frameworks that live in it: `# frameworks: langchain openai_agents`. It is built under `.cache/frameworks` once for
every lock. One line is printed for each framework, and the whole output for one that fails. With `--record` the
results are kept in `tests/frameworks/results`, from which the reference page of frameworks is made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements" / "frameworks"
CACHE = ROOT / ".cache" / "frameworks"
RESULTS = ROOT / "tests" / "frameworks" / "results"
OLDEST = "-oldest"
_HEADER = re.compile(r"# frameworks: ([a-z0-9_ ]+)\n")
_COUNTS = re.compile(r"^=*\s*(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s", re.MULTILINE)  # the summary of pytest
LIMIT = 1200  # seconds; the longest takes a twelfth of it
_OURS = re.compile("^AEGIS_")  # the tests decide what Aegis finds in its environment


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Packages that can live together, and the frameworks among them that are tested there."""

    name: str
    frameworks: tuple[str, ...]

    @property
    def lock(self) -> Path:
        return REQUIREMENTS / f"{self.name}.lock"

    @property
    def python(self) -> Path:
        return CACHE / self.name / "bin" / "python"


def environments(*, oldest: bool) -> list[Environment]:
    """Every environment of current versions, or of the oldest supported ones."""
    found: list[Environment] = []
    for path in sorted(REQUIREMENTS.glob("*.in")):
        header = _HEADER.match(path.read_text())
        if header is None:
            raise SystemExit(f"frameworks: the first line of `{path.name}` does not say which frameworks live in it")
        if path.stem.endswith(OLDEST) == oldest:
            found.append(Environment(name=path.stem, frameworks=tuple(header[1].split())))
    return found


def build(environment: Environment) -> None:
    """Make the environment of a lock, unless it stands."""
    folder = CACHE / environment.name
    stamp = hashlib.sha256(sys.version.encode() + environment.lock.read_bytes()).hexdigest()
    if (folder / "stamp").is_file() and (folder / "stamp").read_text() == stamp:
        return
    print(f"frameworks: building the environment `{environment.name}`", flush=True)
    uv = ROOT / ".venv" / "bin" / "uv"
    shutil.rmtree(folder, ignore_errors=True)
    commands = (
        [uv, "venv", "--quiet", "--python", sys.executable, folder],
        [uv, "pip", "install", "--quiet", "--python", environment.python, "--require-hashes", "-r", environment.lock],
    )
    for command in commands:
        subprocess.run([str(part) for part in command], check=True)
    (folder / "stamp").write_text(stamp)


def result_of(framework: str, *, oldest: bool) -> Path:
    """Where the results of one framework are kept."""
    return RESULTS / f"{framework}{OLDEST if oldest else ''}.json"


def cases_of(framework: str) -> float:
    """How many cases the last recorded run had; what was never recorded may be the longest."""
    path = result_of(framework, oldest=False)
    if not path.is_file():
        return math.inf
    return float(sum(way["cases"] for way in json.loads(path.read_text())["ways"].values()))


def test(environment: Environment, framework: str, lock: threading.Lock, *, record: bool) -> bool:
    """Run the suite over one framework; says in one line how it went."""
    began = time.monotonic()
    own = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
    own |= {"AEGIS_TEST_FRAMEWORK": framework, "PYTHONPATH": str(ROOT / "src"), "PYTHONFAULTHANDLER": "1"}
    if framework == environment.frameworks[0]:
        own["AEGIS_TEST_TOGETHER"] = "1"
    if record:
        RESULTS.mkdir(exist_ok=True)
        own["AEGIS_TEST_RECORD"] = str(result_of(framework, oldest=environment.name.endswith(OLDEST)))
    command = [environment.python, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "tests/frameworks"]
    with tempfile.TemporaryFile() as written:  # a pipe would wait for whatever a test left running
        process = subprocess.Popen(
            [str(part) for part in command], cwd=ROOT, env=own, stdout=written, stderr=subprocess.STDOUT
        )
        status = _ended(process)
        written.seek(0)
        output = written.read().decode(errors="replace")
    counted = _COUNTS.findall(output)  # a package may print after the summary
    summary = counted[-1] if counted else "nothing was counted"
    with lock:
        if status != 0:
            print(output, flush=True)
        state = "passed" if status == 0 else "FAILED" if status is not None else f"did not end in {LIMIT} s:"
        where = f"{framework} ({environment.name})"
        print(f"frameworks: {state} {where}: {summary} in {time.monotonic() - began:.0f} s", flush=True)
    return status == 0


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for a run and return its status; one that passes the limit is aborted with a stack of every thread."""
    try:
        return process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only-oldest", action="store_true", help="the oldest supported version of each instead")
    parser.add_argument("--record", action="store_true", help="keep the results for the reference page")
    parser.add_argument("--beside", type=int, default=2 * (os.cpu_count() or 1), help="how many run at a time")
    parser.add_argument("names", nargs="*", help="the frameworks to test; all without a name")
    given = parser.parse_args()
    wanted = [
        (environment, framework)
        for environment in environments(oldest=given.only_oldest)
        for framework in environment.frameworks
        if not given.names or framework in given.names
    ]
    # The longest first, or the last of them would run alone at the end.
    wanted.sort(key=lambda one: -cases_of(one[1]))
    unknown = set(given.names) - {framework for _, framework in wanted}
    if unknown:
        raise SystemExit(f"frameworks: nothing is known of {', '.join(sorted(unknown))}")
    for environment in dict.fromkeys(environment for environment, _ in wanted):
        build(environment)
    lock = threading.Lock()
    with ThreadPoolExecutor(given.beside) as pool:  # half of a run is waiting
        passed = list(pool.map(lambda one: test(one[0], one[1], lock, record=given.record), wanted))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
