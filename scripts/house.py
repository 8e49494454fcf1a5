"""Measure the shape of the code, and compare it with the bounds that it is held to.

    python scripts/house.py [--check | --record | --where FIGURE]

Every figure is better when it is smaller, and none depends on a time. `--check` fails where one is worse than its bound
in `scripts/house.json`, `--record` writes today's figures as bounds, `--where` lists what a figure counts.

Imports are read from the source, those for type checking and those inside functions included. What a call crosses is
counted while it runs, of several alike for the one that crosses least: what happens once, or beside it, is not counted.
"""

from __future__ import annotations

import argparse
import ast
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import grimp

from aegis import Gate, ToolCall
from aegis.cli import main

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "aegis"
BOUNDS: Final = Path(__file__).with_suffix(".json")
LONG: Final = 500  # lines above which a module needs a reason
ROOM: Final = {"lines": 1_000}  # a bound is the next multiple: a line more is no other shape
WAIT_S: Final = 60
WARM: Final = 7  # so many alike; the one that crosses least counts
HOLDERS: Final = {"agent": ("--agent", "bot"), "approver": ("--name", "ann")}
CONFIG: Final = """
version: 1
profile: standard
limits: {rate: unlimited}
tools:
  read_file: {risk: low, effects: [read]}
  send_email: {risk: high, irreversible: true, effects: [external_send]}
"""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure and what it counts."""

    name: str
    title: str
    value: int
    counted: tuple[str, ...] = ()


@dataclass
class Crossed:
    """The modules of ours that something ran through, and how often it called a function of ours."""

    modules: set[str] = field(default_factory=set)
    calls: int = 0

    def watch(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count one event of the profiler."""
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(SOURCE)):
            self.modules.add(Path(path).relative_to(SOURCE).with_suffix("").as_posix())
            self.calls += 1


