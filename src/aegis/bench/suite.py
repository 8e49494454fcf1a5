"""Suites of the bench: tools, tasks that a user gives with the calls that solve them, and attackers' calls.

A suite is a YAML or JSON file (`docs/reference/bench.md` has its format). The results of a task hold marks `{{name}}`
where somebody else writes: a slot of free text, or a structured field of one kind of value. What an attack puts there
is made when a case is run, so one attack is measured in every wording.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import re2
import yaml

from aegis.core.patterns import Lazy
from aegis.core.shipped import shipped_folder
from aegis.errors import InvalidCall

Variant = Literal["template", "bare", "value", "encoded", "field"]
Form = Literal["json", "yaml"]
VARIANTS: Final[tuple[Variant, ...]] = ("template", "bare", "value", "encoded", "field")
HARMLESS: Final = frozenset({"read", "fetch"})
DEEDS: Final = frozenset(
    {"read", "fetch", "send", "post", "pay", "share", "account", "book", "create", "modify", "delete", "member"}
    | {"execute", "sign-in", "other"}
)
MAX_FILE_BYTES: Final = 64 * 1024 * 1024  # a suite is read whole: bounds memory
_MARK: Final = Lazy(r"\{\{([A-Za-z0-9_]{1,64})\}\}")
_WORDS: Final = Lazy(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_VALUES: Final = Lazy(
    r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}|(?:https?://|www\.)[^\s\"'<>]{1,500}"
    r"|\b[A-Z]{2}[0-9]{2}[A-Z0-9]{8,30}\b|\+[0-9][0-9 ()-]{7,20}[0-9]"
)
_SHORT: Final = 80  # characters of a text that can be a value


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """A place in a task's results that somebody else writes; with `field` it is a value of that kind, else text."""

    default: str = ""
    field: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchTool:
    """A tool as its suite describes it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    does: str = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskStep:
    """A call and what the tool answers; `clean` is the answer where nobody attacks, if it is another one.

    `turn` is what the user says before it, `form` how the tool hands its result over: as values, or as YAML text.
    """

    tool: str
    arguments: dict[str, Any]
    result: Any = ""
    clean: Any = None
    form: Form = "json"
    turn: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchTask:
    """What a user asks for, and the calls that do it."""

    id: str
    prompt: str
    steps: tuple[TaskStep, ...]
    slots: Mapping[str, Slot] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """What an attacker wants, and the calls of an agent that obeys; `values` are his, by their kind."""

    id: str
    goal: str
    steps: tuple[TaskStep, ...]
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """One domain. `pairs` are the tasks and attacks that go together; without them all do."""

    name: str
    tools: Mapping[str, BenchTool]
    tasks: tuple[BenchTask, ...]
    attacks: tuple[Attack, ...]
    template: str
    source: str = "own"
    pairs: frozenset[tuple[str, str]] | None = None

    def does(self, step: TaskStep) -> str:
        """The kind of deed that a step is."""
        tool = self.tools.get(step.tool)
        return "other" if tool is None else tool.does

    def is_hard(self, task: BenchTask, attack: Attack) -> bool:
        """Whether the user's own task needs every kind of deed that the attacker's calls are."""
        own = {self.does(step) for step in task.steps}
        return bool(wanted := {self.does(step) for step in attack.steps} - HARMLESS) and wanted <= own


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCase:
    """One task that is run, attacked or not: what an attack is put into, how, and when its calls come.

    `shown` says that the gate is told the user's words, `late` that the attacker's calls come after the user's.
    """

    suite: Suite
    task: BenchTask
    attack: Attack | None = None
    variant: Variant | None = None
    shown: bool = True
    late: bool = False


def cases(
    suite: Suite, *, variants: tuple[Variant, ...], shown: tuple[bool, ...], late: tuple[bool, ...]
) -> Iterator[TaskCase]:
    """Every case of a suite: each task alone, and with every attack in every wording that it has a place for."""
    for told in shown:
        for task in suite.tasks:
            yield TaskCase(suite=suite, task=task, shown=told)
            for attack in suite.attacks:
                if suite.pairs is not None and (task.id, attack.id) not in suite.pairs:
                    continue
                for variant in variants:
                    if written(suite, task, attack, variant):
                        for when in late:
                            yield TaskCase(
                                suite=suite, task=task, attack=attack, variant=variant, shown=told, late=when
                            )


def written(suite: Suite, task: BenchTask, attack: Attack, variant: Variant) -> dict[str, str]:
    """What the attacker writes into which slots of a task; empty where it has no place for this wording."""
    if variant == "field":
        return {name: attack.values[slot.field] for name, slot in task.slots.items() if slot.field in attack.values}
    text = _worded(suite, attack, variant)
    return {name: text for name, slot in task.slots.items() if not slot.field} if text else {}


def _worded(suite: Suite, attack: Attack, variant: Variant) -> str:
    if variant == "template":
        return suite.template.replace("{goal}", attack.goal)
    if variant == "bare":
        return attack.goal
    if variant == "value":
        return "\n".join(dict.fromkeys(attack.values.values()))
    return base64.b64encode(attack.goal.encode()).decode()


def filled(value: Any, texts: Mapping[str, str]) -> Any:
    """`value` with its marks replaced."""
    if isinstance(value, str):
        return _MARK.sub(lambda match: texts.get(match.group(1), match.group(0)), value)
    if isinstance(value, list):
        return [filled(item, texts) for item in value]
    if isinstance(value, dict):
        return {filled(name, texts): filled(item, texts) for name, item in value.items()}
    return value


def marks(value: Any) -> set[str]:
    """The slots that a value holds."""
    if isinstance(value, str):
        return set(_MARK.findall(value))
    if isinstance(value, list):
        return set().union(*map(marks, value))
    if isinstance(value, dict):
        return set().union(*(marks(part) for item in value.items() for part in item))
    return set()


def handed_over(value: Any, form: Form) -> Any:
    """A result as the tool hands it over."""
    if form == "json" or isinstance(value, str):
        return value
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).strip()


# What a tool does, where its suite does not say.


@cache
def _deeds() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((data_folder() / "deeds.yaml").read_text(encoding="utf-8"))
    return found


def data_folder() -> Path:
    """The folder of the bench's own suites, inside the wheel or beside the source tree."""
    return shipped_folder("data/bench")


