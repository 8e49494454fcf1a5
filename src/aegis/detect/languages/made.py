"""What calls make of their arguments: those of libraries by what is known of them in `data/calls`, those of the
program's own functions by what these give back.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final

from tree_sitter import Node

from aegis.detect.languages.bindings import parameters, rest_of, results_of
from aegis.detect.languages.calls import KnownCalls, Makes
from aegis.detect.languages.declared import ENTRIES
from aegis.detect.languages.followed import (
    ANY_NAME,
    HOLE,
    MAX_CHARS,
    MAX_ITEMS,
    MAX_TEXTS,
    UNKNOWN,
    FollowedValue,
    chosen_of,
    filled,
    join_paths,
    sliced,
    texts_of,
    union,
)
from aegis.detect.languages.names import ProgramNames
from aegis.detect.languages.requests import is_broad_test
from aegis.detect.languages.syntax import Called, CodeLanguage, canonical, text_of
from aegis.detect.languages.values import NameScope
from aegis.detect.shell.keys import HIVES

_ENVIRONMENT: Final[Mapping[str, str]] = {
    "home": "~", "userprofile": "~", "homepath": "~", "appdata": "~/AppData/Roaming", "localappdata": "~/AppData/Local",
    "windir": "C:/Windows", "systemroot": "C:/Windows", "systemdrive": "C:", "programdata": "C:/ProgramData",
    "programfiles": "C:/Program Files", "tmpdir": "/tmp", "temp": "/tmp", "tmp": "/tmp", "xdg_config_home": "~/.config",  # noqa: S108 - places that are looked for
    "user.home": "~", "user.dir": ".", "java.io.tmpdir": "/tmp", "java.home": "/usr/lib/jvm",  # noqa: S108 - as above
}  # fmt: skip
_MOST_ABOVE: Final = 12  # folders that a path lies in, one in another
_OF_FIRST_KNOWN: Final[frozenset[Makes]] = frozenset({"same", "inside", "base64", "base32", "hex", "rot13"})


def variable(names: Sequence[str], default: Sequence[FollowedValue]) -> FollowedValue:
    """The folder that a variable of the environment stands for, else what the program takes in its place."""
    found = [_ENVIRONMENT[name.lower()] for name in names if name.lower() in _ENVIRONMENT]
    return FollowedValue(tuple(found)) if found else default[0] if default else UNKNOWN


def make(
    makes: Makes,
    every: Sequence[FollowedValue],
    *,
    plainly: bool = False,
    method: bool = False,
    named: FollowedValue | None = None,
) -> FollowedValue:
    """The value of a call; `every` are its arguments, what a method is called on before them, `named` those with names.

    `plainly` says that paths are put behind each other even where one of them is absolute.
    """
    first = every[0] if every else UNKNOWN
    if makes == "join" and method and first.items:  # of Ruby, whose lists and paths are joined by one word
        return _concatenated(every if len(every) > 1 else (first, FollowedValue(("",))), method=method)
    lists = [one.items for one in every if one.items] if makes in ("join", "together") and len(every) > 1 else []
    if len(lists) == 1:  # of R: for each item of a list, of which only the texts count, so that nothing multiplies
        each = ([FollowedValue(item.texts or (HOLE,)) if one.items else one for one in every] for item in lists[0])
        return FollowedValue((), tuple(make(makes, parts, plainly=plainly) for parts in islice(each, MAX_ITEMS)))
    if makes == "join":
        parts = list(first.items) if len(every) == 1 and first.items else every
        return (joined_plainly if plainly else join_paths)(parts) if parts else UNKNOWN
    if makes == "key":  # of a registry: the hive or a key of it, and a key below that
        return joined_plainly(every[:2])
    if makes in _OF_FIRST_KNOWN and method and not first.known and not first.items and len(every) > 1:
        first = every[1]  # of what a decoder is called on nothing is known
    if makes == "same":
        return first
    if makes == "list":
        return FollowedValue((), tuple(every[:MAX_ITEMS]), () if named is None else named.members)
    if makes == "link":  # a path on a host, which comes behind it: `new URL("/a", "https://x.example")`
        return (
            joined_plainly(every[1::-1])
            if any("://" in text for one in every[1:2] for text in one.texts)
            else join_paths(every[:2])
        )
    if makes == "or":
        return first if first.known else every[-1]
    if makes == "added":
        more = [item for one in every[1:] for item in (one.items or (one,))]
        return FollowedValue((), (*first.items, *more)[:MAX_ITEMS])
    if makes == "together":
        return FollowedValue(("".join((value.texts or (HOLE,))[0] for value in every)[:MAX_CHARS],))
    if makes in ("pairs", "table") and (makes == "table" or not first.items):
        first = FollowedValue((), tuple(every[:MAX_ITEMS]))
    if makes == "values":
        return FollowedValue((), tuple(value for _, value in first.members) or first.items)
    if makes in ("pairs", "table"):
        held = [pair.items for pair in first.items if len(pair.items) > 1 and pair.items[0].texts]
        return FollowedValue((HOLE,), (), tuple((pair[0].texts[0], pair[1]) for pair in held))
    if makes == "text":
        return first if every else FollowedValue(("",))
    if makes == "listed":  # names alone: which folder they lie in is not said by them
        return FollowedValue((), (FollowedValue(ANY_NAME),))
    if makes == "inside":
        paths = (text if "*" in text else f"{text.rstrip('/')}/*" for text in first.every)
        return FollowedValue((), tuple(FollowedValue((path,)) for path in paths))
    if makes in ("parent", "lower"):
        return FollowedValue(tuple(text.lower() if makes == "lower" else _parent(text) for text in first.texts))
    if makes == "parents":
        return FollowedValue(
            (), tuple(FollowedValue((path,)) for path in _ancestors(first.known[0])) if first.known else ()
        )
    if makes == "format":
        listed = every[1].items if len(every) == 2 and every[1].items else every[1:]
        return filled(first, listed or [UNKNOWN], named if named is not None and named.members else every[-1])
    if makes in _LISTS_MADE:
        return FollowedValue((), tuple(islice(_listed(makes, every), MAX_ITEMS)))
    if makes == "members":
        told = [pair.items for pair in first.items if len(pair.items) > 1 and pair.items[0].texts]
        members = [member for one in every for member in one.members] + [(one[0].texts[0], one[1]) for one in told]
        return FollowedValue((HOLE,), (), (*members, *(() if named is None else named.members))[:MAX_ITEMS])
    if makes == "alternating":
        pairs = zip(every[::2], every[1::2], strict=False)
        return FollowedValue((HOLE,), (), tuple((key.texts[0], value) for key, value in pairs if key.texts))
    if makes == "json":
        return _read_json(first)
    if makes in ("replace", "replace-in") and len(every) == 3:
        if not method and makes == "replace":  # what is looked for comes first
            every = (every[2], every[0], every[1])
            first = every[0]
        new = every[2].texts[:1]
        replaced = [one.replace(old, other) for one in first.texts for old in every[1].known for other in new]
        return FollowedValue(tuple(replaced[:MAX_TEXTS]) or (HOLE,))
    glue = () if named is None else (*named.member("collapse").known, *named.member("sep").known)
    if makes == "concat" and glue:  # of R
        texts = [(item.texts or (HOLE,))[0] for one in every for item in (one.items or (one,))]
        return FollowedValue((glue[0].join(texts),))
    if makes == "concat":
        return _concatenated(every, method=method)
    if makes == "split-by" and len(every) > 1:  # the sign comes first; of Perl as a pattern
        first, every = every[1], (every[1], every[0])
        makes = "split"
    if makes == "split":
        sign = every[1].texts[0] if len(every) > 1 and every[1].texts else None
        words = (word for text in first.known[:1] for word in (text if sign == "" else text.split(sign)))
        return FollowedValue((), tuple(FollowedValue((word,)) for word in islice(words, MAX_ITEMS)))
    if makes == "codes":
        return decoded(
            FollowedValue((), tuple(every))
            if len(every) > 1 and not first.items
            else first
            if first.items
            else FollowedValue(first.texts, (first,)),
            "codes",
        )
    if makes == "codec" and len(every) > 1:
        makes = _CODECS.get("".join(char for char in (*every[1].known, "")[0].lower() if char.isalnum()), "same")
    elif makes == "buffer":
        how = every[1].known[:1] if len(every) > 1 else ()
        makes = "codes" if first.items else _CODECS.get(how[0], "same") if how else "same"
        return decoded(first, makes) if makes != "same" else first
    if makes == "reversed" and first.items:
        return FollowedValue((), first.items[::-1])
    if makes in ("base64", "base32", "hex", "rot13", "reversed"):
        return decoded(first, makes)
    if makes == "first":
        return first.items[0] if first.items else first
    if makes == "part":
        return sliced(first, ":".join([(*value.known, "")[0] for value in every[1:3]] + [""] * (len(every) == 2)))
    if makes == "member" and len(every) > 1 and every[1].known:
        found = first.member(every[1].known[0])
        return found if found.known or found.items or len(every) < 3 else every[2]
    return first if makes == "codec" else UNKNOWN


_LISTS_MADE: Final[frozenset[Makes]] = frozenset({"numbered", "zipped", "entries", "keys", "crossed"})


def _listed(makes: Makes, every: Sequence[FollowedValue]) -> Sequence[FollowedValue]:
    """The list that a call makes of others: items with their places, items side by side, members with their names."""
    first = every[0] if every else UNKNOWN
    if makes == "numbered":
        return [FollowedValue((), (FollowedValue((str(at),)), item)) for at, item in enumerate(first.items)]
    if makes == "keys":
        return [FollowedValue((key,)) for key, _ in first.members]
    if makes == "entries":
        return [FollowedValue((), (FollowedValue((key,)), value)) for key, value in first.members]
    if makes == "zipped":
        return [FollowedValue((), items) for items in zip(*[one.items for one in every], strict=False)]
    return [FollowedValue((), items) for items in islice(product(*[one.items[:MAX_TEXTS] for one in every]), MAX_ITEMS)]


def _read_json(value: FollowedValue) -> FollowedValue:
    """What a constant text of JSON holds."""
    try:
        return _held(json.loads(value.known[0]), 0) if len(value.known) == 1 else value
    except (ValueError, RecursionError):
        return value


def _held(value: object, depth: int) -> FollowedValue:
    if isinstance(value, dict) and depth < _DEEPEST:
        members = islice(value.items(), MAX_ITEMS)
        return FollowedValue((HOLE,), (), tuple((str(key), _held(one, depth + 1)) for key, one in members))
    if isinstance(value, list) and depth < _DEEPEST:
        return FollowedValue((), tuple(_held(one, depth + 1) for one in value[:MAX_ITEMS]))
    return FollowedValue((str(value)[:MAX_CHARS],))


_DEEPEST: Final = 6  # objects in each other that are read
_CODECS: Final[Mapping[str, Makes]] = {
    "rot13": "rot13", "rot_13": "rot13", "hex": "hex", "base64": "base64", "base64codec": "base64", "hexcodec": "hex",
    "utf8": "same",
}  # fmt: skip


def _ancestors(path: str) -> list[str]:
    """The folders that a path lies in, the nearest first."""
    found: list[str] = []
    while path.strip("./") and len(found) < _MOST_ABOVE:
        path = _parent(path)
        found.append(path)
    return found


def _parent(text: str) -> str:
    if text.rstrip("/") == "~":
        return "/home"
    return text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")


def _concatenated(every: Sequence[FollowedValue], *, method: bool) -> FollowedValue:
    """What is put together of a list: `",".join(list)`, `list.join(",")`, `implode(",", list)`."""
    listed = next((value for value in every if value.items), None)
    if listed is None:
        texts = [(value.texts or (HOLE,))[0] for value in every]
        # Texts that are added to one, or what joins them before them: `join("/", "", "etc")`.
        return FollowedValue(("".join(texts) if method else texts[0].join(texts[1:]),)) if texts else UNKNOWN
    glue = next(
        (value.known[0] for value in every if value is not listed and value.known), "" if len(every) > 1 else ","
    )
    return FollowedValue((glue.join((item.texts or (HOLE,))[0] for item in listed.items),))


def joined_plainly(parts: Sequence[FollowedValue]) -> FollowedValue:
    """The paths of parts that are put behind each other, whatever they begin with."""
    found = []
    for chosen in chosen_of([part.texts or (HOLE,) for part in parts]):
        rest = "/".join(part.strip("/") for part in chosen[1:])
        found.append(f"{chosen[0].rstrip('/')}/{rest}"[:MAX_CHARS] if rest else chosen[0])
    return texts_of(found)


_CODE_POINTS: Final = 0x110000


def decoded(value: FollowedValue, how: str) -> FollowedValue:
    """What constant text says that was encoded: `base64`, `hex`, `reversed`, `codes`."""
    if how == "codes":
        codes = [item.texts[0] for item in value.items if item.texts] or list(value.known[:1])
        if codes and all(code.isascii() and code.isdecimal() and int(code[:8]) < _CODE_POINTS for code in codes):
            return FollowedValue(("".join(chr(int(code[:8])) for code in codes),))
        return UNKNOWN
    found = []
    for text in value.known:
        try:
            if how == "base64":
                found.append(base64.b64decode(text, validate=False).decode("utf-8", "replace"))
            elif how == "base32":
                found.append(base64.b32decode(text).decode("utf-8", "replace"))
            elif how == "rot13":
                found.append(codecs.decode(text, "rot13"))
            elif how == "hex":
                found.append(bytes.fromhex(text).decode("utf-8", "replace"))
            elif how == "reversed":
                found.append(text[::-1])
        except (binascii.Error, ValueError):
            return UNKNOWN
    return texts_of(found) if found else UNKNOWN


def command_lines(words: Sequence[FollowedValue]) -> list[str]:
    """Command lines of words, each of them the first that it may be; the last ones as all that they may be."""
    lines = [""]
    for word in words:
        chosen = [text.replace(HOLE, "VALUE") for text in (word.texts or (HOLE,))]
        lines = [f"{line} {shlex.quote(text)}".strip() for line in lines for text in chosen][:MAX_TEXTS]
    return lines


def started(runs: str | None, words: Sequence[FollowedValue], given: FollowedValue) -> list[str]:
    """The command lines that a call starts which takes them so; `given` are the arguments of a program by itself.

    `runs` is `command` for a text that a shell reads, `words` for a list, `split` for a program and the list of its
    arguments, `rest` for words one behind another.
    """
    value = words[0]
    if runs == "split":
        if given.items:
            return command_lines((value, *given.items))
        return [" ".join([text, *given.known[:1]]) for text in value.known]
    if runs == "rest":
        every = [item for word in words for item in (word.items or (word,))]
        return command_lines(every) if len(every) > 1 else list(every[0].known)
    listed = command_lines(value.items) if value.items else []
    return [*value.known, *listed] if runs == "command" else listed or list(value.known)


KEYWORDS: Final = frozenset({"keyword_argument", "named_argument", "pair", "argument", "assignment_expression"})
_SPREAD: Final = frozenset({
    "splat_argument", "list_splat", "spread_element", "variadic_argument", "variadic_unpacking", "dictionary_splat",
    "hash_splat_argument",
})  # fmt: skip
_SPREADS_NAMES: Final = frozenset({"dictionary_splat", "hash_splat_argument"})
NAMED: Final = frozenset({"keyword_argument", "named_argument", "pair", *_SPREADS_NAMES})
# Languages that put paths behind each other, whatever they begin with.
_JOINS_PLAINLY: Final[frozenset[CodeLanguage]] = frozenset({"go", "ruby", "java", "perl", "r"})
_CALLS_BARE: Final[frozenset[CodeLanguage]] = frozenset({"ruby"})  # where a name alone may call
_DEEP: Final = 6  # how deep what a function of the program gives back counts as
_LIST_FIRST: Final = frozenset({"lapply", "sapply", "vapply", "map_chr", "purrr.map"})  # of R
_EACH_OF: Final = frozenset(
    {*_LIST_FIRST, "map", "collect", "filter", "do.call", "select", "Select", "flat_map", "flatMap"}
)
_FOLDS: Final = frozenset({"reduce", "inject", "fold", "functools.reduce", "array_reduce", "Reduce", "Aggregate"})


class CallResults:
    """What the calls of one text make."""

    def __init__(self, names: ProgramNames, known: KnownCalls, language: CodeLanguage):
        self._names = names
        self._known = known
        self._language = language

    def __call__(self, parts: Called, scope: NameScope) -> FollowedValue | None:
        """The value of a call; `None` where nothing is known of it."""
        calls = self._language in _CALLS_BARE and parts.name in self._names.functions
        if parts.is_name and not calls and not parts.name.isupper():
            return None
        if parts.name == "shift" and self._language == "perl" and not parts.arguments:
            return union(scope.named("@_").items)
        own = self._names.own(parts)
        if own is not None:
            result = self._given_back(own, parts, scope)
            if result is not None:
                return result
        if self._names.fields and parts.receiver is not None and not parts.arguments:  # `config.root()` of a record
            held = next((one for key, one in scope.value(parts.receiver).members if key == parts.name), None)
            if held is not None:
                return held
        for name in self._names.full(parts):
            place = self._known.places.get(name)
            if place is not None:
                return FollowedValue((place,))
            makes = self._known.makes.get(name)
            if makes is not None:
                return self._make(makes, parts, scope, method=name.startswith("."))
        if not parts.arguments and parts.name.lower() in HIVES:
            return FollowedValue((parts.name,))
        owner = "" if parts.receiver is None or parts.arguments else canonical(text_of(parts.receiver)).lower()
        if owner and self._known.makes.get(owner) == "environment":  # `process.env.HOME`
            return variable((parts.name,), ())
        if parts.name in ENTRIES and parts.receiver is not None:  # of an enumeration
            every = f"{text_of(parts.receiver)}.{parts.name}"
            if scope.bounds_of(every):
                return scope.named(every)
        created = self._names.created(parts)
        if created is not None:
            return self._created(created, parts, scope)
        if self._language == "scala" and parts.receiver is None and len(parts.arguments) == 1:  # `table("root")`
            held = scope.named(parts.name)
            key = scope.value(parts.arguments[0]).known
            if held.members and key:
                return held.member(key[0])
        return self._of_each(parts, scope)

    def _given_back(self, own: Node, parts: Called, scope: NameScope) -> FollowedValue | None:
        """What a function of the program gives back: one of its results, or a list of what it yields."""
        results = results_of(own)
        if not results.nodes:
            return None
        values = tuple(map(scope.value, parts.arguments))
        given = {
            **dict(zip(parameters(own), values, strict=False)),
            rest_of(own): FollowedValue((), values[len(parameters(own)) :]),
        }
        held = UNKNOWN if parts.receiver is None else scope.value(parts.receiver)
        if held.members:
            given.update(self=held, this=held)
        with scope.standing_for(given):
            nodes = scope.reached(results.nodes, results.branches)
        found = [scope.value_with(given, node, _DEEP) for node in nodes]
        return FollowedValue((), tuple(found)) if results.yields else union(found) if len(found) > 1 else found[0]

    def _created(self, name: str, parts: Called, scope: NameScope) -> FollowedValue:
        """An object of a class of the program: its members as the class says, else as the call gives them."""
        fields = self._names.fields.get(name, ())
        members = {field: scope.named(f"{name}.{field}") for field in fields}
        plain = [one for one in parts.arguments if one.type not in KEYWORDS]
        if name not in self._names.functions:  # without a function that makes it, fields are given in their order
            members.update((field, scope.value(one)) for field, one in zip(fields, plain, strict=False))
            members.update(self._named(parts, scope).members)
        return FollowedValue((HOLE,), (), tuple(members.items())[:MAX_ITEMS])

    def _of_each(self, parts: Called, scope: NameScope) -> FollowedValue | None:
        """What is made of each item of a list: `list.map(c => ...)`, `map(chr, list)`; or of all."""
        if parts.name not in _EACH_OF and parts.name not in _FOLDS:
            return None
        functions = [*parts.arguments[:2], *([] if parts.block is None else [parts.block])]
        if not functions:
            return None
        if parts.name in _FOLDS:
            return self._folded(parts, functions, scope)
        function, listed = functions[0], parts.receiver
        if parts.name in _LIST_FIRST and len(parts.arguments) > 1:
            listed, function = parts.arguments[:2]
        elif listed is None or len(parts.arguments) == 2:
            listed = parts.arguments[-1] if len(parts.arguments) == 2 else None
        if listed is None:
            return None
        if parts.name == "do.call":  # of R, whose arguments are a list
            called_so = self._known.makes.get(text_of(function).strip("'\"").lower())
            every = scope.value(listed).items
            return None if called_so is None else make(called_so, every)
        if parts.name in ("filter", "select") and parts.name != "Select":
            return scope.value(listed) if is_broad_test(function) else None
        own = self._names.functions.get(text_of(function), function)
        results, named = results_of(own), parameters(own)
        if len(results.nodes) == 1 and named:
            return scope.each(scope.value(listed), named[0], results.nodes[0])
        name = text_of(function).lower()
        makes = self._known.makes.get(name) or self._known.makes.get(f".{name.removeprefix('&:')}")
        items = scope.value(listed).items
        if makes is None or not items:
            return None
        return FollowedValue((), tuple(make(makes, [item]) for item in items))

    def _folded(self, parts: Called, functions: Sequence[Node], scope: NameScope) -> FollowedValue | None:
        """What becomes of a list whose items are put together one after another."""
        function = next((one for one in functions if parameters(one)), None)
        others = [
            scope.value(one) for one in (parts.receiver, *parts.arguments) if one is not None and one is not function
        ]
        listed = next((one for one in others if one.items), None)
        if listed is None:
            return None
        if function is None:  # `reduce(operator.add, list)`: whatever it is, texts are put behind each other
            return make("concat", [FollowedValue(("",)), listed])
        named, results = parameters(function), results_of(function)
        if len(named) != 2 or len(results.nodes) != 1:
            return None
        begins = next((one for one in others if one.texts and not one.items and one.texts != (HOLE,)), None)
        items = listed.items if begins is not None else listed.items[1:]
        held = begins or listed.items[0]
        for item in items[:MAX_TEXTS]:
            held = scope.value_with({named[0]: held, named[1]: item}, results.nodes[0], _DEEP)
        return held

    def _make(self, makes: Makes, parts: Called, scope: NameScope, *, method: bool) -> FollowedValue:
        given: list[FollowedValue] = []
        for argument in parts.arguments:
            if argument.type not in KEYWORDS:
                value = scope.value(argument)
                spread = argument.type in _SPREAD or (argument.type == "array" and self._language == "perl")
                given += value.items if spread and value.items else (value,)
        every = [scope.value(parts.receiver), *given] if method and parts.receiver is not None else given
        if makes == "environment":
            return variable((parts.name,) if not parts.arguments else every[0].known, given[1:2])
        if makes == "member" and parts.receiver is not None and given and given[0].known:  # `map.put("key", value)`
            put = f"{canonical(text_of(parts.receiver))}[{given[0].known[0]}]"
            if scope.bounds_of(put):
                return scope.named(put)
        plainly = self._language in _JOINS_PLAINLY or self._names.full(parts)[0].endswith("path.join")
        return make(
            makes, every, plainly=plainly and self._language != "python", method=method, named=self._named(parts, scope)
        )

    def _named(self, parts: Called, scope: NameScope) -> FollowedValue:
        """The arguments of a call that have names, as members of an object."""
        return FollowedValue((HOLE,), (), tuple(islice(named_arguments(parts, scope), MAX_ITEMS)))


def named_arguments(parts: Called, scope: NameScope) -> Iterator[tuple[str, FollowedValue]]:
    """The arguments of a call that have names, and those of an object that is spread in them."""
    for one in parts.arguments[:MAX_ITEMS]:
        if one.type in _SPREADS_NAMES and one.named_child_count:
            yield from scope.value(one.named_children[0]).members
        elif one.type in NAMED and one.named_child_count > 1:
            yield text_of(one.named_children[0]).strip(":'\""), scope.value(one.named_children[-1])
