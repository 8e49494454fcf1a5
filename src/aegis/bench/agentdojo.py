"""Suites made from the installed package `agentdojo` when the bench runs; nothing of it is kept here.

Its own ground truths are executed in its own environments, with a mark in each place where it injects: what the tools
answer is what its agents read. The clients of model APIs that the package imports are not needed; those that are not
installed are stood in for while it is imported.
"""

from __future__ import annotations

import copy
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from aegis.bench.suite import Attack, BenchTask, BenchTool, Slot, Suite, TaskStep, deed_of, marks, parsed, values_of
from aegis.errors import InvalidCall

VERSION: Final = "v1.2.2"  # of the benchmark, which is not the package's
SUITES: Final = ("workspace", "travel", "banking", "slack")
_CLIENTS: Final = frozenset(
    {"anthropic", "cohere", "google", "openai", "langchain", "torch", "transformers", "tenacity"}
)
_MARK: Final = "AEGISMARK{}KRAM"


def is_installed() -> bool:
    """Whether the package is there."""
    return importlib.util.find_spec("agentdojo") is not None


def load() -> Iterator[Suite]:
    """Every suite of the package; raises `InvalidCall` where it is not there or is another than is known."""
    if not is_installed():
        raise InvalidCall("the package `agentdojo` is not installed", hint='pip install "aegis-guard[bench]"')
    try:
        with _without_clients():
            suites = import_module("agentdojo.task_suite.load_suites").get_suites(VERSION)
            runtime = import_module("agentdojo.functions_runtime").FunctionsRuntime
            shown = import_module("agentdojo.agent_pipeline.tool_execution").tool_result_to_str
            attack = import_module("agentdojo.attacks.important_instructions_attacks").ImportantInstructionsAttack
        template = attack._JB_STRING.replace("{user}", "Emma Johnson").replace("{model}", "the AI language model")
        for name in SUITES:
            yield _Generating(suites[name], runtime, shown).suite(name, template)
    except (ImportError, AttributeError, KeyError) as error:
        raise InvalidCall(f"this `agentdojo` cannot be read: {type(error).__name__}: {error}") from error


class _Names(type):
    """What a class is made of that stands for a name of a client: every name of it is there as well."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Names(name, (_Anything,), {})


class _Anything(Exception, metaclass=_Names):
    """What a name of a client that is not installed stands for: a class, an exception, a decorator; it does nothing."""

    def __init__(self, *_: Any, **__: Any):
        super().__init__()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Absent(ModuleType):
    """A module of a client that is not installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Names(name, (_Anything,), {})


class _Finder:
    """Finds modules of clients that are not installed; asked after every other finder."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in _CLIENTS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


@contextmanager
def _without_clients() -> Iterator[None]:
    """Stand in for what is not installed; what was stood in for is forgotten afterwards."""
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _Absent)]:
            del sys.modules[name]


class _Generating:
    """One suite of the package, executed."""

    def __init__(self, suite: Any, runtime: Any, shown: Any):
        self._suite = suite
        self._runtime = runtime(suite.tools)
        self._shown = shown
        self._defaults: dict[str, str] = suite.get_injection_vector_defaults()
        self._marks = {name: _MARK.format(number) for number, name in enumerate(self._defaults)}
        self._clean = suite.load_and_inject_default_environment({})
        self._marked = suite.load_and_inject_default_environment(self._marks)

    def suite(self, name: str, template: str) -> Suite:
        """The suite with every task and every attack that has calls."""
        tools = {tool.name: _tool(tool) for tool in self._suite.tools}
        attacks = [self._attack(tools, one) for one in self._suite.injection_tasks.values()]
        return Suite(
            name=name, tools=tools, template=template, source="agentdojo",
            tasks=tuple(self._task(one) for one in self._suite.user_tasks.values()),
            attacks=tuple(one for one in attacks if one.steps),
        )  # fmt: skip

    def _task(self, task: Any) -> BenchTask:
        clean = self._executed(task, task.init_environment(copy.deepcopy(self._clean)))
        marked = self._executed(task, task.init_environment(copy.deepcopy(self._marked)))
        steps = []
        for before, after in zip(clean, marked, strict=True):
            result = self._named(after.result)
            steps.append(
                TaskStep(
                    tool=after.tool,
                    arguments=self._named(after.arguments),
                    clean=before.result,
                    form="yaml",
                    result=self._named(parsed(after.result)) if marks(result) else before.result,
                )
            )
        used = set().union(*(marks(step.result) | marks(step.arguments) for step in steps)) if steps else set()
        slots = {name: Slot(default=self._defaults[name]) for name in used}
        return BenchTask(id=task.ID, prompt=task.PROMPT, steps=tuple(steps), slots=slots)

    def _attack(self, tools: Mapping[str, BenchTool], task: Any) -> Attack:
        steps = tuple(self._executed(task, copy.deepcopy(self._clean)))
        return Attack(id=task.ID, goal=task.GOAL, steps=steps, values=values_of(tools, task.GOAL, steps))

    def _executed(self, task: Any, environment: Any) -> list[TaskStep]:
        """The ground truth of a task with what its tools answered."""
        steps = []
        for call in task.ground_truth(environment):
            result, failure = self._runtime.run_function(environment, call.function, dict(call.args))
            text = failure or self._shown(result)
            steps.append(TaskStep(tool=call.function, arguments=dict(call.args), result=text, form="yaml"))
        return steps

    def _named(self, value: Any) -> Any:
        """`value` with the marks as suites write them."""
        if isinstance(value, str):
            for name, mark in self._marks.items():
                value = value.replace(mark, "{{" + name + "}}")
            return value
        if isinstance(value, list):
            return [self._named(item) for item in value]
        if isinstance(value, dict):
            return {self._named(name): self._named(item) for name, item in value.items()}
        return value


def _tool(tool: Any) -> BenchTool:
    schema = tool.parameters.model_json_schema()
    return BenchTool(
        name=tool.name, description=tool.description, parameters=schema,
        does=deed_of(tool.name, tuple(schema.get("properties", ()))),
    )  # fmt: skip
