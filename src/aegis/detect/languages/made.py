"""What calls make of their arguments: those of libraries by what is known of them in `data/calls`, those of the
program's own functions by what these give back.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Final, cast

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import (
    FUNCTIONS,
    NAMED_RESTS,
    member_of,
    name_of,
    parameters,
    parts_of,
    patterns,
    rest_of,
    results_of,
)
from aegis.detect.languages.calls import KnownCalls, Makes
from aegis.detect.languages.computed import COMPUTED
from aegis.detect.languages.declared import ENTRIES
from aegis.detect.languages.followed import (
    HOLE,
    MAX_ITEMS,
    MAX_TEXTS,
    UNKNOWN,
    FollowedValue,
    FunctionValue,
    object_of,
    union,
)
from aegis.detect.languages.makes import make, variable
from aegis.detect.languages.names import BUILDS, ProgramNames
from aegis.detect.languages.numeric import counted
from aegis.detect.languages.ordering import ORDERS, ordered
from aegis.detect.languages.requests import is_broad_test
from aegis.detect.languages.syntax import Called, CodeLanguage, SignNode, canonical, text_of
from aegis.detect.languages.values import NameScope
from aegis.detect.shell.keys import HIVES


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
NAMED: Final = frozenset({"keyword_argument", "named_argument", "pair", "argument", *_SPREADS_NAMES})
# Languages that put paths behind each other, whatever they begin with.
_JOINS_PLAINLY: Final[frozenset[CodeLanguage]] = frozenset({"go", "ruby", "java", "perl", "r"})
_CALLS_BARE: Final[frozenset[CodeLanguage]] = frozenset({"ruby"})  # where a name alone may call
_DEEP: Final = 6  # how deep what a function of the program gives back counts as
_LIST_FIRST: Final = frozenset({"lapply", "sapply", "vapply", "map_chr", "purrr.map"})  # of R
_EACH_OF: Final = frozenset({
    *_LIST_FIRST, "map", "array_map", "starmap", "from", "collect", "filter", "do.call", "select", "Select", "flat_map",
    "flatMap",
})  # fmt: skip
_LEAVES_OUT: Final = frozenset({"reject", "filterNot", "filter_not"})
_KEEPS_ALL: Final = _LEAVES_OUT | {
    "filter", "select", "Where", "where", "find_all", "findAll", "array_filter", "Filter",
}  # fmt: skip
_KEEPS: Final = _KEEPS_ALL | {
    "find", "first", "firstOrNull", "First", "FirstOrDefault", "Single", "SingleOrDefault", "detect", "last", "Last",
    "lastOrNull", "LastOrDefault", "findLast", "single",
}  # fmt: skip
_COMMAS: Final[Mapping[CodeLanguage, str]] = {"javascript": "join", "typescript": "join"}  # that join by one unasked
_FOLDS: Final = frozenset(
    {"reduce", "inject", "fold", "functools.reduce", "array_reduce", "Reduce", "Aggregate", "reduceRight"}
)
_NAMES_BY_TEXT: Final = frozenset({"constant", "const_get"})
_BLOCKS: Final = frozenset({"lambda", "proc", "Proc.new"})  # of Ruby, which make a function of a block
_GETTERS: Final = frozenset({"itemgetter", "attrgetter", "methodcaller"})
_TAKES_FUNCTION: Final = frozenset({"partial", "call_user_func", "call_user_func_array", "apply"})
_ON_FUNCTION: Final = frozenset({
    "call", "apply", "bind", "()", "", "[]", "yield", "invoke", "Invoke", "__call__", "curry", "to_proc",
})  # fmt: skip
_WITH_ONE: Final = frozenset({"then", "yield_self"})
_BY_NAME: Final = frozenset({"send", "public_send", "__send__", "method"})
_DROPS_OWNER: Final = frozenset({"call", "apply", "bind"})
_OF_LIST: Final = frozenset({"apply", "call_user_func_array"})
_PARTLY: Final = frozenset({"partial", "bind", "curry", "to_proc"})
_PLAIN: Final = frozenset({"identifier", "name", "attribute", "member_expression", "selector_expression", "function"})
_LONGEST: Final = 80
_JOINERS: Final = str.maketrans("", "", ".:$&")
_YIELDS_ALL: Final = Lazy(r"^yield\s*(?:from\b|\*)")
_LONGEST_YIELD: Final = 12


class CallResults:
    """What the calls of one text make."""

    def __init__(self, names: ProgramNames, known: KnownCalls, language: CodeLanguage):
        self._names = names
        self._known = known
        self._language = language

    def __call__(self, parts: Called, scope: NameScope) -> FollowedValue | None:
        """The value of a call; `None` where nothing is known of it."""
        if parts.name in BUILDS and parts.arguments and self._language == "kotlin":
            return scope.value(cast("Node", SignNode("identifier", parts.name, parts.arguments[-1].end_byte)))
        kept = self._kept(parts, scope) if parts.name in _KEEPS and (parts.arguments or parts.block) else None
        if kept is not None:
            return kept
        calls = self._language in _CALLS_BARE and parts.name in self._names.functions
        if parts.name == "compact" and self._language == "php":
            texts = [text for one in self._values(parts, scope) for text in one.known]
            return object_of((text, scope.named(f"${text}")) for text in texts)
        if parts.name in _NAMES_BY_TEXT and parts.arguments:  # `constant("ROOT")`
            told = self._values(parts, scope)[-1].known
            return scope.named(told[0]) if told and scope.bounds_of(told[0]) else None
        if parts.is_name and self._names.fields.get(parts.name):  # a class, whose members may be gone over
            fields = {field: scope.named(f"{parts.name}.{field}") for field in self._names.fields[parts.name]}
            return FollowedValue((HOLE,), tuple(fields.values())[:MAX_ITEMS], tuple(fields.items())[:MAX_ITEMS])
        if parts.is_name and not calls and parts.name in self._names.functions:
            return FollowedValue((HOLE,), function=FunctionValue(self._names.functions[parts.name]))
        if parts.is_name and not calls and not parts.name.isupper():
            return None
        if parts.name == "shift" and self._language == "perl" and not parts.arguments:
            return union(scope.named("@_").items)
        own = self._names.own(parts)
        if own is not None:
            result = self._given_back(own, parts, scope)
            if result is not None:
                return result
        if parts.receiver is not None and not parts.arguments:  # `config.root()` of a record
            held = next((one for key, one in scope.value(parts.receiver).members if key == parts.name), None)
            if held is not None:
                return held
        is_alias = parts.receiver is None and parts.name in self._names.aliases
        preset = scope.named(parts.name).function if is_alias else None
        if preset is not None and (preset.first or preset.named):  # `partial(f, "x")`
            return self._of_function(parts, scope)
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
        found = self._of_function(parts, scope)
        return self._of_each(parts, scope) if found is None else found

    def _given_back(self, own: Node, parts: Called, scope: NameScope) -> FollowedValue | None:
        """What a function of the program gives back that a call calls by its name."""
        named = self._named(parts, scope).members
        held = UNKNOWN if parts.receiver is None else scope.value(parts.receiver)
        around = (("self", held), ("this", held), ("$this", held)) if held.members else ()
        return self.applied(FunctionValue(own, around, named=named), self._values(parts, scope), scope)

    def applied(
        self, function: FunctionValue, values: Sequence[FollowedValue], scope: NameScope
    ) -> FollowedValue | None:
        """What a function makes of values: one of its results, or a list of what it yields."""
        values = (*function.first, *values, *function.last)
        own = function.node
        if own is None:
            return make(
                function.makes, values, plainly=function.plainly, method=function.method,
                named=FollowedValue((HOLE,), (), function.named),
            )  # fmt: skip
        results, taken = results_of(own), parameters(own)
        if not results.nodes:
            return None
        given = {**dict(function.around), **dict(zip(taken, values, strict=False))}
        given[rest_of(own)] = FollowedValue((), tuple(values[len(taken) :]))
        given["@_"] = FollowedValue((), tuple(values))
        given.update(_1=values[0], it=values[0]) if values and not taken else None
        given[rest_of(own, NAMED_RESTS)] = object_of(one for one in function.named if one[0] not in taken)
        given.update((f"${key}" if self._language == "php" else key, value) for key, value in function.named)
        for at, pattern in patterns(own):
            for part in parts_of(pattern) if at < len(values) else ():
                held = values[at].part(part.part, whole_too=False)
                if held.known or held.items or held.members or part.default is None:
                    given[name_of(part.node)] = held
        with scope.standing_for(given):
            nodes = scope.reached(results.nodes, results.branches)
        found: list[FollowedValue] = []
        for node in nodes:
            value = scope.value_with(given, node, _DEEP)
            whole = node.parent is not None and _YIELDS_ALL.match(text_of(node.parent)[:_LONGEST_YIELD])
            found += value.items if whole and value.items else (value,)
        return FollowedValue((), tuple(found)) if results.yields else union(found) if len(found) > 1 else found[0]

    def _values(self, parts: Called, scope: NameScope, *, lists: bool = False) -> tuple[FollowedValue, ...]:
        """The values of the arguments without names, what is spread in them one by one; `lists` says lists as well."""
        given: list[FollowedValue] = []
        for argument in parts.arguments:
            if argument.type not in KEYWORDS and argument.type not in _SPREADS_NAMES:
                value = scope.value(argument)
                spread = argument.type in _SPREAD or (lists and argument.type == "array" and self._language == "perl")
                given += value.items if spread and value.items else (value,)
        return tuple(given)

    def _of_function(self, parts: Called, scope: NameScope) -> FollowedValue | None:
        """What a call makes of functions as values: calls one, hands it values, or makes another one of it."""
        name, given = parts.name, list(parts.arguments)
        if name in _BLOCKS and parts.block is not None:
            return FollowedValue((HOLE,), function=FunctionValue(parts.block, scope.given()))
        if name in _GETTERS and given:
            values = self._values(parts, scope)
            made = FunctionValue(makes="at", last=values[:1])
            if name == "methodcaller":
                method = self._known.makes.get(f".{(*values[0].known, '')[0]}".lower())
                made = FunctionValue(makes=method or "same", method=True, last=values[1:])
            return FollowedValue((HOLE,), function=made)
        callee: Node | None = None
        if name in _TAKES_FUNCTION and given:
            callee = given.pop(0)
        elif parts.receiver is not None and name in _ON_FUNCTION:
            callee = parts.receiver
        elif parts.receiver is None:
            callee = parts.function
        elif name in _WITH_ONE and (parts.block or given):
            function = self.function_of(parts.block or given[0], scope)
            return None if function is None else self.applied(function, [scope.value(parts.receiver)], scope)
        elif name in _BY_NAME and given:
            values = self._values(parts, scope)
            told = (*values[0].known, "")[0]
            function = self._library(f"{canonical(text_of(parts.receiver))[:_LONGEST]}.{told}") if told else None
            if told == "+":
                function = FunctionValue(makes="together", method=True)
            if function is None:
                return None
            held = (scope.value(parts.receiver),) if function.method else ()
            return (
                FollowedValue((HOLE,), function=function._replace(first=held))
                if name == "method"
                else self.applied(function, (*held, *values[1:]), scope)
            )
        plain = "" if callee is None or callee.type not in _PLAIN else text_of(callee)
        is_free = plain and name not in _TAKES_FUNCTION | _ON_FUNCTION and plain not in scope.named_now
        if name == "[]":
            plain = "" if callee is None else text_of(callee)
            is_free = plain not in self._names.functions and plain not in scope.named_now
        if callee is None or (is_free and not scope.bounds_of(plain)):
            return None
        function = self.function_of(callee, scope)
        if function is None:
            return None
        values = self._values(parts._replace(arguments=tuple(given)), scope)
        named = self._named(parts._replace(arguments=tuple(given)), scope).members
        if name in _DROPS_OWNER and self._language in _COMMAS:
            values = values[1:]
        if name in _OF_LIST:
            values = tuple(item for one in values[-1:] for item in one.items)
        if name in _PARTLY:
            made = function._replace(first=(*function.first, *values), named=(*function.named, *named))
            return FollowedValue((HOLE,), function=made)
        return self.applied(function._replace(named=(*function.named, *named)), values, scope)

    def function_of(self, node: Node, scope: NameScope) -> FunctionValue | None:
        """The function that an expression is: of the text, of a library, or one that another gives back."""
        if node.type in FUNCTIONS or node.type in ("block", "do_block"):
            return FunctionValue(node, scope.given())
        text = text_of(node)[:_LONGEST].lstrip("&")
        own = self._names.functions.get(text)
        if own is not None:
            return FunctionValue(own)
        value = scope.value(node)
        if value.function is not None:
            return value.function
        told = value.known[0] if len(value.known) == 1 and self._language in ("php", "ruby") else text
        own = self._names.functions.get(canonical(told).rpartition(".")[2]) if told != text else None
        if told == text and not text.translate(_JOINERS).isidentifier():
            return None
        return self._library(f":{told}" if told != text else text) if own is None else FunctionValue(own)

    def _library(self, text: str) -> FunctionValue | None:
        """The function of a library that has a name, by what it makes."""
        head, dot, rest = canonical(text.strip(":'\"")).partition(".")
        full = f"{self._names.aliases.get(head, head)}{dot}{rest}".lower()
        is_method = dot or text.strip("&")[:1] == ":"
        for name in (full, ".".join(full.split(".")[-2:]), f".{full.rpartition('.')[2]}"[: 80 * bool(is_method)]):
            makes = self._known.makes.get(name)
            if makes is not None and makes not in ORDERS and makes != "environment":
                plainly = self._language in _JOINS_PLAINLY or (
                    full.endswith("path.join") and self._language != "python"
                )
                return FunctionValue(makes=makes, method=name[:1] == ".", plainly=plainly)
        return None

    def _created(self, name: str, parts: Called, scope: NameScope) -> FollowedValue:
        """An object of a class of the program: its members as the class says, else as the call gives them."""
        fields = self._names.fields.get(name, ())
        plain = [one for one in parts.arguments if one.type not in KEYWORDS]
        own = self._names.functions.get(name)
        given = dict(zip(parameters(own), map(scope.value, plain), strict=False)) if own is not None else {}
        given |= dict(self._named(parts, scope).members) if given else {}
        members: dict[str, FollowedValue] = {}
        for field in fields:
            bounds = () if own is None else scope.bounds_of(f"{name}.{field}")
            inside = any(own.start_byte <= one.whole.start_byte < own.end_byte for one in bounds if own is not None)
            with scope.standing_for(given) if inside else nullcontext():  # as this call gives it
                members[field] = scope.named(f"{name}.{field}")
        if name not in self._names.functions:  # without a function that makes it, fields are given in their order
            members.update((field, scope.value(one)) for field, one in zip(fields, plain, strict=False))
            members.update(self._named(parts, scope).members)
        for key, value in given.items():  # what PHP promotes to members
            members.setdefault(key.lstrip("$"), value)
        items = tuple(members.values())[:MAX_ITEMS] if name not in self._names.functions else ()
        return FollowedValue((HOLE,), items, tuple(members.items())[:MAX_ITEMS])

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
        elif parts.name == "from" or listed is None or len(parts.arguments) == 2:
            several = len(parts.arguments) > 1
            function, listed = parts.arguments[:2][:: 1 - 2 * (parts.name == "from")] if several else (function, None)
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
            held = scope.value(listed)
            if parts.name == "from" or (len(named) > 1 and self._language in _COMMAS):  # the item, and its place
                items = COMPUTED["chars"]([held]).items
                pairs = tuple(FollowedValue((), (item, counted(at))) for at, item in enumerate(items))
                held = FollowedValue((), pairs)
                return scope.each(held, [(one, str(at)) for at, one in enumerate(named[:2])], results.nodes[0])
            places = [(name, str(at)) for at, name in enumerate(named)]  # `{ |key, value| ... }`
            apart = len(named) > 1 and all(len(item.items) == len(named) for item in held.items)
            made = scope.each(held, places if apart else [(named[0], "")], results.nodes[0])
            return COMPUTED["flat"]([made]) if parts.name in ("flatMap", "flat_map") and made.items else made
        value = self.function_of(function, scope)
        lists = [scope.value(one).items for one in (listed, *parts.arguments[2:])]
        if value is None or not lists[0]:
            return None
        rows = [item.items for item in lists[0]] if parts.name == "starmap" else list(zip(*lists, strict=False))
        return FollowedValue((), tuple(self.applied(value, row, scope) or UNKNOWN for row in rows))

    def _kept(self, parts: Called, scope: NameScope) -> FollowedValue | None:
        """The items of a list that a function lets through, or one of them; `None` where that is not known of all."""
        given = [*parts.arguments[:2], *([] if parts.block is None else [parts.block])]
        functions = [own for one in given if parameters(own := self._names.functions.get(text_of(one), one))]
        others = [
            one for one in (*given, parts.receiver) if one is not None and text_of(one) not in map(text_of, functions)
        ]
        results = results_of(functions[0]).nodes if functions else ()
        if len(results) != 1 or not others:
            return None
        items = scope.value(others[0]).items
        met = [scope.lets_through({parameters(functions[0])[0]: item}, results[0]) for item in items]
        kept = [item for item, one in zip(items, met, strict=True) if one is not (parts.name in _LEAVES_OUT)]
        if not kept or None in met:
            return None
        return FollowedValue((), tuple(kept)) if parts.name in _KEEPS_ALL else kept[-(parts.name[:1] in "lL")]

    def _folded(self, parts: Called, functions: Sequence[Node], scope: NameScope) -> FollowedValue | None:
        """What becomes of a list whose items are put together one after another."""
        function = next((one for one in functions if parameters(one) or one.type in _PLAIN), None)
        others = [
            scope.value(one) for one in (parts.receiver, *parts.arguments) if one is not None and one is not function
        ]
        listed = next((one for one in others if one.items), None)
        if listed is None:
            return None
        value = None if function is None else self.function_of(function, scope)
        if value is None:  # whatever it is, texts are put behind each other
            return make("concat", [FollowedValue(("",)), listed])
        if parts.name == "reduceRight":
            listed = listed._replace(items=listed.items[::-1])
        begins = next((one for one in others if one.texts and not one.items and one.texts != (HOLE,)), None)
        items = listed.items if begins is not None else listed.items[1:]
        held = begins or listed.items[0]
        for item in items[:MAX_TEXTS]:
            held = self.applied(value, (held, item), scope) or UNKNOWN
        return held

    def _make(self, makes: Makes, parts: Called, scope: NameScope, *, method: bool) -> FollowedValue:
        given = list(self._values(parts, scope, lists=makes != "popped"))
        every = [scope.value(parts.receiver), *given] if method and parts.receiver is not None else given
        if makes == "environment":
            return variable((parts.name,) if not parts.arguments else every[0].known, given[1:2])
        if makes == "member" and parts.receiver is not None and given and given[0].known:  # `map.put("key", value)`
            put = f"{canonical(text_of(parts.receiver))}[{given[0].known[0]}]"
            if scope.bounds_of(put):
                return scope.named(put)
        if makes == "concat" and self._language in _COMMAS and not parts.arguments and parts.name in _COMMAS.values():
            every = [*every, FollowedValue((",",))]
        if makes in ORDERS:
            return ordered(makes, every, [*parts.arguments, *([] if parts.block is None else [parts.block])])
        plainly = (self._language in _JOINS_PLAINLY and parts.name != "resolve") or self._names.full(parts)[0].endswith(
            "path.join"
        )
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


def keyword(parts: Called, names: Sequence[str]) -> Node | None:
    """The argument of a call that has one of some names."""
    for one in parts.arguments:
        if one.type == "object" and (found := next(filter(None, (member_of(one, name) for name in names)), None)):
            return found
        named = one.type in KEYWORDS and one.named_child_count > 1
        if named and text_of(one.named_children[0]).strip(":") in names:
            return one.named_children[-1]
    return None


_INTERPRETED: Final = Lazy(
    r"^(?:sudo\s+)?(?:\S*/)?(?:java\s+-jar|python[\d.]*|node|deno\s+run|bash|sh|zsh|perl|ruby|php|dotnet|mono|wine|msiexec\s+/i|cscript|wscript)\s+(?:-[\w=]+\s+)*|^"
)


def program_file(line: str) -> str:
    """The file that a command line runs: what an interpreter is given, or its first word."""
    rest = line[_INTERPRETED.match(line.lstrip()).end() :] if line.strip() else ""
    return str((rest.split(None, 1) or line.split(None, 1) or [""])[0]).strip("'\"")
