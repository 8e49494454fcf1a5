"""Approving with changes: an approver may take away from a held call, and never put anything into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec import structs

from aegis.core.approval import Narrowing
from aegis.core.json import escape, resolve
from aegis.core.mission import Kind
from aegis.core.patterns import Lazy
from aegis.detect.facts import FactSubject, Text
from aegis.detect.gather import gather
from aegis.detect.roles import argument_of, words_of
from aegis.detect.touch import recipients
from aegis.detect.touch.touch import Segments, Touched, touch
from aegis.errors import InvalidCall

# One value against another: whether it is less of the same, as a number, prose, recipients, a path or a command.

MARKS: Final = frozenset({"[redacted]", "[REDACTED]", "***"})  # what may stand where words were struck out
_WORD: Final = Lazy(r"\S+")
_DECIMAL: Final = Lazy(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_SEGMENT: Final = Lazy(r"[\pL\pN_@+=,][\pL\pN_@+=,. -]*")  # a plain name: no dots, dashes or blanks in front
_PLAIN_COMMAND: Final = Lazy(r"[A-Za-z0-9_@+=,./:-]+(?: [A-Za-z0-9_@+=,./:-]+)*")
# Programs that do the same to each of their operands, and whose options take no word of their own: with fewer
# operands they do less of the same.
_EACH: Final = frozenset({"cat", "md5sum", "rm", "rmdir", "sha256sum", "unlink"})


def is_lower(held: int | float | Decimal, changed: int | float | Decimal) -> bool:
    """Whether a number went toward zero, on its own side of it, and never to it: a limit of zero is often none.

    A whole number stays one, as a fraction of it may be cut to zero.
    """
    whole = isinstance(held, int) and not isinstance(changed, int)
    return not whole and (0 < changed <= held or held <= changed < 0)


def is_lower_text(held: str, changed: str) -> bool:
    """The same of numbers that are written as text."""
    if not (_DECIMAL.fullmatch(held) and _DECIMAL.fullmatch(changed)):
        return False
    return is_lower(Decimal(held), Decimal(changed))


def is_shortened(held: str, changed: str) -> bool:
    """Whether prose lost words, or had them struck out: every word of it stood there, in this order, as a whole.

    A word begins a line only where it did before, so that no header or order of its own can be made (CWE-93).
    """
    before, after = list(_WORD.finditer(held)), list(_WORD.finditer(changed))
    blanks = {held[one.end() : other.start()] for one, other in pairwise(before)}
    at = end = 0
    for word in after:
        gap, end = changed[end : word.start()], word.end()
        if word.group() in MARKS:
            if gap.strip(" ") and gap not in blanks:
                return False
            continue
        while at < len(before) and before[at].group() != word.group():
            at += 1
        if at == len(before):
            return False
        own = held[before[at - 1].end() if at else 0 : before[at].start()]
        if gap != own and gap.strip(" "):
            return False
        at += 1
    rest = held[before[-1].end() if before else 0 :]
    return len(after) <= len(before) and changed[end:] in ("", rest)


def are_fewer_recipients(held: str, changed: str) -> bool:
    """Whether every recipient stood there, written the same way."""
    known, kept = recipients.members(held), recipients.members(changed)
    before, after = recipients.readings(held), recipients.readings(changed)
    if not kept or not changed.isprintable() or before is None or after is None:
        return False
    return set(kept) <= set(known) and after <= before


def is_below(held: str, changed: str) -> bool:
    """Whether a path leads to something below the same place, in plain names; a list of things is no path."""
    if "," in held or ";" in held:
        return False
    start = held if held.endswith("/") else f"{held}/"
    if not held.strip() or not held.isprintable() or not changed.startswith(start):
        return False
    names = changed[len(start) :].split("/")
    return all(_SEGMENT.fullmatch(name) and not name.endswith((".", " ")) for name in names)


def is_less_of_a_command(held: str, changed: str) -> bool:
    """Whether a plain command names fewer files; anything that a shell would work out stays as it is."""
    if not (_PLAIN_COMMAND.fullmatch(held) and _PLAIN_COMMAND.fullmatch(changed)):
        return False
    return are_fewer_operands(held.split(" "), changed.split(" "))


def are_fewer_operands(held: Sequence[object], changed: Sequence[object]) -> bool:
    """Whether a command's words lost operands, and nothing else, where its program treats each for itself."""
    words = [word for word in held if isinstance(word, str)]
    kept = [word for word in changed if isinstance(word, str)]
    if len(words) != len(held) or len(kept) != len(changed) or not words or words[0] not in _EACH:
        return False
    if kept[:1] != words[:1] or not any(_is_operand(word) for word in kept[1:]):
        return False
    at = 1
    for word in kept[1:]:
        while at < len(words) and not _is_less_of_a_word(words[at], word):
            if not _is_operand(words[at]):
                return False
            at += 1
        if at == len(words):
            return False
        at += 1
    return all(_is_operand(word) for word in words[at:])


