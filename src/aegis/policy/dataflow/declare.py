"""What a tool does with its arguments and whose word its results are: declared, or derived from words of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

from msgspec import Struct, field

from aegis.core.json import escape
from aegis.core.patterns import Lazy
from aegis.policy.dataflow.forms import read_table
from aegis.policy.dataflow.values import ValueKind
from aegis.policy.dataflow.words import NOUNS, lexicon

Does = Literal[
    "read", "fetch", "send", "post", "pay", "share", "account", "book", "create", "modify", "delete", "member",
    "execute", "sign-in", "other",
]  # fmt: skip
DOES: Final[tuple[Does, ...]] = get_args(Does)
Trust = Literal["trusted", "mixed", "untrusted"]
Sensitivity = Literal["public", "internal", "confidential", "restricted"]
SENSITIVITIES: Final[tuple[Sensitivity, ...]] = get_args(Sensitivity)
FieldTrust = Literal["trusted", "structured", "untrusted"]

FIELDS: Final = {  # what words of a field's name say
    sort: frozenset(words) for sort, words in read_table("fields.yaml").items() if isinstance(words, list)
}
MAX_STRINGS: Final = 512  # of one call that are looked at; beyond it the rest counts as from nowhere
MAX_CHARS: Final = 262_144
_PARTS: Final = Lazy(r"[A-Z]+(?:[^a-zA-Z]|$)|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


class ArgumentFlow(Struct, frozen=True, kw_only=True):
    """What an argument is, and whether the deed goes there."""

    kind: ValueKind
    sink: bool = False


class ResultFlow(Struct, frozen=True, kw_only=True):
    """Whose word a tool's results are, how sensitive, and what single fields are; `None` is not declared."""

    trust: Trust | None = None
    sensitivity: Sensitivity | None = None
    fields: Mapping[str, FieldTrust] = field(default_factory=dict)


class ToolFlow(Struct, frozen=True, kw_only=True):
    """What an operator declared of one tool; what is left out is derived."""

    does: Does | None = None
    arguments: Mapping[str, ArgumentFlow] = field(default_factory=dict)
    result: ResultFlow = field(default_factory=ResultFlow)

    def elsewhere(self) -> ToolFlow:
        """What of it counts on a server that it was not written for: nothing that loosens."""
        trust: Trust | None = "untrusted" if self.result.trust == "untrusted" else None
        sinks = {name: one for name, one in self.arguments.items() if one.sink}
        return ToolFlow(does=None, arguments=sinks, result=ResultFlow(trust=trust, sensitivity=self.result.sensitivity))


NOTHING: Final = ToolFlow()


@lru_cache(maxsize=4_096)
def name_words(name: str) -> tuple[str, ...]:
    """The whole words of a name, in lower case: `addUser_toChannel` has four."""
    return tuple(match[0].strip("_- .").lower() for match in _PARTS.finditer(name[:256]))


@lru_cache(maxsize=4_096)
def is_aside(name: str) -> bool:
    """Whether a field's name says that people note there what comes to their mind beside the record."""
    return not FIELDS["asides"].isdisjoint(name_words(name))


@lru_cache(maxsize=4_096)
def does_of(tool: str) -> Does:
    """What a tool of that name does; `other` where its words do not say."""
    words = name_words(tool)
    held = frozenset(words)
    if not words:
        return "other"
    lead = verb_of(tool)
    if lead in _READING and not held & _ACTING:
        return "fetch" if held & _FETCHED else "read"
    for does, names, leads in lexicon().kinds:
        if lead in leads:
            return does  # type: ignore[return-value]
        for name in names:
            if all(word in held for word in name):
                return does  # type: ignore[return-value]
    return "other"


def does_with(tool: str, arguments: Mapping[str, Any]) -> Does:
    """`does_of`, where arguments tell more than the name: what is addressed is sent, what has a payee paid."""
    does = does_of(tool)
    if does in _VAGUE:
        held = {word for name in list(arguments)[:32] for word in name_words(name)}
        if held & _ADDRESSED and held & _WORDED:
            return "send"
        if "amount" in held and held & _PAYEES:
            return "pay"
        if does == "read" and held & _PAGED:
            return "fetch"
        if does in _MISREAD and _is_listing(tool) and _chooses(tool, arguments):
            return "read"
    return does


@lru_cache(maxsize=4_096)
def verb_of(tool: str) -> str:
    """The verb of a tool's name: its first word, or a later one where the name begins with a thing: `lesson_move`."""
    words = name_words(tool)
    if not words:
        return ""
    tables, first = lexicon(), words[0]
    is_thing = first not in tables.acting and first not in _READING
    if len(words) == 1 or not (is_thing or first in tables.namespaces):
        return first
    if words[-1] in _READING:
        return words[-1]
    verbs = [word for word in words[1:] if word in tables.acting]
    clear = next((word for word in verbs if word not in NOUNS and word not in tables.namespaces), "")
    return clear or (verbs[0] if verbs and is_thing else first)


