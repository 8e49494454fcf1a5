"""What holds for every file of the project, whoever adds one."""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import re2

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "aegis"
MAX_LINES = 500
MAX_TEST_LINES = 700  # a file of tests is a list of cases
MAX_MEDIAN = 230  # fewer modules and short ones pull apart: what is read together stands together
# Never part of the repository: what the targets build.
BUILT = {".venv", ".git", ".cache", ".demo", "__pycache__", "node_modules", "dist", "build", ".hypothesis"}

# Written in pieces, so that this file does not hold what it forbids.
FORBIDDEN = (
    r"/wo" r"rk/(wt|main|shared)",
    r"/tm" r"p/(briefs|bash_jobs)",
    r"/ro" r"ot/\.pyenv",
    r"/ho" r"me/(user|runner)/",
    r"\bTO" r"DO\b",
    r"\bFIX" r"ME\b",
    r"NotImplemented" r"Error",
    r"(?i)\bissue #?[0-9]+\b",
    r"(?i)--(extra-)?index-" r"url",
    r"(?i)\b(sub|co)-?agents? wrote\b",
    r"(?i)\bgenerated (by|with) (an? )?(ai|llm|assistant|claude|chatgpt|copilot)\b",
    r"(?i)\bco-authored-" r"by\b",
)


def files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in BUILT and not name.endswith(("_cache", ".egg-info"))]
        for name in names:
            path = Path(folder, name)
            if name != ".git" and not path.is_symlink():
                yield path


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if not BUILT & set(path.relative_to(ROOT).parts))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


EVERY = [path for folder in ("src", "tests", "scripts", "benchmarks") for path in modules(ROOT / folder)]
PACKAGE = modules(SOURCE)


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_no_module_is_longer_than_the_cap(path: Path) -> None:
    cap = MAX_TEST_LINES if path.is_relative_to(ROOT / "tests") else MAX_LINES
    assert len(path.read_text().splitlines()) <= cap


def test_most_modules_are_short() -> None:
    assert statistics.median(len(path.read_text().splitlines()) for path in PACKAGE) <= MAX_MEDIAN


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_every_module_says_what_it_guarantees(path: Path) -> None:
    tree = tree_of(path)
    if not tree.body and path.name == "__init__.py":
        pytest.fail("a package has a docstring")
    assert ast.get_docstring(tree) or path.name == "_version.py"


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE}
    assert [name(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_no_module_uses_a_backtracking_engine(path: Path) -> None:
    imported = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert not imported & {"re", "regex", "fnmatch"}, "use google-re2, hyperscan or plain string operations"


# What a verdict is computed in. The age of a file of compiled rules decides when it goes, never what it finds.
JUDGING = [path for folder in ("detect", "policy/guards") for path in modules(SOURCE / folder)]
AGES = SOURCE / "detect" / "rules" / "cache.py"


@pytest.mark.claim("DET-32")
@pytest.mark.parametrize("path", [path for path in JUDGING if path != AGES], ids=name)
def test_no_module_that_judges_has_a_clock_or_a_die(path: Path) -> None:
    imported = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    clocks = {"time", "datetime", "sched", "signal", "resource", "asyncio", "timeit", "aegis.core.times.system_clock"}
    assert not imported & {*clocks, "random", "secrets", "uuid"}, "a verdict depends on the call and the policy alone"


def test_every_private_name_of_a_module_is_used() -> None:
    made: dict[str, str] = {}
    used: set[str] = set()
    for path in PACKAGE:
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                made[node.name] = name(path)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                made |= {target.id: name(path) for target in targets if isinstance(target, ast.Name)}
        for one in ast.walk(tree_of(path)):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                used.add(one.id)
            elif isinstance(one, ast.Attribute):
                used.add(one.attr)
            elif isinstance(one, ast.ImportFrom):
                used |= {alias.name for alias in one.names}
    private = {word for word in made if word.startswith("_") and not word.startswith("__")}
    assert sorted(f"{made[word]}: {word}" for word in private - used) == []


def test_no_file_holds_a_forbidden_word() -> None:
    patterns = [re2.compile(pattern) for pattern in FORBIDDEN]
    found = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name(path)}: {match.group()}" for pattern in patterns if (match := pattern.search(text))]
    assert found == []


def test_the_layers_hold() -> None:
    run = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = "import sys, aegis; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"pydantic", "cryptography", "sqlglot", "starlette", "openai", "anthropic", "rich", "typer", "hyperscan"}
    assert not heavy & set(loaded)


def test_the_shell_scripts_are_executable_where_they_are_run_directly() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_licence_is_named_alike_everywhere() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