def _is_less_of_a_word(held: str, changed: str) -> bool:
    return held == changed or (_is_operand(held) and is_below(held, changed))


def _is_operand(word: str) -> bool:
    return not word.startswith("-")


# What names of arguments say about narrowing; a name that says nothing lets nothing change.

# Less of it is less of an effect.
_AMOUNTS: Final = frozenset(
    {"amount", "amounts", "quantity", "qty", "count", "limit", "max", "maximum", "total", "sum", "units", "shares"}
)
# A smaller number is another thing, or more of an effect: `min_amount`, `account_total`, `max_age`.
_OTHERWISE: Final = frozenset({
    "account", "after", "age", "before", "code", "days", "delay", "discount", "hours", "id", "ids", "index", "interval",
    "keep", "min", "minimum", "newer", "no", "number", "offset", "older", "page", "phone", "port", "price", "rate",
    "reserve", "retention", "timeout", "ttl", "version",
})  # fmt: skip
# Every tool that has them can do without them.
_EXTRAS: Final = frozenset({"cc", "bcc", "attachment", "attachments"})
# A list of these holds something back, or gives an order to things: with fewer members it lets more happen.
_HOLDS_BACK: Final = frozenset({
    "allow", "allowed", "and", "avoid", "block", "condition", "conditions", "criteria", "deny", "except", "exclude",
    "excluded", "excludes", "exclusions", "filter", "filters", "flags", "forbid", "ignore", "ignored", "keep", "not",
    "omit", "only", "options", "preserve", "range", "required", "requires", "skip", "unless", "where", "without",
})  # fmt: skip
_PROSE: Final = frozenset({
    "answer", "body", "caption", "comment", "description", "feedback", "memo", "message", "note", "notes", "reason",
    "remark", "reply", "subject", "summary", "text", "title",
})  # fmt: skip


def is_amount(pointer: str) -> bool:
    """Whether less of the number at `pointer` is less of an effect."""
    words = _words(pointer)
    return bool(words & _AMOUNTS) and not words & _OTHERWISE


def is_extra(pointer: str) -> bool:
    """Whether the member at `pointer` is a copy or an enclosure, which every tool can do without."""
    return bool(_words(pointer) & _EXTRAS)


def holds_back(pointer: str) -> bool:
    """Whether the list at `pointer` may be what keeps the call from doing more."""
    return bool(_words(pointer) & _HOLDS_BACK)


def is_prose(pointer: str) -> bool:
    """Whether the text at `pointer` is for people to read."""
    return bool(_words(pointer) & _PROSE)


def _words(pointer: str) -> frozenset[str]:
    return frozenset(words_of(argument_of(pointer)))


# Whether changed arguments are narrower than those that are held, value by value; what is not known to be is
# refused.
#
#     (1) nothing is added, and nothing becomes another type
#     (2) a member goes where the tool can do without it and no default takes its place: copies, enclosures, and prose
#         that the tool's schema does not require
#     (3) a list loses members, keeps their order, and is never emptied; not one that may hold something back, is run
#         or holds options, nor one whose members may belong to those of another list
#     (4) a number goes toward zero, and never to it, where its name says that it is an amount
#     (5) recipients are some of the same; a path leads below the same place, where no command runs; a plain command
#         names fewer files
#     (6) prose loses words, or has them struck out
#     (7) whatever else stays; the registry can say otherwise of single arguments
#     (8) what the result names, read anew, was named before
#
# (8) asks again what (1) to (7) have answered, with the readings that missions are judged by: both have to agree.

MAX_NAMED: Final = 200  # characters of a pointer that a refusal names
_RUN: Final = frozenset({"command", "sql", "code"})
_RULES: Final[Mapping[Kind, Callable[[str, str], bool]]] = {
    "recipients": are_fewer_recipients,
    "paths": is_below,
    "commands": is_less_of_a_command,
}


class _Refusal(NamedTuple):
    """Where it is not narrower, and why."""

    pointer: str
    why: str


