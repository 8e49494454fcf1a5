"""Rule files into a rule set: everything that is wrong is found here, with file and line."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import orjson
import yaml

from aegis.core.effects import names_matched
from aegis.core.json import unpack
from aegis.core.outcome import Category, Outcome, Risk, outcome_of, risk_of
from aegis.core.shipped import shipped_folder
from aegis.core.text import SURFACES, TEXT_ROLES, Surface
from aegis.detect.rules.cache import load_cached, store_cached, written_as
from aegis.detect.rules.checks import CHECKS, PLACE_CHECKS, SPAN_CHECKS, TEXT_CHECKS, WHOLE_CHECKS
from aegis.detect.rules.engine import check_pattern
from aegis.detect.rules.model import Example, ExampleKind, Maturity, Rule, RuleSet
from aegis.errors import ConfigError, Problem

# YAML into plain values with the line of every value; aliases, tags and repeated keys are refused.

MAX_DOCUMENT: Final = 262_144  # characters of one rule file: bounds what a pack can make a start cost
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str, file: str) -> tuple[Any, dict[str, int]]:
    """The one value of a YAML text, and the line (from 1) of each JSON pointer in it.

    Raises `ConfigError` naming file and line for anything that is not one plain YAML value.
    """
    if len(text) > MAX_DOCUMENT:
        raise _bad(f"the file has more than {MAX_DOCUMENT} characters", file, 0)
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise _bad("the file is empty", file, 1)
        lines: dict[str, int] = {}
        return _value(node, "", loader, lines, file, set()), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise _bad(f"not valid YAML: {problem}", file, mark.line + 1 if mark else 0) from error
    finally:
        loader.dispose()


def _value(node: yaml.Node, pointer: str, loader: Any, lines: dict[str, int], file: str, seen: set[int]) -> Any:
    line = node.start_mark.line + 1
    lines[pointer] = line
    if id(node) in seen:
        raise _bad("anchors and aliases are not supported", file, line)
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise _bad("a key is not a plain word", file, key_node.start_mark.line + 1)
            if key in mapping:
                raise _bad(f"the key `{key}` stands here twice", file, key_node.start_mark.line + 1)
            mapping[key] = _value(value_node, f"{pointer}/{key}", loader, lines, file, seen)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, f"{pointer}/{at}", loader, lines, file, seen) for at, item in enumerate(node.value)]
    if not node.tag.startswith("tag:yaml.org,2002:"):
        raise _bad("tags are not supported", file, line)
    return loader.construct_object(node)


def _bad(message: str, file: str, line: int) -> ConfigError:
    return ConfigError((Problem(message=message, file=file, line=line),))


# Where the rules that ship with Aegis live: inside the wheel, or beside the source tree.


def builtin_folder() -> Path:
    """The folder of the built-in rules; raises `ConfigError` where the installation lacks them."""
    return shipped_folder("rules")


# Rules that were read and checked before, kept beside the compiled databases: reading them anew takes a third of a
# second.
#
# They are trusted as those databases are. What they depend on are the bytes of every file, and the code that checks
# them.

_CHECKED_BY: Final = ("../../core/effects.py", "../../core/text.py", "checks.py", "engine.py", "load.py", "model.py")
_ENCODER: Final = msgspec.msgpack.Encoder()


def kept_rules(folder: Path, files: Sequence[tuple[Path, str]]) -> tuple[Rule, ...] | None:
    """The rules that these files, with their texts, held when they were checked; `None` where that is not known."""
    body = load_cached(folder, _identity(files))
    if body is None:
        return None
    try:
        return _decoded(body)
    except msgspec.DecodeError:
        return None


def keep_rules(folder: Path, files: Sequence[tuple[Path, str]], rules: tuple[Rule, ...]) -> None:
    """Keep the rules of files in which nothing is wrong; what would not come back as it is, is not kept."""
    try:
        body = _ENCODER.encode(rules)
        same = _decoded(body) == rules
    except (TypeError, ValueError, msgspec.MsgspecError):  # an example can hold any value of YAML
        return
    if same:
        store_cached(folder, _identity(files), body)


def _identity(files: Sequence[tuple[Path, str]]) -> tuple[str, ...]:
    return ("rules", *_checkers(), *(word for path, text in files for word in (str(path), text)))


@cache
def _checkers() -> tuple[str, ...]:
    here = Path(__file__).parent
    return tuple(written_as(here / name) for name in _CHECKED_BY)


def _decoded(body: bytes) -> tuple[Rule, ...]:
    return unpack(body, tuple[Rule, ...])


LEAST_EXAMPLES: Final = 2
MAX_RULES: Final = 2_000  # bounds what packs can make a start cost
_MEMBERS: Final = frozenset({
    "id", "title", "category", "severity", "outcome", "maturity", "roles", "message", "patterns",
    "case_sensitive", "likely", "handed_on", "least", "anchors", "check", "unless",
    "entropy",
    "facts", "effects", "references", "examples",
})  # fmt: skip
_REQUIRED: Final = ("id", "title", "category", "severity", "outcome", "roles", "message", "examples")
_CATEGORIES: Final = frozenset(get_args(Category))
_EXAMPLE_KINDS: Final[tuple[ExampleKind, ...]] = ("match", "evade", "pass")
_GROUPS: Final[dict[str, tuple[Surface, ...]]] = {
    "any": ("unknown", *(surface for surface in SURFACES if surface not in {"description", "unknown"})),
    "argument": ("unknown", *(role for role in TEXT_ROLES if role not in {"unknown", "document"})),
    "plain": ("identifier", "unknown", "query_fragment", "path", "url"),
}


def load(*folders: Path, cache: Path | None = None) -> RuleSet:
    """Every rule of `folders` (`<family>/<id>.yaml`), validated; a folder that is given twice is read once.

    `cache` is a private folder: rules that were validated before are taken from there. Raises `ConfigError` with one
    problem for each thing that is wrong: unknown members or words, an id that differs from the file name or occurs
    twice, a pattern that is not linear-time, fewer than two `match` and two `pass` examples.
    """
    problems: list[Problem] = []
    files = _read(folders, problems)
    kept = kept_rules(cache, files) if cache is not None and not problems else None
    if kept is not None:
        return rule_set(kept)
    rules: dict[str, Rule] = {}
    for path, text in files:
        try:
            rule = parse_rule(text, file=str(path), family=path.parent.name)
        except ConfigError as error:
            problems.extend(error.problems)
            continue
        if rule.id != path.stem:
            problems.append(Problem(message=f"the id `{rule.id}` differs from the file name", file=str(path), line=1))
        if rule.id in rules:
            message = f"the id `{rule.id}` is already taken by `{rules[rule.id].file}`"
            problems.append(Problem(message=message, file=str(path), line=1))
        rules[rule.id] = rule
    if problems:
        raise ConfigError(tuple(problems))
    if cache is not None:
        keep_rules(cache, files, tuple(rules.values()))
    return rule_set(list(rules.values()))


def _read(folders: Sequence[Path], problems: list[Problem]) -> list[tuple[Path, str]]:
    """The texts of all rule files in their order; what cannot be read is added to `problems`."""
    files: list[tuple[Path, str]] = []
    for folder in {folder.resolve(): folder for folder in folders}.values():
        if not folder.is_dir():
            problems.append(Problem(message="the rule folder does not exist", file=str(folder)))
            continue
        for path in sorted(folder.glob("*/*.yaml")):
            if len(files) == MAX_RULES:
                raise ConfigError((Problem(message=f"there are more than {MAX_RULES} rules", file=str(folder)),))
            try:
                files.append((path, path.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                problems.append(Problem(message=f"the file cannot be read: {type(error).__name__}", file=str(path)))
    return files


def rule_set(rules: Sequence[Rule]) -> RuleSet:
    """A rule set in the order of ids, with its digest; raises `ConfigError` for a repeated id."""
    ordered = tuple(sorted(rules, key=lambda rule: rule.id))
    by_id = {rule.id: rule for rule in ordered}
    if len(by_id) != len(ordered):
        raise ConfigError((Problem(message="two rules have the same id"),))
    return RuleSet(rules=ordered, digest=_digest(ordered), by_id=by_id)


def parse_rule(text: str, *, file: str, family: str) -> Rule:
    """One rule from the text of its file; raises `ConfigError` with everything that is wrong in it."""
    value, lines = parse(text, file)
    reader = _Reader(file, lines)
    rule = reader.rule(value, family)
    if rule is None or reader.problems:
        raise ConfigError(tuple(reader.problems))
    return rule


def _digest(rules: Sequence[Rule]) -> str:
    meaning = [
        [
            rule.id, rule.category, rule.severity.word, rule.outcome.word, rule.maturity, sorted(rule.surfaces),
            rule.patterns, rule.case_sensitive, rule.facts, rule.least, rule.anchors, rule.check, rule.entropy,
            rule.unless, rule.likely, rule.handed_on,
        ]
        for rule in rules
    ]  # fmt: skip
    return "sha-256:" + hashlib.sha256(orjson.dumps(meaning)).hexdigest()


class _Reader:
    """Collects every problem of one file instead of stopping at the first."""

    def __init__(self, file: str, lines: dict[str, int]):
        self.file = file
        self.lines = lines
        self.problems: list[Problem] = []

    def rule(self, value: Any, family: str) -> Rule | None:
        if not isinstance(value, dict):
            self.bad("a rule file holds one mapping", "")
            return None
        for key in value.keys() - _MEMBERS:
            self.bad(f"`{key}` is not a member of a rule", f"/{key}", hint=f"members: {', '.join(sorted(_MEMBERS))}")
        for key in _REQUIRED:
            if key not in value:
                self.bad(f"the member `{key}` is missing", "")
        patterns = self.words(value, "patterns")
        facts = (*self.words(value, "facts"), *self.effects(value))
        if bool(patterns) == bool(facts):
            self.bad("a rule has either `patterns`, or `facts` and `effects`", "")
        case_sensitive, likely = self.flag(value, "case_sensitive"), self.flag(value, "likely")
        for at, pattern in enumerate(patterns):
            wrong = check_pattern(pattern, case_sensitive=case_sensitive)
            if wrong:
                self.bad(wrong, f"/patterns/{at}")
        checks = (*CHECKS, *PLACE_CHECKS, *SPAN_CHECKS, *TEXT_CHECKS, *WHOLE_CHECKS)
        if value.get("check", "") not in {"", *checks}:
            self.bad(f"`{value['check']}` is not a check", "/check", hint=f"one of {', '.join(checks)}")
        unless = self.words(value, "unless")
        for at, pattern in enumerate(unless):
            wrong = check_pattern(pattern, case_sensitive=case_sensitive)
            if wrong:
                self.bad(wrong, f"/unless/{at}")
        self.number(value, "least", 1, len(patterns) or 1)
        self.number(value, "entropy", 0, 8)
        category = self.one_of(value, "category", _CATEGORIES)
        maturity: Maturity = "sandbox" if value.get("maturity") == "sandbox" else "stable"
        if value.get("maturity", "stable") not in {"stable", "sandbox"}:
            self.bad("`maturity` must be `stable` or `sandbox`", "/maturity")
        severity, outcome = self.severity(value), self.outcome(value)
        surfaces, first = self.surfaces(value)
        examples = self.examples(value.get("examples"), first)
        if self.problems:
            return None
        return Rule(
            id=self.text(value, "id"),
            family=family,
            title=self.text(value, "title"),
            category=category,
            severity=severity,
            outcome=outcome,
            maturity=maturity,
            surfaces=surfaces,
            message=self.text(value, "message"),
            patterns=patterns,
            case_sensitive=case_sensitive,
            likely=likely,
            handed_on=self.flag(value, "handed_on"),
            least=self.number(value, "least", 1, len(patterns) or 1),
            anchors=self.number(value, "anchors", 0, len(patterns)),
            check=str(value.get("check", "")),
            unless=unless,
            entropy=float(self.number(value, "entropy", 0, 8)),
            facts=facts,
            references=self.words(value, "references"),
            examples=examples,
            file=self.file,
            line=self.lines.get("", 0),
        )

    def bad(self, message: str, pointer: str, hint: str = "") -> None:
        line = self.lines.get(pointer, self.lines.get("", 0))
        self.problems.append(Problem(message=message, file=self.file, line=line, pointer=pointer, hint=hint))

    def text(self, value: dict[str, Any], key: str) -> str:
        word = value.get(key)
        if not isinstance(word, str) or not word.strip():
            self.bad(f"`{key}` must be text", f"/{key}")
            return ""
        return word

    def flag(self, value: dict[str, Any], key: str) -> bool:
        flag = value.get(key, False)
        if not isinstance(flag, bool):
            self.bad(f"`{key}` must be true or false", f"/{key}")
        return flag is True

    def words(self, value: dict[str, Any], key: str) -> tuple[str, ...]:
        items = value.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            self.bad(f"`{key}` must be a list of texts", f"/{key}")
            return ()
        return tuple(items)

    def effects(self, value: dict[str, Any]) -> tuple[str, ...]:
        """The names of all effects that the patterns of a rule stand for."""
        found: set[str] = set()
        for at, pattern in enumerate(self.words(value, "effects")):
            try:
                found |= names_matched(pattern)
            except ValueError as error:
                self.bad(str(error), f"/effects/{at}")
        return tuple(sorted(found))

    def number(self, value: dict[str, Any], key: str, least: int, most: int) -> Any:
        number = value.get(key, least)
        if type(number) not in (int, float) or not least <= number <= most:
            self.bad(f"`{key}` must be a number from {least} to {most}", f"/{key}")
            return least
        return number

    def one_of(self, value: dict[str, Any], key: str, allowed: frozenset[Any]) -> Any:
        word = value.get(key)
        if word not in allowed:
            self.bad(f"`{word}` is not a {key}", f"/{key}", hint=f"one of {', '.join(sorted(allowed))}")
        return word

    def severity(self, value: dict[str, Any]) -> Risk:
        try:
            return risk_of(str(value.get("severity")))
        except ValueError as error:
            self.bad(str(error), "/severity")
            return Risk.HIGH

    def outcome(self, value: dict[str, Any]) -> Outcome:
        try:
            return outcome_of(str(value.get("outcome")))
        except ValueError as error:
            self.bad(str(error), "/outcome")
            return Outcome.BLOCK

    def surfaces(self, value: dict[str, Any]) -> tuple[frozenset[Surface], Surface]:
        words = tuple(word for given in self.words(value, "roles") for word in _GROUPS.get(given, (given,)))
        known = [surface for surface in SURFACES if surface in words]
        for word in words:
            if word not in SURFACES:
                self.bad(f"`{word}` is not a role", "/roles", hint=f"some of {', '.join((*_GROUPS, *SURFACES))}")
        if not known:
            self.bad("`roles` names no role", "/roles")
            return frozenset(), "unknown"
        return frozenset(known), next(surface for surface in SURFACES if surface == words[0])

    def examples(self, value: Any, first: Surface) -> tuple[Example, ...]:
        if not isinstance(value, dict) or value.keys() - set(_EXAMPLE_KINDS):
            self.bad("`examples` holds `match`, `evade` and `pass`", "/examples")
            return ()
        found: list[Example] = []
        for kind in _EXAMPLE_KINDS:
            items = value.get(kind, [])
            if not isinstance(items, list):
                self.bad(f"`{kind}` must be a list", f"/examples/{kind}")
                continue
            if kind != "evade" and len(items) < LEAST_EXAMPLES:
                self.bad(f"a rule needs at least {LEAST_EXAMPLES} `{kind}` examples", f"/examples/{kind}")
            for at, item in enumerate(items):
                example = self.example(kind, item, first, f"/examples/{kind}/{at}")
                if example is not None:
                    found.append(example)
        return tuple(found)

    def example(self, kind: ExampleKind, item: Any, first: Surface, pointer: str) -> Example | None:
        line = self.lines.get(pointer, 0)
        if isinstance(item, str):
            return Example(kind=kind, surface=first, text=item, line=line)
        if (
            isinstance(item, dict)
            and isinstance(item.get("arguments"), dict)
            and not item.keys() - {"tool", "arguments"}
        ):
            tool = str(item.get("tool", "example"))
            return Example(kind=kind, surface="unknown", tool=tool, arguments=item["arguments"], line=line)
        if isinstance(item, dict) and item.keys() == {"result"}:
            return Example(kind=kind, surface="result", result=item["result"], line=line)
        if isinstance(item, dict) and item.keys() == {"role", "text"} and item["role"] in SURFACES:
            return Example(kind=kind, surface=item["role"], text=str(item["text"]), line=line)
        self.bad("an example is a text, `{role, text}`, `{tool, arguments}` or `{result}`", pointer)
        return None
