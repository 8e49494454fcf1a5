"""The frameworks that are hooked: where, from the adapters; how they are tested, from the suite and its locks."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from run_frameworks import RESULTS, ROOT, Environment, environments, result_of

from aegis import __version__
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches, Seams
from aegis.sdk.coverage.firing import Refusing
from reference.markdown import page, table

DRIVERS = ROOT / "tests" / "frameworks" / "drivers"
CONTRACT = ROOT / "tests" / "contract"
SDKS = ("openai", "anthropic")


def render() -> str:
    """The page."""
    tested = [(framework, one) for one in environments(oldest=False) for framework in one.frameworks]
    tested.sort(key=lambda pair: pair[0])
    return page(
        "Frameworks",
        "What `aegis.auto()` hooks beside the OpenAI and Anthropic packages. The contract of adapters runs over every "
        "way in this table, with the real package and a model provider on loopback: `make test` in the version of its "
        "lock, `make test-all` in the oldest one too. What the table says of ways and versions is what the last "
        "recorded run came to (`make frameworks ARGS=--record`): cases that passed, of all where some did not.",
        table(
            [
                "framework",
                "supported",
                "tested",
                "oldest tested",
                "ways and their cases",
                "a call run again",
                "seams",
                "refused while hooked",
                "not covered",
            ],
            [_row(framework, environment) for framework, environment in tested],
        ),
        "## The OpenAI and Anthropic packages",
        "Their contract runs with all other tests, over every way in this table, in the version of the lock.",
        table(
            ["package", "supported", "tested", "ways", "seams", "refused while hooked", "not covered"],
            [_sdk_row(name) for name in SDKS],
        ),
        *_javascript(),
        *_go(),
        "## Programs and models",
        "What passes undecided of a coding agent or of any program below `aegis run` stands on "
        "[its page](../howto/run-a-command.md#what-passes-undecided), and what of a model's API on that of "
        "[the model proxies](../howto/proxy-model-calls.md#what-does-not-pass).",
    )


def _javascript() -> Iterator[str]:
    """What `aegis-guard` hooks in Node, and the ways that its contract ran over."""
    recorded = json.loads((RESULTS / "javascript.json").read_text())
    yield "## JavaScript"
    yield (
        "What `auto()` of the npm package `aegis-guard` hooks. The contract runs over every way with the released "
        "packages and a model on loopback (`make sdk-test`); this is what the last recorded run came to "
        "(`make sdk-record`)."
    )
    yield table(
        ["package", "supported", "tested", "seams", "refused while hooked", "not covered"],
        [
            (
                f"`{one['framework']}`",
                one["supported"].replace(",", ", "),
                ", ".join(one["tested"]),
                ", ".join(f"`{seam}`" for seam in one["seams"]),
                ", ".join(one["barred"]) or "-",
                ", ".join(one["uncovered"]) or "-",
            )
            for one in recorded["packages"]
        ],
    )
    yield table(
        ["hook", "ways and their cases"],
        [(f"`{name}`", "; ".join(_counted(ways))) for name, ways in sorted(recorded["ways"].items())],
    )


def _go() -> Iterator[str]:
    """What the Go modules hook, and the ways that their contract ran over."""
    recorded = json.loads((RESULTS / "go.json").read_text())
    tested = ", ".join(f"`{name}` {version}" for name, version in recorded["packages"].items())
    yield "## Go"
    yield (
        f"The hooks of `sdk/go`, over {tested}, a model on loopback and a real gateway (`make sdk-test`, recorded by "
        "`make sdk-record`). The core needs nothing beside the standard library; each hook is a module of its own."
    )
    yield _go_modules()
    yield table(["way", "cases"], [tuple(one[:-1].split(" (")) for one in _counted(recorded["ways"])])


def _go_modules() -> str:
    """The table of the modules, as their README has it."""
    readme = (ROOT / "sdk" / "go" / "README.md").read_text()
    return next(block for block in readme.split("\n\n") if block.startswith("| module "))


def _sdk_row(name: str) -> tuple[str, ...]:
    adapter = import_module(f"aegis.adapters.{name}")
    low, high = (".".join(map(str, one)) for one in adapter.SUPPORTED)
    seams = _seams(adapter)
    return (
        f"`{adapter.DISTRIBUTION}`",
        f">={low}, <{high}",
        _locked(ROOT / "requirements" / "dev.lock", adapter.DISTRIBUTION),
        "; ".join(way.removeprefix(f"{name} ") for way in _paths(name)),
        ", ".join(f"`{seam}`" for seam in seams.seams),
        ", ".join(seams.barred) or "-",
        ", ".join(seams.uncovered) or "-",
    )


def _paths(name: str) -> Iterator[str]:
    """The names of the ways that the contract drives a package in."""
    for node in ast.parse((CONTRACT / f"{name}_paths.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.Constant) and str(key.value).startswith(f"{name} "):
                    yield str(key.value)


def _row(framework: str, environment: Environment) -> tuple[str, ...]:
    adapter = import_module(f"aegis.adapters.{framework}")
    low, high = (".".join(map(str, one)) for one in adapter.SUPPORTED)
    seams = _seams(adapter)
    recorded = _recorded(framework, oldest=False)
    oldest = _recorded(framework, oldest=True)
    if oldest is None and recorded is not None and f"{recorded['version']}.".startswith(f"{low}."):
        oldest = recorded  # the current version is the oldest one that is supported
    return (
        f"`{adapter.DISTRIBUTION}`",
        f">={low}, <{high}",
        _tested(recorded, _locked(environment.lock, adapter.DISTRIBUTION)),
        _tested(oldest, ""),
        f"not recorded: {'; '.join(_driven(framework))}" if recorded is None else "; ".join(_counted(recorded["ways"])),
        "not recorded" if recorded is None else recorded["again"] or "decided and executed once",
        ", ".join(f"`{seam}`" for seam in seams.seams),
        ", ".join(seams.barred) or "-",
        ", ".join(seams.uncovered) or "-",
    )


def _recorded(framework: str, *, oldest: bool) -> Any:
    """What the last recorded run came to, if there was one."""
    path = result_of(framework, oldest=oldest)
    return json.loads(path.read_text()) if path.is_file() else None


def _tested(recorded: Any, locked: str) -> str:
    """The version of a recorded run, and whether anything is newer than it."""
    if recorded is None:
        return f"{locked} (not recorded)" if locked else "not recorded"
    newer = [f"Aegis {__version__}"] if recorded["aegis"] != __version__ else []
    newer += [f"the lock, {locked}"] if locked and recorded["version"] != locked else []
    return f"{recorded['version']} (older than {' and '.join(newer)})" if newer else str(recorded["version"])


def _counted(ways: Mapping[str, Any]) -> Iterator[str]:
    """Ways with their cases."""
    for name, counted in ways.items():
        passed, cases = counted["passed"], counted["cases"]
        yield f"{name} ({passed if passed == cases else f'{passed} of {cases}'})"


def _locked(lock: Path, distribution: str) -> str:
    """The version of a package in a lock."""
    for line in lock.read_text().splitlines():
        name, _, rest = line.partition("==")
        if name == distribution:
            return rest.split()[0]
    raise SystemExit(f"frameworks: `{lock.name}` holds no `{distribution}`")


def _driven(framework: str) -> Iterator[str]:
    """The names of the ways that a driver drives."""
    for node in ast.walk(ast.parse((DRIVERS / f"{framework}.py").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Way":
            for keyword in node.keywords:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                    yield str(keyword.value.value)


def _seams(adapter: Any) -> Seams:
    patches = Patches()
    try:
        found: Seams = adapter.hook(Enforcer(Refusing()), Memory(), patches, bar=True)
    finally:
        patches.undo()
    return found
