"""YAML read strictly, with the place of every value.

One document of plain mappings, lists and scalars (the core schema of YAML 1.2, so `off` and `no` are
words). Refused: duplicate keys, keys that are not text, anchors and aliases, tags, several documents,
nesting beyond `MAX_DEPTH` and text beyond `MAX_BYTES`.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml
from msgspec import Struct
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from aegis.core.json import escape
from aegis.core.patterns import Lazy
from aegis.errors import ConfigError, Problem

MAX_BYTES: Final = 1_048_576  # a configuration is written by people: bounds parsing
MAX_DEPTH: Final = 64  # deeper nesting could exhaust the stack of the builder

_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER: Final = Lazy(r"[-+]?[0-9]{1,30}")
_FLOAT: Final = Lazy(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?")


class Origin(Struct, frozen=True, kw_only=True):
    """Where a value was written; line 0 is unknown."""

    file: str
    line: int


class YamlNode(Struct, frozen=True, kw_only=True):
    """A value and its place: a scalar, a list of nodes, or a mapping of nodes."""

    value: Any
    origin: Origin


def read(text: str, *, file: str) -> YamlNode:
    """The one document that `text` holds.

    Raises `ConfigError` with every problem found, each with its line.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError((Problem(message="the configuration is not Unicode text", file=file),)) from error
    if len(data) > MAX_BYTES:
        raise ConfigError((Problem(message=f"the file is larger than {MAX_BYTES} bytes", file=file),))
    builder = _Builder(file)
    try:
        node = builder.document(iter(yaml.parse(text, Loader=_PARSER)))
    except yaml.YAMLError as error:
        raise ConfigError((_not_yaml(error, text, file),)) from error
    if builder.problems:
        raise ConfigError(tuple(builder.problems))
    return node