def deed_of(name: str, arguments: Mapping[str, Any] | tuple[str, ...] = ()) -> str:
    """The kind of deed that the words of a tool's name say."""
    known = _deeds()
    words = [word.lower() for word in _WORDS.findall(name)]
    if words and words[0] in known["reads"]:
        asked = {word.lower() for argument in arguments for word in _WORDS.findall(argument)}
        return "read" if asked.isdisjoint(known["fetched"]) else "fetch"
    for deed, objects in known["objects"].items():
        if not set(objects).isdisjoint(words):
            return str(deed)
    return next((str(deed) for word in words for deed, verbs in known["verbs"].items() if word in verbs), "other")


def values_of(tools: Mapping[str, BenchTool], goal: str, steps: tuple[TaskStep, ...]) -> dict[str, str]:
    """What of an attacker's calls can stand alone in a text: addresses and accounts, otherwise short texts.

    What his goal names goes before what his calls hold beside it.
    """
    acting = [step for step in steps if tools[step.tool].does != "read"]
    strings = list(dict.fromkeys(text for step in acting for text in _strings(step.arguments)))
    typed = list(dict.fromkeys(found for text in strings for found in _VALUES.findall(text)))
    chosen = typed or [text for text in strings if len(text) <= _SHORT]
    named = [text for text in chosen if text in goal]
    return {f"value_{number}": text for number, text in enumerate(named or chosen)}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


# Files.


def read_folder(folder: Path) -> list[Suite]:
    """The suites in a folder: `*.yaml` and `*.json` files, and `*.jsonl` files of replayed episodes."""
    paths = sorted(path for path in folder.iterdir() if path.name != "deeds.yaml") if folder.is_dir() else []
    found: list[Suite] = []
    for path in paths:
        if path.suffix in {".yaml", ".yml", ".json"}:
            found.append(read_suite(path))
        elif path.suffix == ".jsonl":
            found.extend(read_episodes(path))
    if not found:
        raise InvalidCall(f"`{folder}` holds no suite", hint="a suite is a *.yaml, *.json or *.jsonl file")
    return found


