"""The library is light to embed: what servers and command lines need is loaded by them alone, and need not be there."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest

from aegis.cli.run import EXTRAS
from support.environments import ROOT, Fresh, fresh_environment

# What the extra `server` brings, and what only the command line imports.
OF_SERVERS: Final = (
    "aiosmtplib", "argon2", "jinja2", "opentelemetry", "prometheus_client", "reportlab", "starlette", "uvicorn",
)  # fmt: skip
OF_COMMANDS: Final = ("rich", "typer")
OF_FEW_CALLS: Final = ("aiohttp", "sqlglot")  # a quarter of a second: loaded by what sends and by what holds SQL
DECIDES: Final = """
import json, sys
from pathlib import Path
from aegis import Gate, ToolCall
gate = Gate.open(home=Path(sys.argv[1]))
said = [gate.decide(ToolCall(tool=tool, arguments=arguments)) for tool, arguments in (
    ("read_file", {"path": "notes.txt"}),
    ("run", {"command": "rm -rf / --no-preserve-root"}),
)]
gate.close()
named = [name for name in sys.argv[2].split() if name in sys.modules]
print(json.dumps([[one.outcome.word for one in said], named]))
"""
IMPORT_MS: Final = 150


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    return fresh_environment(tmp_path_factory.mktemp("fresh") / "env")


def test_importing_the_package_is_quick_and_loads_nothing_of_servers_and_command_lines() -> None:
    code = (
        "import time; before = time.process_time(); import aegis; spent = time.process_time() - before\n"
        "import sys, json; print(json.dumps([spent, sorted(sys.modules)]))"
    )
    runs = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    assert {*OF_SERVERS, *OF_COMMANDS} & set(runs[0][1]) == set()
    assert min(spent for spent, _ in runs) * 1_000 < IMPORT_MS


def test_the_wheel_without_extras_decides_a_call(fresh: Fresh, tmp_path: Path) -> None:
    done = fresh.run("-c", DECIDES, str(tmp_path / "home"), " ".join((*OF_SERVERS, *OF_COMMANDS, *OF_FEW_CALLS)))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["allow", "block"], []]
    there = fresh.run("-c", f"from importlib.util import find_spec; print(*filter(find_spec, {OF_SERVERS}))")
    assert there.stdout.split() == []


def test_the_wheel_brings_its_rules_compiled_and_compiles_only_what_does_not_fit(fresh: Fresh, tmp_path: Path) -> None:
    pytest.importorskip("hyperscan", reason="no wheel of the engine for this platform")

    def compiles(name: str) -> tuple[bool, bool]:
        """Whether a first decision over an empty cache compiled the rules, and whether it said so."""
        done = fresh.run("-c", DECIDES, str(tmp_path / name), "", XDG_CACHE_HOME=str(tmp_path / f"cache-{name}"))
        assert json.loads(done.stdout)[0] == ["allow", "block"]
        made = tmp_path / f"cache-{name}" / "aegis" / "patterns"
        return any(path.stat().st_size > 1_000_000 for path in made.glob("*.db")), "compiling the rules" in done.stderr

    assert compiles("shipped") == (False, False)
    (packages,) = (fresh.place / "lib").glob("python*/site-packages")
    shipped = sorted((packages / "aegis" / "_data" / "compiled").glob("*.db"))
    kept = {path: path.read_bytes() for path in shipped}
    try:
        for path, body in kept.items():
            path.write_bytes(body[:-9] + b"tampered!")
        assert compiles("tampered") == (True, True)
    finally:
        for path, body in kept.items():
            path.write_bytes(body)


def test_the_wheel_without_extras_has_its_command_line(fresh: Fresh, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    assert fresh.run("-m", "aegis.cli", "--help").returncode == 0
    call = tmp_path / "call.json"
    call.write_text('{"tool": "read_file", "arguments": {"path": "notes.txt"}}')
    asked = fresh.run("-m", "aegis.cli", "decide", call, "--home", home)
    assert asked.returncode == 0, asked.stderr


# Every command, with arguments that lead as far as its packages; one process tries them all.
TRIED: Final = """
import contextlib, io, json, sys
from aegis.cli.run import run
found = []
lines = json.load(sys.stdin)
sys.stdin = io.StringIO("correct horse battery staple\\n" * 2)
for line in lines:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = run(line)
    except BaseException as error:
        code = repr(error)
    found.append([code, said.getvalue()])