@lru_cache(maxsize=4_096)
def _is_listing(tool: str) -> bool:
    """Whether a tool is called by what it shows, without any verb: `bank_transactions`, `guest_folio`, `loans_of`."""
    *before, last = name_words(tool) or ("",)
    tables = lexicon()
    if not tables.acting.isdisjoint(before):
        return False
    return last in tables.listings or (last in {"of", "for"} and len(before) == 1)


def _chooses(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether arguments only choose what is shown: by words for that, and one of them by a short value of its own."""
    free = [
        name for name in list(arguments)[:32] if not frozenset(name_words(name)) <= _ASKED | frozenset(name_words(tool))
    ]
    if len(free) > 1:
        return False
    return not free or (
        name_words(free[0])[-1:] not in _COUNTED
        and argument_of("other", free[0]) is None
        and isinstance(value := arguments[free[0]], str)
        and len(value) <= _CHOOSING
        and "\n" not in value
    )


_CHOOSING: Final = 64  # characters of a value that chooses what is shown
_COUNTED: Final = frozenset(
    (word,)
    for word in ("amount", "quantity", "qty", "price", "rate", "sum", "total", "text", "body", "message", "reason")
)


_MISREAD: Final = frozenset({"other", "create"})  # what a listing is taken for: `patient_file` files nothing
_VAGUE: Final = frozenset({"create", "other", "modify", "read"})
_ADDRESSED: Final = frozenset({"to", "recipient", "recipients", "email", "cc", "phone", "receiver", "addressee"})
_WORDED: Final = frozenset({"body", "text", "message", "content", "subject"})
_PAYEES: Final = frozenset({"iban", "payee", "beneficiary", "account", "wallet", "recipient"})
# What is passed to choose what is shown; one more word makes a deed of it.
_ASKED: Final = frozenset({
    "date", "day", "week", "month", "year", "season", "period", "from", "to", "start", "end", "since", "until",
    "before", "after", "limit", "page", "offset", "cursor", "query", "search", "filter", "sort", "id", "ids", "status",
    "type", "kind", "category", "section", "max", "min", "results",
})  # fmt: skip
_PAGED: Final = frozenset({"url", "uri", "link", "href", "webpage", "website"})
_READING: Final = frozenset({
    "get", "read", "list", "search", "find", "lookup", "query", "show", "view", "describe", "count", "check",
    "calculate", "compute", "convert", "estimate", "compare", "retrieve", "analyze", "display", "fetch", "open",
})  # fmt: skip
_ACTING: Final = frozenset({"send", "delete", "remove", "update", "create", "pay"})
_FETCHED: Final = frozenset({"webpage", "url", "website", "page", "web", "http", "link", "site"})


@lru_cache(maxsize=16_384)
def argument_of(does: Does, name: str) -> ArgumentFlow | None:
    """What an argument of that name is, where it can say where the deed goes."""
    words = name_words(name)
    held = frozenset(words)
    for kind, names, only in lexicon().sinks:
        if only and does not in only:
            continue
        for one in names:
            if all(word in held for word in one) and (len(one) == len(words) or words[-1] in one):
                return ArgumentFlow(kind=kind, sink=True)
    return None


def flow_of_argument(flow: ToolFlow, does: Does, name: str) -> ArgumentFlow | None:
    """The operator's word about an argument, else what its name says."""
    declared = flow.arguments.get(name)
    return declared if declared is not None else argument_of(does, name)


def objects_of(tool: str) -> tuple[str, ...]:
    """The words of a tool's name that may name what it deals with."""
    words = name_words(tool)
    things = words[:-1] if len(words) > 1 and verb_of(tool) == words[-1] else words[1:]
    return things or words


class ArgumentText(NamedTuple):
    """A value of a call: where it stands, and the name that says what it is for."""

    path: str
    name: str
    value: str


def strings_of(arguments: Mapping[str, Any]) -> Iterator[ArgumentText]:
    """The texts and numbers of a call's arguments, as many as are looked at."""
    left = MAX_CHARS
    stack: list[tuple[str, str, Any]] = [
        (f"/{escape(name)}", name, value) for name, value in reversed(list(arguments.items()))
    ]
    count = 0
    while stack and count < MAX_STRINGS and left > 0:
        path, name, value = stack.pop()
        if isinstance(value, str):
            count += 1
            left -= len(value)
            yield ArgumentText(path, name, value)
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, (int, float)):
            count += 1
            yield ArgumentText(path, name, str(value))
        elif isinstance(value, dict):
            stack.extend(
                (f"{path}/{escape(str(inner))}", str(inner), held) for inner, held in reversed(list(value.items()))
            )
        elif isinstance(value, (list, tuple)):
            stack.extend((f"{path}/{number}", name, held) for number, held in reversed(list(enumerate(value))))
