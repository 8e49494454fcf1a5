"""A shell text as its simple commands, by the grammar (tree-sitter-bash).

The parser never fails: what it cannot read becomes an error node, and everything around it is still
there. Commands inside substitutions, subshells, loops and `-c` scripts are commands like any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal, NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Query

from aegis.core.patterns import Lazy
from aegis.detect.facts import Effort
from aegis.detect.grammar import Grammar, captures
from aegis.detect.paths import spread
from aegis.detect.shell.catalogue import of_kind
from aegis.detect.shell.expansions import may_compute
from aegis.detect.shell.heredocs import literal

# Where the commands of a shell text stand: in which pipeline, at which place of it, inside of a substitution or
# not.
#
# Found by the places of the nodes alone, each looked at once: to ask a node of the tree for its parent takes as
# long as the tree is deep.


class ShellPlace(NamedTuple):
    """The number of a pipeline (0 outside of one), the place in it, whether inside of a substitution; its text."""

    pipe: int
    stage: int
    inside: bool
    pipeline: str


class Places:
    """The pipelines and substitutions of one tree; asked about its commands in the order of their beginnings.

    Pipelines are numbered from `before` on, the last number of the tree before.
    """

    def __init__(self, pipelines: Sequence[Node], substitutions: Sequence[Node], before: int = 0):
        around = [(node.start_byte, -node.end_byte, number, node) for number, node in enumerate(pipelines, before + 1)]
        around += [(node.start_byte, -node.end_byte, 0, node) for node in substitutions]
        self._waiting = sorted(around, key=_outermost_first, reverse=True)
        self._open: list[tuple[int, int, Node]] = []  # end, number of the pipeline or 0 for a substitution
        self._depth = 0  # substitutions among them
        self._stages: dict[int, tuple[list[int], str]] = {}

    def of(self, node: Node) -> ShellPlace:
        """The place of a command that begins no earlier than the one asked about before."""
        start, end = node.start_byte, node.end_byte
        while self._waiting and self._waiting[-1][0] <= start:
            _, ends, number, outer = self._waiting.pop()
            self._open.append((-ends, number, outer))
            self._depth += not number
        while self._open and self._open[-1][0] <= start:
            self._depth -= not self._open.pop()[1]
        depth = self._depth
        # A pipeline counts that lies between the command and the nearest substitution around it.
        for ends, number, outer in reversed(self._open):
            if ends < end:  # begins where the command does, and is a part of it
                depth -= not number
                continue
            if not number:
                break
            starts, text = self._of_pipeline(number, outer)
            return ShellPlace(number, max(0, bisect_right(starts, start) - 1), depth > 0, text)
        return ShellPlace(0, 0, depth > 0, "")

    def _of_pipeline(self, number: int, node: Node) -> tuple[list[int], str]:
        known = self._stages.get(number)
        if known is None:
            text = (node.text or b"").decode("utf-8", "replace")
            known = self._stages[number] = ([child.start_byte for child in node.named_children], text)
        return known


def _outermost_first(item: tuple[int, int, int, Node]) -> tuple[int, int]:
    return item[0], item[1]


MAX_SHELL: Final = 16_384  # characters given to the parser
# The parser takes the square of a pipeline's stages in one step, in which nothing can stop it.
_MOST_PIPES: Final = 1_000
_LANGUAGE: Final = Language(tree_sitter_bash.language())
_QUERY: Final = Query(
    _LANGUAGE,
    "[(command) (unset_command) (declaration_command)] @command (file_redirect) @redirect (pipeline) @pipeline"
    " [(command_substitution) (process_substitution)] @substitution (redirected_statement) @redirected"
    " (case_statement) @case (function_definition) @function (variable_assignment) @assignment"
    " [(for_statement) (while_statement)] @loop",
)
_GRAMMAR: Final = Grammar(_LANGUAGE, _QUERY)


class Command(NamedTuple):
    """One simple command: its words with quotes undone, and where its input comes from.

    `pipe` names the pipeline (0 outside of one) and `stage` the place in it; `inside` says that it
    stands in a command or process substitution. `variables` are those set for it alone, and `elevated`
    says that it runs with another user's rights; `pipeline` is the text of its pipeline, where it stands in one.
    `words` are its name and arguments as they are written, `program` its name with the path before it, and `fed` says
    that a redirection gives it something to read.
    """

    name: str
    args: tuple[str, ...]
    text: str
    pipe: int
    stage: int
    inside: bool
    variables: tuple[tuple[str, str], ...] = ()
    elevated: bool = False
    pipeline: str = ""
    words: tuple[str, ...] = ()
    program: str = ""
    fed: bool = False


UnitKind = Literal[
    "text", "case", "pipeline", "redirected", "command", "substitution", "function", "assignment", "redirect", "loop"
]


class ShellUnit:
    """A part of a shell text through which data goes, with the parts inside of it in their order.

    `command` is that of a unit which is one, and of a loop its variable with the words that it goes over, whose body
    begins at `tail`; `stages` say where the parts of a pipeline begin, and `tail` where what
    a redirection behind a list or a pipeline belongs to begins. `first` says that nothing can keep the unit from
    being the first thing that runs.
    """

    __slots__ = ("command", "end", "first", "inner", "kind", "source", "stages", "start", "tail")

    def __init__(self, kind: UnitKind, start: int, end: int, source: str = ""):
        self.kind: UnitKind = kind
        self.start, self.end = start, end
        self.source = source
        self.command: Command | None = None
        self.inner: list[ShellUnit] = []
        self.stages: tuple[int, ...] = ()
        self.tail = start
        self.first = False


class Shell(NamedTuple):
    """The commands and redirections of a text; `error` where part of it was not grammar.

    `writes` are the files that redirections write, each with the text of the statement that does, and `reads` those
    that they read; `cut` says that something was left out because effort ran out. `units` are the parts of the text
    through which data goes; there are none in a text of plain commands.
    """

    commands: tuple[Command, ...]
    writes: tuple[tuple[str, str], ...]
    error: bool
    cut: bool = False
    units: tuple[ShellUnit, ...] = ()
    reads: tuple[str, ...] = ()


def parse_shell(text: str, effort: Effort) -> Shell:
    """The commands of a shell text of at most `MAX_SHELL` characters, as far as `effort` goes.

    Commands stand inside commands: what each of them costs is its own length, so that the text of a deep nest is
    not read once a level.
    """
    commands: list[Command] = []
    writes: list[tuple[str, str]] = []
    units: list[ShellUnit] = []
    reads: list[str] = []
    error = cut = False
    for found in captures(_GRAMMAR, text, effort, whole=text.count("|") <= _MOST_PIPES):
        if found is None:
            cut = True
            continue
        error = error or found.error
        cut = _add(found.nodes, text, commands, writes, units, effort) or cut
        reads += [path for node in found.nodes.get("redirect", ()) if (path := _target(node, reading=True)) is not None]
    return Shell(tuple(commands), tuple(writes), error, cut, tuple(units), tuple(reads))


def _add(
    found: dict[str, list[Node]],
    text: str,
    commands: list[Command],
    writes: list[tuple[str, str]],
    units: list[ShellUnit],
    effort: Effort,
) -> bool:
    """Add what was found in one tree of `text`; whether something was left out because effort ran out."""
    plain = not ("|" in text or "(" in text or "`" in text)
    flows = not plain or "<" in text or ">" in text or "]=" in text or "]}" in text or "+=" in text or "=$'" in text
    flows = flows or may_compute(text)
    own: dict[int, Command] = {}
    fed = _fed(found.get("redirected", ())) if "<" in text else {}
    first = max((command.pipe for command in commands), default=0)
    places = None if plain else Places(found.get("pipeline", ()), found.get("substitution", ()), first)
    for node in _ordered(found.get("command")):
        if not effort.take((node.end_byte - node.start_byte) * 2):
            return True
        command = _command(node, _OUTSIDE if places is None else places.of(node), fed.get(node.id, _NOT_FED))
        if command is not None:
            commands.append(command)
            own[node.id] = command
    for node in _ordered(found.get("redirect")):
        statement = node.parent or node
        if not effort.take(statement.end_byte - statement.start_byte):
            return True
        target = _target(node)
        if target is not None:
            writes.append((target, _text(statement)))
    if flows:
        units += _units(found, own, len(text) - len(text.lstrip()) if len(own) == len(commands) else -1)
    return False


_RANKS: Final[tuple[tuple[str, UnitKind], ...]] = (
    ("redirected", "redirected"), ("pipeline", "pipeline"), ("loop", "loop"), ("case", "case"),
    ("function", "function"), ("command", "command"),
    ("assignment", "assignment"), ("redirect", "redirect"), ("substitution", "substitution"),
)  # fmt: skip
_JOINS: Final = frozenset({"list", "pipeline"})


def _units(found: dict[str, list[Node]], commands: dict[int, Command], first: int) -> list[ShellUnit]:
    """The outermost units of one tree, those inside of them below; by the places of the nodes alone.

    `first` is where the first statement of the text begins.
    """
    nodes = [
        (node.start_byte, -node.end_byte, rank, node, kind)
        for rank, (name, kind) in enumerate(_RANKS)
        for node in found.get(name, ())
    ]
    nodes.sort(key=_OUTERMOST)
    outer: list[ShellUnit] = []
    around: list[ShellUnit] = []
    for start, minus_end, _, node, kind in nodes:
        unit = ShellUnit(kind, start, -minus_end)
        if kind == "pipeline":
            unit.stages = tuple(child.start_byte for child in node.named_children)
        elif kind == "case":
            items = [child for child in node.named_children if child.type == "case_item"]
            words = tuple("\n".join(map(_text, item.children_by_field_name("value"))) for item in items)
            unit.command = Command(_text(node.named_children[0]), (), "", 0, 0, False, words=words)
            unit.stages = tuple(item.start_byte for item in items)
        elif kind == "redirected":
            body = node.child_by_field_name("body") or node.children[0]
            unit.first = start == first and body.type == "command"
            while body.type in _JOINS and body.named_children:
                body = body.named_children[-1]
            unit.tail = body.start_byte
        elif kind == "loop":
            named, held = node.child_by_field_name("variable"), node.child_by_field_name("body")
            words = tuple(map(_text, node.children_by_field_name("value"))) or ('"$@"',)
            unit.command = Command("" if named is None else _text(named), (), "", 0, 0, False, words=words)
            unit.tail = node.end_byte if held is None else held.start_byte
        else:
            unit.source = _text(node)
            unit.command = commands.get(node.id)
        while around and around[-1].end <= start:
            around.pop()
        (around[-1].inner if around else outer).append(unit)
        around.append(unit)
    return outer


_OUTERMOST: Final = itemgetter(0, 1, 2)


def _ordered(nodes: list[Node] | None) -> list[Node]:
    """Nodes in the order of their text: captures come in none, and a program runs after it was fetched."""
    return sorted(nodes, key=_START) if nodes else []


_START: Final = attrgetter("start_byte")
_BUILTINS: Final = frozenset({"unset", "unsetenv", "export", "declare", "typeset", "readonly", "local"})
_ELEVATES: Final = of_kind("elevates")


def _fed(statements: Sequence[Node]) -> dict[int, tuple[bool, list[str]]]:
    """What redirections mean for commands, by the ids of their nodes: whether they give one something to read.

    Each with its arguments that stand behind a redirection (`bash < f -s`), which the grammar takes for files.
    """
    fed: dict[int, tuple[bool, list[str]]] = {}
    for statement in statements:
        behind: list[str] = []
        reads = False
        for child in statement.children:
            if child.type == "file_redirect":
                reads = reads or any(part.type == "<" for part in child.children)
                further = [part for part in child.named_children if part.type != "file_descriptor"]
                behind += map(_text, further[1:])
        body = statement.children[0]
        if reads or behind:
            fed[body.id] = (reads, behind)
    return fed


def _command(node: Node, place: ShellPlace, redirected: tuple[bool, list[str]]) -> Command | None:
    name, written, args = "", "", []
    words: list[str] = []
    variables = []
    for child in node.children:
        kind = child.type
        if kind == "command_name":
            written = _text(child)
            name = literal(written) if "$'" in written else _name(written)
        elif kind == "variable_assignment":
            variable, _, value = _text(child).partition("=")
            variables.append((variable, word(value)))
            if node.type != "command":
                args.append(f"{variable}={word(value)}")
                words.append(f"{variable}={value}")
        elif kind in _BUILTINS:
            name = written = kind
        elif kind == "variable_name":
            args.append(_text(child))
            words.append(args[-1])
        elif kind in _WORDS:
            raw = _text(child)
            if "$'" in raw:
                words.append(raw)
                args.append(literal(raw))
            else:
                pieces = spread(raw) if "{" in raw and _spreads(raw) else (raw,)
                words.extend(pieces)
                args.extend(map(word, pieces))
    if not name:
        return None
    is_fed, behind = redirected
    if behind:
        words += behind
        args += map(word, behind)
    words.insert(0, written)
    pipe, stage, inside, pipeline = place
    name = name.removeprefix("$ ")  # the prompt of a transcript
    program = name
    name = name.rsplit("/", 1)[-1]
    elevated = name in _ELEVATES
    if elevated or name == "env":
        variables += [(left, right) for left, joined, right in (arg.partition("=") for arg in args[:8]) if joined]
    return Command(
        name, tuple(args), _text(node), pipe, stage, inside, tuple(variables), elevated, pipeline,
        tuple(words), program, is_fed,
    )  # fmt: skip


_NOT_FED: Final[tuple[bool, list[str]]] = (False, [])
_OUTSIDE: Final[ShellPlace] = ShellPlace(0, 0, False, "")


def _target(node: Node, *, reading: bool = False) -> str | None:
    """The file that an output redirection writes, or if `reading` one reads; `None` for descriptors."""
    children = node.children
    at = next((at for at, child in enumerate(children) if ">" in child.type or "<" in child.type), None)
    if at is None or at + 1 == len(children):
        return None
    operator = children[at].type
    if operator in {">&", "<&"} or not operator.startswith("<" if reading else (">", "&>")):
        return None
    return word(_text(children[at + 1]))


_WORDS: Final = frozenset({
    "word", "string", "raw_string", "ansi_c_string", "concatenation", "number", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "translated_string", "brace_expression",
    "arithmetic_expansion",
})  # fmt: skip
_QUOTED: Final = Lazy(r"""'[^']*'|"(?:[^"\\]|\\(?s:.))*"|\\(?s:.)|['"\\]""")
_ESCAPED: Final = Lazy(r"\\([$`\"\\\n])")