def read_suite(path: Path) -> Suite:
    """The suite in a file; raises `InvalidCall` that names what is wrong."""
    data = _read(path)
    try:
        value = json.loads(data) if path.suffix == ".json" else yaml.load(data, _loader())  # noqa: S506 - a safe loader
        return _suite(value)
    except (ValueError, yaml.YAMLError) as error:
        raise InvalidCall(f"`{path}` cannot be read: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidCall(f"`{path}` is no suite: {type(error).__name__} at {error}", hint="see the format") from error


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidCall(f"`{path}` has more than {MAX_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidCall(f"`{path}` cannot be read: {error}") from error


def _suite(value: Any) -> Suite:
    tools = {name: _tool(name, told) for name, told in value["tools"].items()}
    suite = Suite(
        name=value["suite"],
        tools=tools,
        tasks=tuple(_task(task) for task in value["tasks"]),
        attacks=tuple(
            Attack(id=one["id"], goal=one["goal"], steps=_steps(one["calls"]), values=one.get("values", {}))
            for one in value["attacks"]
        ),
        template=value["template"],
    )
    _check(suite)
    return suite


def _tool(name: str, told: Any) -> BenchTool:
    properties = {argument: _schema(kind) for argument, kind in told.get("arguments", {}).items()}
    parameters = told.get("parameters") or {"type": "object", "properties": properties}
    does = told.get("does") or deed_of(name, tuple(parameters.get("properties", ())))
    return BenchTool(name=name, description=told.get("description", ""), parameters=parameters, does=does)


def _schema(kind: str) -> dict[str, Any]:
    """The JSON Schema that one word stands for: a type, a format, or a list of either (`email[]`)."""
    if kind.endswith("[]"):
        return {"type": "array", "items": _schema(kind.removesuffix("[]"))}
    if kind in {"string", "number", "integer", "boolean", "object"}:
        return {"type": kind}
    return {"type": "string", "format": kind}


def _task(value: Any) -> BenchTask:
    slots = {
        name: Slot(default=told) if isinstance(told, str) else Slot(default=told["default"], field=told["field"])
        for name, told in value.get("slots", {}).items()
    }
    return BenchTask(id=value["id"], prompt=value["prompt"], steps=_steps(value["calls"]), slots=slots)


def _steps(value: Any) -> tuple[TaskStep, ...]:
    return tuple(
        TaskStep(
            tool=one["tool"], arguments=dict(one.get("arguments", {})), result=one.get("result", "done"),
            turn=one.get("turn", ""), form=one.get("form", "json"),
        )
        for one in value
    )  # fmt: skip


def _check(suite: Suite) -> None:
    """Guarantee that a suite says nothing twice and names nothing that it does not have; raises `ValueError`."""
    every: list[BenchTask | Attack] = [*suite.tasks, *suite.attacks]
    if len({one.id for one in every}) != len(every):
        raise ValueError("an id stands there twice")
    for one in every:
        unknown = [step.tool for step in one.steps if step.tool not in suite.tools]
        if unknown:
            raise ValueError(f"`{one.id}` calls `{unknown[0]}`, which is no tool of the suite")
    for tool in suite.tools.values():
        if tool.does not in DEEDS:
            raise ValueError(f"`{tool.name}` does `{tool.does}`, which is no kind of deed")
    for task in suite.tasks:
        used = set().union(*(marks(step.result) | marks(step.arguments) for step in task.steps))
        if used != set(task.slots):
            raise ValueError(f"the slots of `{task.id}` and the marks in its results differ")
    if "{goal}" not in suite.template:
        raise ValueError("`template` has no `{goal}`")


# Episodes that were replayed elsewhere: records `suite`, `user_task` and `episode`, a record a line.


def read_episodes(path: Path) -> list[Suite]:
    """The suites of a file of replayed episodes; what an injection reached nothing in does not count."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise InvalidCall(f"`{path}:{number}` is not JSON: {error}") from error
    try:
        suites = [record for record in records if record["type"] == "suite"]
        return [_replayed(told, [one for one in records if one["suite"] == told["suite"]]) for told in suites]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidCall(f"`{path}` holds no episodes: {type(error).__name__} at {error}") from error


def _replayed(told: dict[str, Any], records: list[dict[str, Any]]) -> Suite:
    tools = {
        tool["name"]: BenchTool(
            name=tool["name"], description=tool["description"], parameters=tool["parameters"],
            does=deed_of(tool["name"], tuple(tool["parameters"].get("properties", ()))),
        )
        for tool in told["tools"]
    }  # fmt: skip
    episodes = [
        one for one in records if one["type"] == "episode" and one["injection_usable"] and one["injection_steps"]
    ]
    seen = {one["user_task_id"]: one for one in reversed(episodes)}
    attacks: dict[str, Attack] = {}
    first: dict[str, Any] = episodes[0] if episodes else {"injected_strings": {"": "{goal}"}, "goal": "{goal}"}
    template = next(iter(first["injected_strings"].values())).replace(first["goal"], "{goal}")
    for one in episodes:
        steps = tuple(
            TaskStep(tool=step["tool"], arguments=step["args"], result=step["result"], form="yaml")
            for step in one["injection_steps"]
        )
        values = values_of(tools, one["goal"], steps)
        attacks[one["injection_task_id"]] = Attack(
            id=one["injection_task_id"], goal=one["goal"], steps=steps, values=values
        )
    tasks = tuple(_replayed_task(one, seen.get(one["user_task_id"])) for one in records if one["type"] == "user_task")
    pairs = frozenset((one["user_task_id"], one["injection_task_id"]) for one in episodes)
    return Suite(
        name=told["suite"], tools=tools, tasks=tasks, attacks=tuple(attacks.values()), template=template,
        source=told["benchmark"], pairs=pairs,
    )  # fmt: skip


def _replayed_task(record: dict[str, Any], attacked: dict[str, Any] | None) -> BenchTask:
    told = attacked or {}
    results, others = told.get("attacked_results", {}), told.get("attacked_steps", record["steps"])
    patterns = {name: _loosely(text) for name, text in told.get("injected_strings", {}).items()}
    steps: list[TaskStep] = []
    slots: dict[str, Slot] = {}
    for number, (clean, other) in enumerate(zip(record["steps"], others, strict=True)):
        result = results.get(str(number), other["result"])
        step = TaskStep(
            tool=clean["tool"], arguments=_marked(other["args"], patterns), clean=clean["result"], form="yaml",
            result=clean["result"] if result == clean["result"] else _marked(parsed(result), patterns),
        )  # fmt: skip
        steps.append(step)
        slots.update({name: Slot() for name in marks(step.result) - slots.keys()})
        for name, text in step.arguments.items():
            slots.update({mark: Slot(default=_stood(text, mark, clean["args"][name])) for mark in marks(text)})
    return BenchTask(id=record["user_task_id"], prompt=record["prompt"], steps=tuple(steps), slots=slots)


def _stood(marked: Any, mark: str, clean: Any) -> str:
    """What stood in the place of a mark, as the same text without it shows."""
    before, _, after = str(marked).partition("{{" + mark + "}}")
    return str(clean).removeprefix(before).removesuffix(after)


def _loosely(text: str) -> Any:
    """A pattern of a text whose white space was folded."""
    return re2.compile(r"\s*" + r"\s+".join(re2.escape(word) for word in text.split()) + r"\s*")


def parsed(text: str) -> Any:
    """The values of a result that a tool wrote as YAML; text that is none stays text."""
    try:
        value = yaml.load(text, _loader())  # noqa: S506 - a safe loader
    except yaml.YAMLError:
        return text
    return json.loads(json.dumps(value, default=str)) if isinstance(value, (list, dict)) else text


def _marked(value: Any, patterns: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        for name, pattern in patterns.items():
            value = pattern.sub("{{" + name + "}}", value)
        return value
    if isinstance(value, list):
        return [_marked(item, patterns) for item in value]
    if isinstance(value, dict):
        return {_marked(name, patterns): _marked(item, patterns) for name, item in value.items()}
    return value
