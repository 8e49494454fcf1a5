"""Values that a program's expressions may have, and what is computed of them: pure, and bounded in every direction."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from typing import Any, Final, NamedTuple

from aegis.core.patterns import Lazy

HOLE: Final = "\x1a"  # stands for text that comes from outside
PATTERN: Final = "\x1d"  # begins a text that is a pattern; twice one that is looked for once
WITHIN: Final = "\x1f"  # between a part of a value and a part of that
MAX_TEXTS: Final = 8  # that one expression is followed to
MAX_ITEMS: Final = 64  # of one list
MAX_CHARS: Final = 4_096  # of one text
MAX_VALUES: Final = 400  # in one value that are gone over, whatever stands in it several times
ANY_NAME: Final = ("*",)  # of what a folder holds


class FunctionValue(NamedTuple):
    """A function as a value: of the text (`node`, and what names around it stand for), or of a library by what it
    `makes` of its arguments, `method` of what it is called on. `first`, `last` and `named` are given beforehand.
    """

    node: Any = None
    around: tuple[tuple[str, FollowedValue], ...] = ()
    makes: Any = ""
    method: bool = False
    plainly: bool = False
    first: tuple[FollowedValue, ...] = ()
    last: tuple[FollowedValue, ...] = ()
    named: tuple[tuple[str, FollowedValue], ...] = ()


class FollowedValue(NamedTuple):
    """What an expression may be: texts, or a list of values, or an object by its members, or a function; `number` says
    that it is a number, written as a text.
    """

    texts: tuple[str, ...] = ()
    items: tuple[FollowedValue, ...] = ()
    members: tuple[tuple[str, FollowedValue], ...] = ()
    number: bool = False
    function: FunctionValue | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The texts of which something is known."""
        return tuple(text for text in self.texts if text.strip(HOLE))

    @property
    def every(self) -> tuple[str, ...]:
        """The texts of a value, of its items, and of their members."""
        found: dict[str, None] = {}
        waiting = [self]
        for at in range(MAX_VALUES):  # one value may stand in another many times, and that one in a third
            if at == len(waiting):
                break
            value = waiting[at]
            found.update(dict.fromkeys(value.known))
            waiting += value.items
            waiting += [one for _, one in value.members]
        return tuple(found)

    def member(self, name: str) -> FollowedValue:
        """The member of an object that has a name; a hole where it has none."""
        return next((value for key, value in self.members if key == name), UNKNOWN)

    def part(self, place: str, *, whole_too: bool) -> FollowedValue:
        """The part of a value at a place or of a name; all of it for what has no parts, if `whole_too`."""
        if not place:
            return self
        first, _, rest = place.partition(WITHIN)
        named = next((value for key, value in self.members if key == first), None)
        if named is not None:
            return named.part(rest, whole_too=True)
        if first.endswith(":") and first[:-1].isdecimal():
            return FollowedValue((), self.items[int(first[:-1]) :])
        if self.items and first.isdecimal():
            at = int(first)
            return self.items[at].part(rest, whole_too=True) if at < len(self.items) else UNKNOWN
        return self if (whole_too and not (self.items or self.members)) or first.startswith("=") else UNKNOWN


def object_of(members: Iterable[tuple[str, FollowedValue]]) -> FollowedValue:
    """An object by its members, of which the last with a name counts."""
    return FollowedValue((HOLE,), (), tuple(islice(dict(members).items(), MAX_ITEMS)))


UNKNOWN: Final = FollowedValue((HOLE,))
_ESCAPES: Final[Mapping[str, str]] = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
}  # fmt: skip
NUMBER: Final = Lazy(r"^-?\d{1,4}$")
_NAMED_FIELD: Final = Lazy(
    r"%\((\w+)\)[-+ #0-9.]*[sdr]|%<(\w+)>[-+ #0-9.]*[sd]|%\{(\w+)\}|\$?\{(\w+)(?:![rsa])?(?::[^{}]*)?\}|\$(\w+)"
)
_FIELD: Final = Lazy(r"%(?:\(\w+\)|(\d)\$)?[-+ #0-9.]*[sdrvqxi]|\{(\w*)(?:\.(\w+)|\[(\w+)\])?(?:![rsa])?(?::[^{}]*)?\}")