def word(text: str) -> str:
    """A shell word with its quoting undone (POSIX.1-2017, shell 2.2); a quote that is not closed is left out."""
    if "'" not in text and '"' not in text and "\\" not in text:
        return text
    if len(text) >= 2 and text[0] == text[-1] == "'" and "'" not in text[1:-1]:
        return text[1:-1]
    return str(_QUOTED.sub(_unquoted, text))


def _name(text: str) -> str:
    """The name of a program: a backslash in it is none of the name, however often it was escaped on the way here."""
    name = word(text)
    return name if "\\" not in name or text[0] in "\"'" else name.replace("\\", "")


def _spreads(raw: str) -> bool:
    """Whether braces stand outside of quotes and expansions."""
    bare = str(_QUOTED.sub("", raw)) if "'" in raw or '"' in raw or "\\" in raw else raw
    return "{" in bare and not bare.startswith(("$", "<(", ">(", "`"))


def _unquoted(match: Any) -> str:
    quoted: str = match.group()
    if quoted[0] == "'":
        return quoted[1:-1]
    if quoted[0] == '"':
        return str(_ESCAPED.sub(r"\1", quoted[1:-1]))
    return quoted[1:].removeprefix("\n")


def _text(node: Any) -> str:
    raw: bytes = node.text or b""
    return raw.decode("utf-8", "replace")