def check_narrower(held: FactSubject, changed: dict[str, Any], declared: Mapping[str, Narrowing]) -> None:
    """Guarantee that `changed` is narrower than the arguments of `held`, or the same.

    `declared` is the registry's word on single arguments, by name or pointer. Raises `InvalidCall`
    (`not_narrower`) naming the pointer.
    """
    before = _Reading(held)
    refusal = _Check(held.arguments, before, declared).value(held.arguments, changed, "", "", held.schema)
    if refusal is None:
        refusal = _named_before(before, _Reading(structs.replace(held, arguments=changed)))  # (8)
    if refusal is not None:
        raise InvalidCall(
            f"the value at `{refusal.pointer[:MAX_NAMED] or '/'}` {refusal.why}",
            code="not_narrower",
            hint="an approver only takes away; deny the call, and its agent can ask for another one",
        )


class _Reading:
    """What a call's strings are for, and what they name."""

    def __init__(self, subject: FactSubject):
        facts = gather(subject)
        self.touched: Touched = touch(subject.arguments, facts.texts.strings, sends=True)
        self.texts: dict[str, Text] = {text.path: text for text in facts.texts.strings if not text.is_key}
        self.kinds: dict[str, set[Kind]] = {}
        for kind, rows in self.touched.resources.items():
            for pointer, _ in rows:
                self.kinds.setdefault(pointer, set()).add(kind)
        self.runs = "commands" in self.touched.resources or any(text.role in _RUN for text in self.texts.values())
        self.unread = {pointer: resolve(subject.arguments, pointer) for pointer in self.touched.unreadable}

    def named(self, kind: Kind) -> Iterator[tuple[str, Segments]]:
        """Each resource of a kind with the pointer that names it."""
        for pointer, names in self.touched.resources.get(kind, ()):
            for name in names:
                yield pointer, name


class _Check:
    """Goes through both at once. Every method answers `None` where the second value is narrower or the same."""

    def __init__(self, held: dict[str, Any], reading: _Reading, declared: Mapping[str, Narrowing]):
        self._reading = reading
        self._declared = declared
        self._paired = frozenset(_paired(held, reading))

    def value(self, held: Any, changed: Any, at: str, to: str, schema: Any) -> _Refusal | None:
        """`at` is the pointer in the held call, `to` in the changed one; `schema` is what the registry says of it."""
        if _is_same(held, changed):
            return None
        word = self._word(at)
        if word == "fixed":
            return _Refusal(to, "is declared to stay as it is")
        if isinstance(held, dict) and isinstance(changed, dict):
            return self._object(held, changed, at, to, schema)
        if isinstance(held, list) and isinstance(changed, list):
            return self._list(held, changed, at, to, schema)
        if isinstance(held, str) and isinstance(changed, str):
            return self._text(held, changed, at, to, word)
        if _is_number(held) and _is_number(changed):  # (4)
            if word != "lower" and not is_amount(at):
                return _Refusal(to, "is a number that nothing says is an amount")
            return None if is_lower(held, changed) else _Refusal(to, "may only go down")
        return _Refusal(to, "may not change")  # (1)

    def _object(self, held: dict[str, Any], changed: dict[str, Any], at: str, to: str, schema: Any) -> _Refusal | None:
        for name in changed:  # (1)
            if name not in held:
                return _Refusal(f"{to}/{escape(name)}", "is not in the held call")
        for name, value in held.items():
            own = f"{at}/{escape(name)}"
            if name not in changed:  # (2)
                if not self._may_go(value, own, optional=_is_optional(schema, name)):
                    return _Refusal(own, "may not be left out")
                continue
            found = self.value(value, changed[name], own, f"{to}/{escape(name)}", _member(schema, name))
            if found is not None:
                return found
        return None

    def _may_go(self, value: Any, at: str, *, optional: bool) -> bool:
        """(2), for a member or a whole list."""
        word = self._word(at)
        if word is not None:
            return word == "remove"
        if is_extra(at):
            return True
        return optional and all(self._is_prose(pointer) for pointer in _leaves(value, at))

    def _list(self, held: list[Any], changed: list[Any], at: str, to: str, schema: Any) -> _Refusal | None:
        """(3): each member of the changed list is narrower than one of the held list, in the same order."""
        if "commands" in self._reading.kinds.get(at, ()):
            less = are_fewer_operands(held, changed)
            return None if less else _Refusal(to, "is a command that does not do less of the same")
        if not changed:
            may = self._may_go(held, at, optional=False)
            return None if may else _Refusal(to, "may not be emptied")
        if len(changed) < len(held):
            if holds_back(at) or any(isinstance(one, str) and one.startswith("-") for one in held):
                return _Refusal(to, "may not lose members: they can hold something back")
            if self._reading.runs:
                return _Refusal(to, "may not lose members beside what is run")
            if at in self._paired:
                return _Refusal(to, "may not lose members: a list beside it is as long, and they can belong together")
        items = schema.get("items") if isinstance(schema, Mapping) else None
        place = 0
        for index, value in enumerate(changed):
            own, why = f"{to}/{index}", "is not in the held call"
            while place < len(held):
                found = self.value(held[place], value, f"{at}/{place}", own, items)
                place += 1
                if found is None:
                    break
                own, why = found if len(held) == len(changed) else (own, why)
            else:
                return _Refusal(own, why)
        return None

    def _text(self, held: str, changed: str, at: str, to: str, word: Narrowing | None) -> _Refusal | None:
        if word == "shorten":  # (7)
            return None if is_shortened(held, changed) else _Refusal(to, "may only lose words")
        if word == "lower" or is_amount(at):
            return None if is_lower_text(held, changed) else _Refusal(to, "may only go down")
        kinds = self._reading.kinds.get(at)
        if kinds:  # (5)
            if kinds == {"paths"} and self._reading.runs:
                return _Refusal(to, "may not change beside what is run")
            less = all(kind in _RULES and _RULES[kind](held, changed) for kind in kinds)
            return None if less else _Refusal(to, "names something else than the held call")
        if self._is_prose(at):  # (6)
            return None if is_shortened(held, changed) else _Refusal(to, "may only lose words")
        return _Refusal(to, "may not change")

    def _is_prose(self, at: str) -> bool:
        """Text for people: not what a program reads, and not beside an address that it would be posted to."""
        text, reading = self._reading.texts.get(at), self._reading
        if text is None or reading.runs or reading.kinds.get(at) or "hosts" in reading.touched.resources:
            return False
        if text.value.lstrip()[:1] in ("{", "[", "<"):
            return False
        return text.role == "content" and (text.confidence == 100 or is_prose(at))

    def _word(self, at: str) -> Narrowing | None:
        return self._declared.get(at) or self._declared.get(argument_of(at))