def chosen_of(pieces: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The ways of choosing one of each, at most `MAX_TEXTS`."""
    wide = [piece[:MAX_TEXTS] for piece in pieces]
    found = []
    for chosen in product(*wide):
        found.append(chosen)
        if len(found) == MAX_TEXTS:
            break
    return found


def texts_of(texts: Iterable[str]) -> FollowedValue:
    return FollowedValue(tuple(dict.fromkeys(texts))[:MAX_TEXTS] or (HOLE,))


def union(values: Iterable[FollowedValue]) -> FollowedValue:
    texts: dict[str, None] = {}
    items: list[FollowedValue] = []
    members: list[tuple[str, FollowedValue]] = []
    numbers: set[bool] = set()
    function: FunctionValue | None = None
    for value in values:
        function = function or value.function
        numbers.add(value.number)
        texts.update(dict.fromkeys(value.texts))
        items.extend(value.items)
        members.extend(value.members)
    if not texts and not items and not members:
        return UNKNOWN
    held = tuple(items[:MAX_ITEMS]), tuple(members[:MAX_ITEMS])
    return FollowedValue(tuple(texts)[:MAX_TEXTS], *held, numbers == {True}, function)


def unquoted(text: str) -> str:
    """A literal without its quotes, whichever way its language writes them."""
    body = text.lstrip("@$rRbBuUfFqL").strip() if text[:1] not in "'\"`" else text
    for quote in ('"""', "'''"):
        if body.startswith(quote) and body.endswith(quote) and len(body) >= 6:
            return body[3:-3][:MAX_CHARS]
    return body[1:-1][:MAX_CHARS] if len(body) > 1 else body


def escaped(text: str) -> str:
    """What an escape stands for."""
    body = text[1:]
    if body[:1] in "xuU" and body[1:].strip("{}"):
        try:
            return chr(int(body[1:].strip("{}"), 16))
        except (ValueError, OverflowError):
            return text
    if body.isdigit() and len(body) == 3:
        return chr(int(body, 8)) if body.strip("01234567") == "" else text
    return _ESCAPES.get(body, body)


# Literals that a text joins, and members by literal names, which every reader of a text would have to put together.

_LITERAL: Final = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_LITERALS: Final = Lazy(_LITERAL)
_JOINS: Final[Mapping[str, str]] = {"php": r"\.", "perl": r"\.", "lua": r"\.\.", "elixir": "<>"} | dict.fromkeys(
    ("python", "javascript", "typescript", "ruby", "java", "go", "csharp", "kotlin", "swift", "scala"), r"\+"
)
_JOINED: Final = {sign: Lazy(rf"[A-Za-z]?{_LITERAL}(?:\s*{sign}\s*{_LITERAL})*") for sign in set(_JOINS.values())}
_MAY_JOIN: Final = {sign: Lazy(rf"[\"']\s*{sign}\s*[\"']") for sign in _JOINED}
_FILLED_OR_ESCAPED: Final = frozenset("\\$#{`")
_BINDS_CLOSER: Final = frozenset(".[(%*")  # behind the last literal, which is its alone
# What stands in a literal or a template is no member of the program: it is matched first, and stays.
_BY_NAME: Final = Lazy(
    rf"{_LITERAL}|`(?:[^`\\]|\\.)*`" r"|([\w$]+|[)\]])\[\s*(?:\"([A-Za-z_$][\w$]*)\"|'([A-Za-z_$][\w$]*)')\s*\]"
)
_NO_OWNERS: Final = frozenset({"return", "typeof", "case", "in", "of", "else", "void", "await", "yield", "default"})


def folded(text: str, language: str) -> str:
    """A text with the literals that it joins as one, `x["name"]` of JavaScript as `x.name`, steps of Groovy called."""
    sign = _JOINS.get(language, "")
    if sign and _MAY_JOIN[sign].search(text):
        text = _JOINED[sign].sub(_joined, text)
    if language in ("javascript", "typescript") and "[" in text:
        text = _BY_NAME.sub(_member, text)
    if language == "python" and ("!" in text or "%" in text):
        return str(_SHELL_LINE.sub(_told_shell, _CELL.sub(_told_cell, text, count=1)))
    return str(_STEP.sub(r"\1\2(\3)", text)) if language == "groovy" else text


# A step of a pipeline in Groovy that runs a command, whose parentheses may be left out.
_STEP: Final = Lazy(r"(?m)((?:^|[;{])[ \t]*)(sh|bat)[ \t]+(\"{3}(?s:.*?)\"{3}|'{3}(?s:.*?)'{3}|\"[^\"\n]*\"|'[^'\n]*')")


_CALL: Final = r"([A-Z]\w*)\s*(\((?:[^()\"]|\"(?:[^\"\\]|\\.)*\"|\([^()]{0,80}\))*\))"
ENUMERATION: Final = (
    rf"\benum\s+(\w+)[^{{}};]{{0,80}}\{{((?:\s*{_CALL},?)+)\s*;"  # of Java, with what makes each constant
)
_GIVEN: Final = Lazy(r"(^|[\s,])(\w+)\s*=\s*")
_CONSTANTS: Final = Lazy(_CALL)


def closed(match: Any) -> str:
    """The head of a `try` of Java as C# writes it: each resource is used, and closed behind the block."""
    resources = (one.strip() for one in match.group(1).split(";"))
    return "".join(f"using ({one}) " for one in resources if one) + "{"


def object_with(match: Any) -> str:
    """An enumeration of TypeScript as an object."""
    members = _GIVEN.sub(r"\1\2: ", match.group(2))
    return f"const {match.group(1)} = {{{members}}}"


def constants_of(match: Any) -> str:
    """An enumeration of Java as a class with its constants, each alone and all of them."""
    name = match.group(1)
    made = [(one.group(1), f"new {name}{one.group(2)}") for one in _CONSTANTS.finditer(match.group(2))]
    alone = " ".join(f"static {name} {key} = {call};" for key, call in made)
    return f"class {name} {{ {alone} static {name}[] values = {{ {', '.join(call for _, call in made)} }};"


def _joined(match: Any) -> str:
    whole: str = match.group()
    pieces = _LITERALS.findall(whole)
    bodies = [piece[1:-1] for piece in pieces]
    behind = match.string[match.end() : match.end() + 3].lstrip()[:1]
    before = match.string[max(match.start() - 3, 0) : match.start()].rstrip()[-1:]
    if (
        len(pieces) < 2
        or whole[0] not in "\"'"
        or any(whole[0] in body or not _FILLED_OR_ESCAPED.isdisjoint(body) for body in bodies)
        or behind in _BINDS_CLOSER
        or (before and before in "*%")
    ):
        return whole
    return f"{whole[0]}{''.join(bodies)}{whole[0]}"


def _member(match: Any) -> str:
    owner, name = match.group(1), match.group(2) or match.group(3)
    return match.group() if owner is None or owner in _NO_OWNERS else f"{owner}.{name}"


# What a notebook hands to a shell: a line behind `!`, or a whole cell; IPython calls its own `system` with it.
_SHELL_LINE: Final = Lazy(
    r"(?m)^([ \t]*(?:\w+\s*=\s*)?)(?:!{1,2}|%(?:sx|sc|system)\b|%((?:pip|conda|mamba|uv)\b))[ \t]*([^\s=].*)$"
)
_CELL: Final = Lazy(
    r"(?s)\A\s*(?:#[^\n]*\s+)*%%(?:(?:bash|sh|zsh|sx|system|script\s|!)[^\n]*|(perl|ruby)\b[^\n]*|"
    r"writefile[ \t]+(?:-a[ \t]+)?(\S+)[ \t]*)\n(.*)\z"
)
_QUOTES: Final = "'\""
_OF_PROGRAM: Final = Lazy(r"(?:^|[^${])\{\w{1,40}\}")  # a name whose value is put in


def _told_shell(match: Any) -> str:
    before, program, rest = match.groups()
    line = f"{program} {rest}" if program else rest
    return f"{before}get_ipython().system({'f' if _OF_PROGRAM.search(line) else ''}{json.dumps(line)})"


def _told_cell(match: Any) -> str:
    program, path, body = match.groups()
    if path:
        return f"open({json.dumps(path.strip(_QUOTES))}, 'a').write({json.dumps(body)})"
    return f"get_ipython().system({json.dumps(f'{program} -e {shlex.quote(body)}' if program else body)})"


# What calls of libraries make of their arguments


def join_paths(parts: Sequence[FollowedValue]) -> FollowedValue:
    """The paths that parts are joined to: an absolute part leaves out what stands before it."""
    found = []
    for chosen in chosen_of([part.texts or (HOLE,) for part in parts]):
        path = ""
        for part in chosen:
            absolute = part.startswith("/") or part[1:3] in (":\\", ":/")
            path = part if absolute or not path else f"{path.rstrip('/')}/{part}"
        found.append(path[:MAX_CHARS])
    return texts_of(found)


def filled(
    pattern: FollowedValue, arguments: Sequence[FollowedValue], named: FollowedValue | None = None
) -> FollowedValue:
    """A format with its arguments put in, in their order or by their names."""
    if named is not None and named.members:
        return texts_of(
            str(_NAMED_FIELD.sub(lambda match: _of_name(named, match), text)) for text in pattern.known[:MAX_TEXTS]
        )
    found = []
    for text in pattern.known:
        for chosen in chosen_of([argument.texts or (HOLE,) for argument in arguments]):
            rest = iter(chosen)
            pieces, at = [], 0
            for match in _FIELD.finditer(text):
                php, plain, *member = match.groups()
                place = int(php) - 1 if php else int(plain) if plain and plain.isdecimal() else -1
                told = chosen[place : place + 1] if place >= 0 else (next(rest, HOLE),)
                if any(member) and 0 <= place < len(arguments):  # `{0.name}`
                    told = arguments[place].member(member[0] or member[1]).texts[:1]
                pieces += [text[at : match.start()], *(told or (HOLE,))]
                at = match.end()
            found.append("".join([*pieces, text[at:]])[:MAX_CHARS])
    return texts_of(found[:MAX_TEXTS])


def _of_name(named: FollowedValue, match: Any) -> str:
    return (named.member(next(group for group in match.groups() if group)).texts or (HOLE,))[0]


def repeated(value: FollowedValue, times: str) -> FollowedValue:
    """A text or a list as often as a number says, at most 64 times."""
    count = min(int(times[:3]), MAX_ITEMS)
    if value.items:
        return FollowedValue((), (value.items * count)[:MAX_ITEMS])
    return FollowedValue((value.texts[0] * count,)) if len(value.texts) == 1 else UNKNOWN


def sliced(value: FollowedValue, cut: str) -> FollowedValue:
    """A part of a text or a list, cut as Python writes it: `1:4`, `::-1`."""
    numbers = [part.strip() for part in cut.split(":")]
    if not all(NUMBER.match(number) for number in numbers if number) or not 2 <= len(numbers) <= 3:
        return UNKNOWN
    part = slice(*[int(number) if number else None for number in numbers])
    if part.step == 0:
        return UNKNOWN
    return FollowedValue(tuple(text if text == HOLE else text[part] for text in value.texts), value.items[part])


_DEEPEST: Final = 6  # objects in each other that are written out
_BARE: Final = Lazy(r"^(?:-?(?:0|[1-9]\d{0,11})|true|false|null|none|nil)$")
_WORDS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None, "none": None, "nil": None}