print(json.dumps(found))
"""
NEEDS: Final[tuple[tuple[str, str], ...]] = (
    ("serve --home {home}", "server"),
    ("demo --once", "server,openai,anthropic"),
    ("users create ann --role approver --password-stdin --home {home}", "server"),
    ("approvals list --home {home}", "server"),
    ("approvals approve {id} --reason fine --home {home}", "server"),
    ("approvals deny {id} --reason no --home {home}", "server"),
    ("approvals grants --home {home}", "server"),
    ("missions list --home {home}", ""),
    ("tools scan -- true", "mcp"),
    ("bench corpus {call}", ""),
    ("log tail --home {home} --config {postgres}", "postgres"),
    ("decide {call} --home {other} --config {postgres}", "postgres"),
    ("init --home {home}", ""),
    ("doctor --home {home}", ""),
    ("why last --home {home}", ""),
    ("log tail --home {home}", ""),
    ("log verify --home {home}", ""),
    ("log export --home {home} --out {export}", ""),
    ("agents list --home {home}", ""),
    ("keys list --home {home}", ""),
    ("keys create --role agent --agent a --home {home}", ""),
    ("users list --home {home}", ""),
    ("config show", ""),
    ("config check {config}", ""),
    ("rules list", ""),
    ("kill --home {home} --reason test", ""),
    ("containment list --home {home}", "server"),
    ("canaries list --home {home}", ""),
    ("mcp install claude --home {home}", ""),
    ("hook show claude-code", ""),
    ("judge list", ""),
)


def test_no_command_without_its_extra_ends_in_a_traceback(fresh: Fresh, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    home = tmp_path / "home"
    (tmp_path / "call.json").write_text('{"tool": "read_file", "arguments": {"path": "notes.txt"}}')
    (tmp_path / "aegis.yaml").write_text("version: 1\nprofile: standard\n")
    (tmp_path / "postgres.yaml").write_text("version: 1\nprofile: standard\nstore: postgresql://localhost/none\n")
    values = {
        "home": home, "other": tmp_path / "other", "call": tmp_path / "call.json", "config": tmp_path / "aegis.yaml",
        "postgres": tmp_path / "postgres.yaml", "export": tmp_path / "export",
        "id": "0" * 32,
    }  # fmt: skip
    made = fresh.run("-m", "aegis.cli", "decide", str(values["call"]), "--home", str(home))
    assert made.returncode == 0, made.stderr
    lines = [line.format(**values).split() for line, _ in NEEDS]
    tried = fresh.run("-c", TRIED, stdin=json.dumps(lines), AEGIS_API_KEY="ak_x")
    assert tried.returncode == 0, tried.stderr
    wrong = [
        (line, code, said)
        for (line, extra), (code, said) in zip(NEEDS, json.loads(tried.stdout), strict=True)
        if not isinstance(code, int)
        or "Traceback" in said
        or (f'pip install "aegis-guard[{extra}]"' in said if extra else "aegis-guard[" not in said) is False
    ]
    assert not wrong, "\n".join(map(repr, wrong))


def test_every_package_that_is_imported_is_demanded_or_brought_by_a_named_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    imported = {
        (name or "").partition(".")[0]
        for path in (ROOT / "src" / "aegis").rglob("*.py")
        if not {"adapters", "coverage", "demo", "testing"} & set(path.parts)  # of packages that are there already
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    demanded = {re.split(r"[\[<>=;]", one)[0].lower() for one in project["dependencies"]}
    outside = {name for name in imported if name not in sys.stdlib_module_names and name not in ("aegis", "")}
    names = packages_distributions()
    unnamed = {
        name for name in outside if not demanded & {one.lower().replace("_", "-") for one in names.get(name, [])}
    }
    assert unnamed - set(EXTRAS) - {"pydantic_core", "yarl"} == set()  # what pydantic and aiohttp bring
    assert {part for extra in EXTRAS.values() for part in extra.split(",")} <= set(project["optional-dependencies"])