def structure() -> Iterator[Figure]:
    """The figures that are read from the source."""
    graph = grimp.build_graph("aegis", cache_dir=None, exclude_type_checking_imports=False)
    modules = sorted(SOURCE.rglob("*.py"))
    lines = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in modules}
    yield Figure(name="modules", title="modules", value=len(modules))
    yield Figure(name="lines", title="lines", value=sum(lines.values()))
    longer = [f"{name}: {count}" for name, count in lines.items() if count > LONG]
    yield figure("long", f"modules over {LONG} lines", longer)

    importers = {module: graph.find_modules_that_directly_import(module) for module in graph.modules}
    pairs = [(module, *found) for module, found in importers.items() if len(found) == 1]
    alone = [
        f"{module} <- {importer}"
        for module, importer in pairs
        if folder(module) == folder(importer) and not graph.find_children(module)
    ]
    yield figure("alone", "modules with one importer, in the same folder", alone)
    alone_below = [f"{module} <- {importer}" for module, importer in pairs if feature(module) == feature(importer)]
    yield figure("alone_below", "modules with one importer, sub-folders counted", alone_below)
    cycles = cycles_of({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    yield figure("cycles", "import cycles", (" ".join(one) for one in cycles))

    places: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(SOURCE).as_posix())
    twice = [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]
    yield figure("classes", "public class names used twice or more", twice)


def folder(module: str) -> str:
    """The package that holds a module."""
    return module.rpartition(".")[0]


def feature(module: str) -> str:
    """The package right below `aegis` that a module belongs to."""
    return module.split(".")[1] if "." in module else module


def cycles_of(imports: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other: strongly connected components (R. Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in sorted(imports):
        if root in index:
            continue
        work = [(root, iter(sorted(imports[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            module, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(imports[other]))))
                    break
                if other in on_stack:
                    low[module] = min(low[module], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == index[module]:
                    group: list[str] = []
                    while not group or group[-1] != module:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1:
                        found.append(sorted(group))
    return found


def in_process() -> Iterator[Figure]:
    """What a harmless decision of an embedded gate crosses, in a thread as most frameworks run tools in."""
    crossed = Crossed()
    counted: list[int] = []  # the least is the call's own: now and then something else falls due in its thread

    def decide() -> None:
        with tempfile.TemporaryDirectory() as folder:
            gate = Gate.open(configuration(Path(folder)), home=folder)
            for attempt in range(WARM):
                crossed.modules.clear()
                crossed.calls = 0
                call = ToolCall(tool="read_file", arguments={"path": f"docs/page-{attempt}.md"})
                sys.setprofile(crossed.watch)
                decision = gate.decide(call)
                sys.setprofile(None)
                counted.append(crossed.calls)
                if decision.outcome.word != "allow":
                    raise SystemExit("house: the harmless call was not allowed")
            gate.close()

    thread = threading.Thread(target=decide)
    thread.start()
    thread.join()
    yield figure("decide", "modules crossed by a harmless in-process decide", crossed.modules)
    yield Figure(name="calls", title="calls of our functions in it", value=min(counted))


def over_http() -> Iterator[Figure]:
    """What a decision and an approval over HTTP cross in a gateway that runs in this process."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short path: that of a Unix socket is limited
        home = Path(folder)
        config = configuration(home)
        keys = {role: aegis("keys", "create", "--role", role, *who, "--home", folder) for role, who in HOLDERS.items()}
        asker = Asker(home / "aegis.sock", keys)
        thread = threading.Thread(target=asker.run)
        thread.start()
        sys.setprofile(asker.watch)
        try:
            sys.stdout = io.StringIO()  # the gateway says where it listens
            sys.argv = ["aegis", "serve", "--home", folder, "--config", config, "--port", "0", "--log-level", "error"]
            main()
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.setprofile(None)
            sys.stdout = sys.__stdout__
            thread.join()
    yield from asker.figures()


class Asker:
    """Asks a gateway in another thread, and counts what each of its answers crosses."""

    def __init__(self, socket_path: Path, keys: Mapping[str, str]):
        self._path = socket_path
        self._keys = keys
        self._crossed = Crossed()
        self._decisions: list[Crossed] = []
        self._approvals: list[Crossed] = []
        self._error: BaseException | None = None

    def watch(self, frame: FrameType, event: str, argument: object) -> None:
        """Count one event of the profiler for what is being asked."""
        self._crossed.watch(frame, event, argument)

    def run(self) -> None:
        """Ask everything, then end the gateway."""
        try:
            self._run()
        except BaseException as error:  # raised where the figures are asked for
            self._error = error
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _run(self) -> None:
        for _ in range(WAIT_S * 10):
            if self._path.exists():
                break
            time.sleep(0.1)
        for attempt in range(WARM):
            self._crossed = Crossed()
            harmless = {"tool": "read_file", "arguments": {"path": f"docs/page-{attempt}.md"}}
            self._ask("agent", "POST", "/v1/decisions", 200, harmless)
            self._decisions.append(self._crossed)
        for attempt in range(WARM):
            held = {
                "tool": "send_email",
                "arguments": {"to": "ann@example.com", "body": f"page {attempt}"},
                "call_id": f"call-{attempt}",
            }
            self._crossed = Crossed()
            place = f"/v1/approvals/{self._ask('agent', 'POST', '/v1/decisions', 202, held)['approval']['id']}"
            self._ask("approver", "GET", place, 200)
            self._ask("approver", "POST", place, 200, {"decision": "approve", "reason": "known"})
            self._ask("agent", "POST", "/v1/decisions", 200, held)
            self._approvals.append(self._crossed)
        self._crossed = Crossed()

    def _ask(self, role: str, method: str, path: str, status: int, body: Any = None) -> Any:
        connection = UnixConnection(self._path)
        headers = {"authorization": f"Bearer {self._keys[role]}", "content-type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            found = answer.read()
        finally:
            connection.close()
        if answer.status != status:
            raise SystemExit(f"house: `{method} {path}` answered {answer.status}: {found.decode()}")
        return json.loads(found)

    def figures(self) -> Iterator[Figure]:
        """What was counted; raises where a question failed."""
        if self._error is not None:
            raise self._error
        yield figure("post", "modules crossed by `POST /v1/decisions`", least(self._decisions))
        title = "modules crossed by an approval over HTTP, hold to resumption"
        yield figure("approval", title, least(self._approvals))


def least(found: Iterable[Crossed]) -> set[str]:
    """The modules of the one that crossed the fewest: beside the others the gateway did something else as well."""
    return min((crossed.modules for crossed in found), key=len)


class UnixConnection(http.client.HTTPConnection):
    """HTTP to a Unix socket."""

    def __init__(self, path: Path):
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self._path))


def configuration(home: Path) -> str:
    """A configuration file in `home` that nobody else may write, as a gate demands."""
    file = home / "aegis.yaml"
    file.write_text(CONFIG)
    file.chmod(0o600)
    return str(file)


def aegis(*words: str) -> str:
    """What a command of ours prints."""
    command = [sys.executable, "-c", "from aegis.cli import main; main()", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def figure(name: str, title: str, counted: Iterable[str]) -> Figure:
    """A figure that is the number of what it lists."""
    listed = tuple(sorted(counted))
    return Figure(name=name, title=title, value=len(listed), counted=listed)


def run() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--check", action="store_true", help="fail where a figure is worse than its bound")
    modes.add_argument("--record", action="store_true", help="write the figures of today as bounds")
    modes.add_argument("--where", metavar="FIGURE", help="list what a figure counts")
    given = parser.parse_args()
    figures = [*structure(), *in_process(), *over_http()]
    if given.where is not None:
        found = next((one for one in figures if one.name == given.where), None)
        if found is None:
            raise SystemExit(f"house: no figure `{given.where}`; there are {', '.join(one.name for one in figures)}")
        print("\n".join(found.counted))
        return 0
    if given.record:
        bounds = {one.name: -(-one.value // ROOM.get(one.name, 1)) * ROOM.get(one.name, 1) for one in figures}
        BOUNDS.write_text(json.dumps(bounds, indent=2) + "\n")
    bounds = json.loads(BOUNDS.read_text())
    worse = [one.name for one in figures if one.value > bounds.get(one.name, 0)]
    width = max(len(one.title) for one in figures)
    for one in figures:
        mark = "  worse" if one.name in worse else ""
        print(f"{one.title:<{width}}  {one.value:>7,}  bound {bounds.get(one.name, 0):>7,}{mark}")
    if given.check and worse:
        print(
            f"house: worse than recorded: {', '.join(worse)}; `--where {worse[0]}` lists what it counts",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
