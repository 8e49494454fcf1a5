"""Mutation tests of the modules in which one wrong comparison is a breach.

    python scripts/mutate.py [MODULE ...]

Each mutant changes one expression or statement of one module; the tests named for that module run
against it in a forked child. A mutant that they let live is either killed by a new test or entered
in `tests/equivalent-mutants.yaml` with the reason why it changes nothing. Exit code 1 where one lives
that is not entered there.
"""

from __future__ import annotations

import ast
import concurrent.futures
import copy
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
EQUIVALENT: Final = ROOT / "tests" / "equivalent-mutants.yaml"
TIMEOUT_S: Final = 60  # a mutant that loops for ever is killed, and counts as found

_VERIFIER: Final = (
    "tests/unit/log/test_verify.py",
    "tests/unit/log/test_verify_keys.py",
    "tests/unit/log/test_verify_records.py",
)
_QUEUE: Final = ("tests/unit/approvals/test_machine.py", "tests/unit/approvals/test_queue.py")
# Module -> the tests that have to notice.
TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "aegis.core.combine": ("tests/unit/core/test_combine.py", "tests/property/test_combine.py"),
    "aegis.core.canonical": ("tests/unit/core/test_canonical.py", "tests/property/test_canonical.py"),
    "aegis.log.merkle": ("tests/unit/log/test_merkle.py",),
    "aegis.log.verify": _VERIFIER,
    "aegis.log.records": _VERIFIER,
    "aegis.approvals.queue": _QUEUE,
    "aegis.keys.permits": ("tests/integration/test_permits.py",),
}

_COMPARE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_BINARY: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip
_NAMES: Final = {"max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One changed module. `where` is the function, `change` what became of what."""

    module: str
    where: str
    change: str
    line: int
    tree: ast.Module

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, self.where, self.change


class _Sites(ast.NodeVisitor):
    """Collects the nodes that may change: none in annotations, docstrings or the text of messages."""

    def __init__(self) -> None:
        self.found: list[tuple[str, ast.AST]] = []
        self._scope: list[str] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._scope.append(node.name)
            for part in [*node.body, *(node.args.defaults if not isinstance(node, ast.ClassDef) else [])]:
                self.visit(part)
            self._scope.pop()
            return
        if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr) or _docstring(node):
            return
        self.found.append((".".join(self._scope), node))
        if isinstance(node, ast.AnnAssign):
            children: list[ast.AST] = [node.value] if node.value is not None else []
        elif isinstance(node, ast.Raise):
            children = []
        else:
            children = list(ast.iter_child_nodes(node))
        for child in children:
            self.visit(child)


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every changed form of one node."""
    match node:
        case ast.Compare():
            for position, operator in enumerate(node.ops):
                other = copy.deepcopy(node)
                other.ops[position] = _COMPARE[type(operator)]()
                yield other
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(op=ast.Or() if isinstance(operator, ast.And) else ast.And(), values=values)
            for position in range(len(values)):
                rest = values[:position] + values[position + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op=operator, values=rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            yield ast.BinOp(left=left, op=_BINARY[type(operator)](), right=right)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test=test, body=orelse, orelse=body)
        case ast.If(test=test) | ast.While(test=test):
            negated = copy.copy(node)
            negated.test = ast.UnaryOp(op=ast.Not(), operand=test)
            yield negated
        case ast.Name(id=name) if name in _NAMES:
            yield ast.Name(id=_NAMES[name], ctx=ast.Load())
        case ast.Constant(value=value):
            yield from (ast.Constant(value=other) for other in _constants(value))
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in _BINARY:
            yield ast.AugAssign(target=target, op=_BINARY[type(operator)](), value=value)
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield ast.Return(value=ast.Constant(value=None))
        case ast.Expr() | ast.Raise():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case _:
            return


def _constants(value: object) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1)
    if isinstance(value, str):
        return (value + "X",)
    if isinstance(value, bytes):
        return (value + b"X",)
    return ()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def mutants(module: str) -> list[Mutant]:
    """Every mutant of a module, in source order."""
    source = source_of(module).read_text()
    sites = _Sites()
    sites.visit(ast.parse(source))
    made = []
    for position, (where, node) in enumerate(sites.found):
        for number, changed in enumerate(changes(node)):
            tree = ast.parse(source)
            again = _Sites()
            again.visit(tree)
            target = again.found[position][1]
            replacement = list(changes(target))[number]
            _replace(tree, target, ast.copy_location(replacement, target))
            ast.fix_missing_locations(tree)
            change = f"{_short(node)} => {_short(changed)}"
            made.append(Mutant(module=module, where=where, change=change, line=getattr(node, "lineno", 0), tree=tree))
    return made


def _short(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))
    return text.splitlines()[0] if text else ""


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list):
                for position, item in enumerate(value):
                    if item is old:
                        value[position] = new
                        return


def source_of(module: str) -> Path:
    """The file of a module of this repository."""
    return ROOT / "src" / Path(*module.split(".")).with_suffix(".py")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives out the mutant where its module is imported."""

    def __init__(self, mutant: Mutant):
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(source_of(fullname)))

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.tree, str(source_of(self._mutant.module)), "exec"), module.__dict__)


def lives(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Whether the tests pass although the module is changed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _run(mutant, tests)
        finally:
            os._exit(0 if status == 0 else 1)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run(mutant: Mutant, tests: Sequence[str]) -> int:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    finder = _Finder(mutant)
    sys.meta_path.insert(0, finder)
    # Before pytest, whose own import hook would come first and give out the module as it is.
    loaded = importlib.import_module(mutant.module)
    if loaded.__loader__ is not finder:
        raise RuntimeError(f"{mutant.module} was imported before it could be changed")
    import hypothesis
    import pytest

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutate", derandomize=True, database=None, deadline=None, phases=phases)
    hypothesis.settings.load_profile("mutate")
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))


def accepted() -> dict[tuple[str, str, str], str]:
    """Mutants that are known to change nothing, and why."""
    entries = yaml.safe_load(EQUIVALENT.read_text()) or []
    return {(entry["module"], entry["where"], entry["change"]): entry["why"] for entry in entries}


def main(modules: Sequence[str]) -> int:
    os.chdir(ROOT)
    known = accepted()
    unexplained = 0
    for module in modules or TARGETS:
        made = mutants(module)
        run = functools.partial(lives, tests=TARGETS[module])
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            alive = [mutant for mutant, lived in zip(made, pool.map(run, made), strict=True) if lived]
        equivalent = [mutant for mutant in alive if mutant.key in known]
        left = [mutant for mutant in alive if mutant.key not in known]
        print(
            f"{module}: {len(made)} mutants, {len(made) - len(alive)} killed, "
            f"{len(equivalent)} equivalent, {len(left)} left"
        )
        for mutant in left:
            print(f"  line {mutant.line}, {mutant.where or 'module'}: {mutant.change}")
        unexplained += len(left)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