def _named_before(before: _Reading, after: _Reading) -> _Refusal | None:
    """(8): the first resource of `after` that `before` does not name."""
    why = "names something that the held call does not"
    for kind in after.touched.resources:
        known = {name for _, name in before.named(kind)}
        if kind == "commands":
            known = {name[:1] for name in known}
        for pointer, name in after.named(kind):
            if kind == "paths":
                found = any(name[:length] in known for length in range(1, len(name) + 1))
            else:
                found = (name[:1] if kind == "commands" else name) in known
            if not found:
                return _Refusal(pointer, why)
    for pointer, value in after.unread.items():
        if not any(_is_same(known, value) for known in before.unread.values()):
            return _Refusal(pointer, "cannot be read, so nobody can say what it names")
    return None


def _is_same(held: Any, changed: Any) -> bool:
    """Whether two JSON values are the same; `true` is not 1 here."""
    if isinstance(held, dict) and isinstance(changed, dict):
        return held.keys() == changed.keys() and all(_is_same(held[name], changed[name]) for name in held)
    if isinstance(held, list) and isinstance(changed, list):
        return len(held) == len(changed) and all(map(_is_same, held, changed))
    return isinstance(held, bool) is isinstance(changed, bool) and type(held) is type(changed) and held == changed


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_optional(schema: Any, name: str) -> bool:
    """Whether the registry describes the object and does not require the member."""
    return isinstance(schema, Mapping) and schema.get("type") == "object" and name not in schema.get("required", ())


def _member(schema: Any, name: str) -> Any:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties.get(name) if isinstance(properties, Mapping) else None


def _paired(value: Any, reading: _Reading, at: str = "") -> Iterator[str]:
    """The pointers of lists that are as long as another one beside them; lists of recipients alone are independent."""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paired(inner, reading, f"{at}/{index}")
    elif isinstance(value, dict):
        lists: dict[int, dict[str, list[Any]]] = {}
        for name, inner in value.items():
            own = f"{at}/{escape(name)}"
            yield from _paired(inner, reading, own)
            if isinstance(inner, list) and len(inner) > 1:
                lists.setdefault(len(inner), {})[own] = inner
        for found in lists.values():
            if len(found) > 1 and not all(_is_social(inner, own, reading) for own, inner in found.items()):
                yield from found


def _is_social(value: Any, at: str, reading: _Reading) -> bool:
    """Whether a list holds recipients alone."""
    return all(reading.kinds.get(pointer) == {"recipients"} for pointer in _leaves(value, at))


def _leaves(value: Any, at: str) -> Iterator[str]:
    """The pointers of everything in a value that holds nothing itself."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{at}/{escape(name)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{at}/{index}")
    else:
        yield at