def plain(value: FollowedValue) -> Any:
    """A value as lists, dictionaries, texts and numbers, with `VALUE` for what comes from outside."""
    return _plain(value, 0, [MAX_VALUES])


def _plain(value: FollowedValue, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > _DEEPEST or left[0] < 0:
        return "VALUE"
    named = [(key, one) for key, one in value.members if key[:1] != "="]
    if named:
        return {key: _plain(one, depth + 1, left) for key, one in named}
    if value.items:
        return [_plain(one, depth + 1, left) for one in value.items]
    text = (value.texts or (HOLE,))[0].replace(HOLE, "VALUE")
    bare = text.lower() if _BARE.search(text.lower()) is not None else ""
    return text if not bare else _WORDS[bare] if bare in _WORDS else int(bare)


def written_out(value: FollowedValue) -> str:
    """A value as JSON, with `VALUE` for what comes from outside."""
    return json.dumps(plain(value), ensure_ascii=False)


# What is called with nothing before it: `(0, eval)(text)`, `globalThis.eval(text)`.
PLAINLY_CALLED: Final = (
    (Lazy(r"(^|[^\w$)\]\s]\s*|\n)\(\s*(?:0|1|null|void 0)\s*,\s*([\w$.]+)\s*\)\s*\("), r"\1\2("),
    (Lazy(r"\b(?:globalThis|window|global)\.(eval|Function|setTimeout|setInterval|require|process)\b"), r"\1"),
)