def _not_yaml(error: yaml.YAMLError, text: str, file: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        before = text.encode()[: error.position] if _PARSER is not yaml.SafeLoader else text[: error.position].encode()
        line = before.count(b"\n") + 1  # libyaml counts bytes, the parser in Python counts characters
        hint = "remove it, or write it as an escape between double quotes"
        return Problem(message="not YAML: a character that YAML does not allow", file=file, line=line, hint=hint)
    mark, what = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    hint = "look at the indentation (spaces only), the quotes and the brackets up to this line"
    return Problem(message=f"not YAML: {what}", file=file, line=mark.line + 1 if mark else 0, hint=hint)


def plain(node: YamlNode) -> Any:
    """The value of a node without its places."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def dump(value: Any, *, flow: bool = False) -> str:
    """Text that `read` reads as `value`: plain mappings with text for keys, lists and scalars; `flow` is one line."""
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=flow,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf") if flow else 110,
    )
    return text


def origins(node: YamlNode, pointer: str = "") -> Iterator[tuple[str, Origin]]:
    """Every JSON pointer below `node`, with the place of its value."""
    yield pointer, node.origin
    if isinstance(node.value, dict):
        for key, item in node.value.items():
            yield from origins(item, f"{pointer}/{escape(key)}")
    elif isinstance(node.value, list):
        for position, item in enumerate(node.value):
            yield from origins(item, f"{pointer}/{position}")


def overlay(base: YamlNode, over: YamlNode) -> YamlNode:
    """`over` laid on `base`: mappings merge key by key, everything else replaces."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    merged = dict(base.value)
    for key, item in over.value.items():
        merged[key] = overlay(merged[key], item) if key in merged else item
    return YamlNode(value=merged, origin=over.origin)


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, and quotes every text that `read` would take for another value."""

    def ignore_aliases(self, _: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        plain_one = yaml.ScalarEvent(anchor=None, tag=None, implicit=(True, False), value=text)
        is_itself = text.isprintable() and _scalar(plain_one) == text
        return self.represent_scalar("tag:yaml.org,2002:str", text, None if is_itself else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


class _Builder:
    """Turns parser events into nodes and collects what is wrong on the way."""

    def __init__(self, file: str):
        self.file = file
        self.problems: list[Problem] = []

    def document(self, events: Iterator[Any]) -> YamlNode:
        node: YamlNode | None = None
        for event in events:
            if isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent):
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                if node is not None:
                    self._refuse(event, "the file holds more than one document")
                    break
            elif not isinstance(event, yaml.DocumentEndEvent):
                node = self._node(event, events, "", 0)
        return node or YamlNode(value=None, origin=Origin(file=self.file, line=1))

    def _node(self, event: Any, events: Iterator[Any], pointer: str, depth: int, line: int = 0) -> YamlNode:
        origin = Origin(file=self.file, line=line or event.start_mark.line + 1)
        if depth > MAX_DEPTH:
            raise ConfigError(
                (Problem(message=f"nested deeper than {MAX_DEPTH} levels", file=self.file, line=origin.line),)
            )
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"the alias `*{event.anchor}` is not allowed", pointer, "write the value out")
            return YamlNode(value=None, origin=origin)
        if event.anchor is not None:
            self._refuse(event, f"the anchor `&{event.anchor}` is not allowed", pointer, "write the value out")
        if event.tag is not None:
            self._refuse(event, f"the tag `{event.tag}` is not allowed", pointer)
        if isinstance(event, yaml.ScalarEvent):
            return YamlNode(value=_scalar(event), origin=origin)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[YamlNode] = []
            while not isinstance(inner := next(events), yaml.SequenceEndEvent):
                items.append(self._node(inner, events, f"{pointer}/{len(items)}", depth + 1))
            return YamlNode(value=items, origin=origin)
        return YamlNode(value=self._mapping(events, pointer, depth), origin=origin)

    def _mapping(self, events: Iterator[Any], pointer: str, depth: int) -> dict[str, YamlNode]:
        members: dict[str, YamlNode] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            # A key's own event is read like a value, so that a complex key is consumed whole.
            name = self._node(key, events, pointer, depth + 1).value
            # Keys that look like numbers or truth values (a property called `1` or `true`) stay text.
            if isinstance(key, yaml.ScalarEvent):
                name = key.value
            else:
                self._refuse(key, "a key must be text", pointer)
                name = ""
            below = f"{pointer}/{escape(name)}"
            if name in members:
                self._refuse(
                    key, f"the key `{name}` is there twice", below, f"first on line {members[name].origin.line}"
                )
            members[name] = self._node(next(events), events, below, depth + 1, key.start_mark.line + 1)
        return members

    def _refuse(self, event: Any, message: str, pointer: str = "", hint: str = "") -> None:
        line = event.start_mark.line + 1
        self.problems.append(Problem(message=message, file=self.file, line=line, pointer=pointer, hint=hint))


def _scalar(event: Any) -> Any:
    """The value of a scalar by the core schema of YAML 1.2 (section 10.3)."""
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


# From what the model refuses to problems with a place, a plain sentence and a hint.

_SENTENCES: Final = {
    "bool_type": "must be `true` or `false`",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "missing": "is missing",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
MAX_LISTED: Final = 32  # known words that a hint lists
_SHOWN: Final = 60  # characters of a wrong word that a message quotes


def locate(origins: Mapping[str, Origin], pointer: str) -> Origin:
    """The place of the value at `pointer`, or of the nearest value around it."""
    while pointer not in origins and pointer:
        pointer = pointer.rpartition("/")[0]
    return origins.get(pointer, Origin(file="", line=0))


def problem(origins: Mapping[str, Origin], location: Sequence[str | int], message: str, hint: str = "") -> Problem:
    """A problem at a place of the file, given as keys and positions."""
    pointer = "".join(f"/{escape(str(part))}" for part in location)
    origin = locate(origins, pointer)
    return Problem(message=message, file=origin.file, line=origin.line, pointer=pointer, hint=hint)


def from_model(
    errors: Iterable[ErrorDetails], origins: Mapping[str, Origin], model: type[BaseModel]
) -> tuple[Problem, ...]:
    """One problem for each thing that the model refused, in the order of the file."""
    found = [_translate(error, origins, model) for error in errors]
    return tuple(sorted(found, key=lambda one: (one.file, one.line)))


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word that `word` was probably meant to be, or lists a few."""
    words = sorted(known)
    close = difflib.get_close_matches(word[:_SHOWN], words, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known here: {', '.join(f'`{one}`' for one in words)}" if len(words) <= MAX_LISTED else ""


def _translate(error: ErrorDetails, origins: Mapping[str, Origin], model: type[BaseModel]) -> Problem:
    kind, given = error["type"], error["input"]
    location = [part for part in error["loc"] if part != "[key]"]
    name = _name(location)
    context = error.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(location[-1])
        return problem(origins, location, f"unknown key `{key}`", nearest(key, _keys(model, location[:-1])))
    if kind == "literal_error":
        expected = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        if isinstance(given, str):
            shown = given[:_SHOWN] if given.isprintable() else "text with invisible characters"
            return problem(origins, location, f"{name} cannot be `{shown}`", nearest(given, expected))
        return problem(origins, location, f"{name} must be one of {', '.join(f'`{word}`' for word in expected)}")
    if kind == "value_error":
        return problem(origins, location, str(context.get("error", error["msg"])))
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = context.get("ge", context.get("le"))
        word = "at least" if kind == "greater_than_equal" else "at most"
        return problem(origins, location, f"{name} must be {word} {bound}")
    sentence = _SENTENCES.get(kind)
    if sentence is None:
        sentence = "is not allowed: " + error["msg"][:1].lower() + error["msg"][1:]
    hint = "remove the key to keep the profile's value" if given is None and kind != "missing" else ""
    return problem(origins, location, f"{name} {sentence}", hint)


def _name(location: Sequence[str | int]) -> str:
    """What a message calls the value at `location`: its key, or the list that it is an entry of."""
    if not location:
        return "the file"
    if isinstance(location[-1], int) and len(location) > 1:
        return f"an entry of `{location[-2]}`"
    return f"`{location[-1]}`"


def _keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys that the section at `location` knows."""
    annotation: Any = model
    for part in location:
        section = _section(annotation)
        if section is not None:
            by_key = {field.alias or name: field.annotation for name, field in section.model_fields.items()}
            annotation = by_key.get(str(part))
        else:
            inner = [one for one in typing.get_args(annotation) if one is not type(None)]
            annotation = inner[-1] if inner else None
    section = _section(annotation)
    return [] if section is None else [field.alias or name for name, field in section.model_fields.items()]


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that an annotation stands for, looking through `| None` and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (list, dict):
        return None
    for inner in typing.get_args(annotation):
        found = _section(inner)
        if found is not None:
            return found
    return None
