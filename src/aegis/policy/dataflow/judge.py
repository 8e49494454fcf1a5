"""The five steps over one call: a pure function of the call, its tool's declaration, the session and the settings.

(1) clean: until untrusted text was read, only the user can have asked
(2) the licence of the deed: the user's words ask for this kind of deed
(3) values at sinks: said, or in a trusted field, or in a document that the user named where that is delegated,
    and no other thing than the one of that kind which the user named
(4) what a text that leaves carries: addresses, accounts, and words of an instruction that only a document gave
(5) what was marked secret leaves only if the user said so

Each step can only tighten. Without the user's words the steps run on provenance alone.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from aegis.core.outcome import Outcome, Reason
from aegis.policy.dataflow.declare import (
    ArgumentText,
    Does,
    flow_of_argument,
    is_aside,
    name_words,
    objects_of,
    strings_of,
    verb_of,
)
from aegis.policy.dataflow.forms import dates_of, is_relative, shape_of
from aegis.policy.dataflow.licence import FlowCall, is_licensed
from aegis.policy.dataflow.orders import MAX_SPANS
from aegis.policy.dataflow.reading import (
    INSTRUCTION,
    NAMED,
    SECRET,
    STRUCTURED,
    TRUSTED,
    FlowGrant,
    SessionView,
    ValueOrigin,
    is_field,
    is_prose_name,
    pairs_of,
    record_of,
    shingles,
)
from aegis.policy.dataflow.values import JoinedTexts, ValueKind, families, find_all, host_of, normalise, tokens
from aegis.policy.dataflow.words import TrustedWords, lexicon, stem

Delegation = Literal["never", "grant", "typed"]

MAX_FOUND: Final = 32  # findings of one call
_QUIET: Final = frozenset({"read"})
_LEAVING: Final = frozenset(
    {"send", "post", "pay", "share", "account", "book", "create", "modify", "fetch", "execute", "member", "other"}
)
# Names inside of one's own house: held where an instruction names them, or nothing that was read does.
_SOFT: Final = frozenset({("person", "send"), ("id", "send"), ("id", "post"), ("id", "member"), ("id", "delete")})
# A document that is asked for one such value and has two gives none.
_PAID: Final = {"w": "n"}  # who is paid has an account or a wallet
_SINGLE: Final = frozenset({"account", "card", "wallet", "phone"})
_SAID_ONCE: Final = _SINGLE | {"email"}  # who says one of these leaves no other to a document
_NUMBERED: Final = frozenset({"account", "card", "phone"})
_SHORT: Final = 160  # characters of an argument that names something
_NAMING: Final = 5  # blanks of one
_TELLING: Final = frozenset({"send", "post"})
_NO_TARGETS: Final = frozenset({"read", "fetch"})
_BINDING: Final = frozenset({"delete", "share", "member", "account", "modify", "book", "pay", "other"})
_REFERRING: Final = _BINDING | _TELLING  # who tells about a thing names it
_LONGEST_TARGET: Final = 40  # characters of an argument that names a day or a thing
_LEAST_NUMBERED: Final = 3  # digits of what is numbered like a thing
_COPIED: Final = 0.6  # share of an argument's words that stand together in an instruction


class FlowFinding(NamedTuple):
    """Why a call is held: a rule, the argument, and where its value stands (document numbers and paths)."""

    rule: str
    reason: Reason
    path: str
    outcome: Outcome
    message: str
    origins: tuple[ValueOrigin, ...] = ()
    kind: str = ""
    does: str = ""


def judge_flow(call: FlowCall, view: SessionView, delegation: Delegation) -> tuple[FlowFinding, ...]:
    """What the session says against the call; empty where nothing is."""
    # (1)
    if not view.untrusted and not view.saturated:
        return ()
    does = call.does
    if does in _QUIET and not call.leaves:
        return ()
    strings = list(strings_of(call.arguments))
    judging = _Judging(call, does, view, delegation, strings)
    judging.licence()
    judging.sinks()
    judging.others()
    judging.carried()
    return judging.findings()


class _Judging:
    def __init__(
        self, call: FlowCall, does: Does, view: SessionView, delegation: Delegation, strings: list[ArgumentText]
    ):
        self.call = call
        self.does = does
        self.view = view
        self.delegation = delegation
        self.strings = strings
        self.values = find_all(JoinedTexts([one.value for one in strings]))
        self.found: list[FlowFinding] = []
        self.licensed = True
        self._known: dict[str, tuple[ValueOrigin, ...]] = {}

    def findings(self) -> tuple[FlowFinding, ...]:
        """All of them; a value inside an instruction of which nothing is licensed blocks."""
        return tuple(
            one._replace(outcome=Outcome.BLOCK)
            if not self.licensed
            and one.origins
            and all(origin.flags & INSTRUCTION for origin in one.origins)
            and self.view.words is not None
            else one
            for one in self.found[:MAX_FOUND]
        )

    # (2)
    def licence(self) -> None:
        words, does = self.view.words, self.does
        if words is None or self.view.grants_deed(does, self.call.tool):
            return
        if is_licensed(self.call, words):
            return
        self.licensed = False
        message = f"the user's words do not ask for a deed of this kind (`{does}`)"
        self.found.append(
            FlowFinding("unlicensed-deed", Reason.UNLICENSED, "", Outcome.REQUIRE_APPROVAL, message, does=does)
        )

    # (3)
    def sinks(self) -> None:
        for one, values in zip(self.strings, self.values, strict=True):
            told = flow_of_argument(self.call.flow, self.does, one.name)
            if told is not None and not told.sink:
                continue
            seen = False
            if told is not None or (len(one.value) <= _SHORT and self.does in _LEAVING):
                for value in values:
                    if told is None and not self._is_address(one.value, value.start, value.end):
                        continue
                    seen = True
                    self._sink(one, value.kind, value.normal)
            if told is not None and not seen and one.value.strip():
                # Who gives a name where an account is meant names a person.
                named = told.kind in _NUMBERED and not any(char.isdigit() for char in one.value)
                kind: ValueKind = "person" if named else told.kind
                self._sink(one, kind, normalise(kind, one.value))

    @staticmethod
    def _is_address(text: str, start: int, end: int) -> bool:
        """Whether an argument is the address, and not a text that holds one."""
        return end - start >= len(text.strip()) - 2

    def _sink(self, one: ArgumentText, kind: ValueKind, normal: str) -> None:
        if not normal or self._is_fine(one, kind, normal, first=self.call.gives):
            return
        origins = self._origins(kind, normal)
        place = "it stands in nothing that was said or read"
        if origins:
            place = "it stands only in what was read"
        self._hold("untrusted-sink", one.path, f"the value was not in the user's request; {place}", origins, kind)

    def _is_fine(self, one: ArgumentText, kind: ValueKind, normal: str, *, first: bool) -> bool:
        words = self.view.words
        if words is not None and words.says(kind, normal):
            return True
        origins = self._origins(kind, normal)
        if self._granted(one, kind, origins):
            return True
        if any(origin.flags & TRUSTED for origin in origins):
            return True
        clean = [origin for origin in origins if not origin.flags & INSTRUCTION]
        if not first and clean and len(clean) == len(origins) and any(origin.flags & STRUCTURED for origin in clean):
            return True
        if clean and len(clean) == len(origins) and (kind, self.does) in _SOFT:
            return any(map(is_field, clean)) or all(map(_is_own, clean))
        if self.does == "fetch" and kind == "url" and self._is_linked(normal, origins):
            return True
        is_clean = bool(clean) and len(clean) == len(origins)
        if self.delegation == "typed" and words is not None and is_clean and self._is_open(words, kind, normal):
            if kind == "person" and self._asks_for_many() and all(map(_is_own, clean)):
                return True  # everybody was asked for, and each stands on a line or in a field by itself
            return any(origin.flags & NAMED and self._is_only(origin, kind) for origin in clean)
        return False

    def _is_open(self, words: TrustedWords, kind: ValueKind, normal: str) -> bool:
        """Whether the user asks for this deed in so many words, and left it to a document to say where it goes."""
        call = self.call
        if not words.asks_for(self.does, objects_of(call.tool)) and not words.orders((verb_of(call.tool),)):
            return False
        if kind == "url" and ("?" in normal or self.does != "fetch") and not self._speaks_of_pages(words):
            return False  # such an address can carry something out, or lead those astray who are told it
        return not (kind in _SAID_ONCE and words.names_some(kind) and not self._asks_for_many())

    @staticmethod
    def _speaks_of_pages(words: TrustedWords) -> bool:
        return not words.said.isdisjoint(lexicon().deeds["fetch"].pages)

    def _is_linked(self, normal: str, origins: tuple[ValueOrigin, ...]) -> bool:
        """Whether a page is fetched whose address stands, as it is, in a document that the user named for its links.

        An address with a query could carry something out, and one in an instruction is somebody's order.
        """
        words = self.view.words
        if words is None or "?" in normal or not self._speaks_of_pages(words):
            return False
        exact = self.view.origins("u", normal)
        return (
            bool(exact) and exact == origins and all(one.flags & NAMED and not one.flags & INSTRUCTION for one in exact)
        )

    def _is_only(self, origin: ValueOrigin, kind: ValueKind) -> bool:
        """Whether the document named by the user has a value to give; a singular request and two candidates is none."""
        family = families(kind)
        if not is_field(origin) and (_PAID.get(family, family) in self.view.fields or self._is_aside(origin)):
            return False  # a field that a document has for it goes before what people wrote
        if kind not in _SINGLE or self._asks_for_many():
            return True
        return self.view.candidates_in(origin.document, families(kind)) == 1

    def _is_aside(self, origin: ValueOrigin) -> bool:
        """Whether a value stands in what people note beside a record, and the user does not speak of that."""
        words, name = self.view.words, origin.path.rpartition("/")[2]
        return is_aside(name) and (words is None or words.said.isdisjoint((name, f"{name}s", stem(name))))

    def _asks_for_many(self) -> bool:
        words = self.view.words
        return words is not None and words.many

    def _origins(self, kind: ValueKind, normal: str) -> tuple[ValueOrigin, ...]:
        found = self.view.origins(families(kind), normal)
        if not found and families(kind) == "t":
            for family in ("n", "e", "u"):
                found = self.view.origins(family, normal)
                if found:
                    break
        if not found and families(kind) == "u":
            found = self.view.origins("u", host_of(normal))
        return found

    def _texts(self, text: str) -> tuple[ValueOrigin, ...]:
        """Where a text stands as a whole."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self.view.origins("t", normalise("text", text))
        return found

    def _granted(self, one: ArgumentText, kind: ValueKind, origins: tuple[ValueOrigin, ...]) -> bool:
        """Whether a person granted that a document names such values here: in that field, and in no instruction."""
        return any(
            grant.document
            and grant.kind == kind
            and grant.sink == place_of_sink(one.path)
            and any(self._covers(grant, origin, kind) for origin in origins)
            for grant in self.view.grants
        )

    def _covers(self, grant: FlowGrant, origin: ValueOrigin, kind: ValueKind) -> bool:
        if self.view.documents[origin.document].receipt != grant.document or origin.flags & INSTRUCTION:
            return False
        place, is_many = place_of_sink(origin.path), self._asks_for_many()
        if place != grant.place and not (is_many and not (place and grant.place)):
            return False
        # A text can hold the value that was approved and another: of two, each is asked for.
        if origin.flags & STRUCTURED or grant.place or is_many:
            return True
        return self.view.candidates_in(origin.document, families(kind)) <= 1

    # (3), of arguments that are no sinks: the user named another day, another thing, or another record of a list
    def others(self) -> None:
        words = self.view.words
        if words is None or self.does in _NO_TARGETS:
            return
        told = [one for one in self.strings if len(one.value) <= _LONGEST_TARGET]
        self._days(words, told)
        for one in told:
            text = one.value.strip()
            origins = self._texts(text)
            is_field = bool(origins) and all(origin.flags & (STRUCTURED | TRUSTED) for origin in origins)
            if is_field and not any(origin.flags & INSTRUCTION for origin in origins):
                if self.does not in _BINDING or self._asks_for_many() or not self._is_elsewhere(words, origins):
                    continue
                rule, message = "other-record", "the user named another record of this list"
            elif (shape := shape_of(text)) and shape in words.forms.shapes:
                rule, message = "other-thing", "the user named another thing of this form"
            elif self.does == "book" and not any(map(_is_own, origins)) and self._is_booked(one):
                rule, message = "other-thing", "what is booked stands in nothing that was said or read"
            elif self.does in _REFERRING and not any(map(_is_own, origins)) and self._is_reference(one):
                rule, message = "unknown-thing", "what the call refers to is in no request, field or line of its own"
            else:
                continue
            if words.covers(text) or self._granted(one, "text", origins):
                continue
            self._hold(rule, one.path, message, origins, "text")

    def _days(self, words: TrustedWords, told: list[ArgumentText]) -> None:
        """Hold where the user named days, and the call is for none of them, nor for one that a field gives."""
        said = words.forms.dates
        if not said or is_relative(words.said):
            return
        found = {one.path: dates for one in told if (dates := dates_of(one.value))}
        if not found or any(not said.isdisjoint(dates) for dates in found.values()):
            return
        for one in told:
            origins = self._texts(one.value) if one.path in found else ()
            if one.path in found and not any(origin.flags & (STRUCTURED | TRUSTED) for origin in origins):
                self._hold("other-day", one.path, "the user named another day", origins, "date")
                return

    def _is_booked(self, one: ArgumentText) -> bool:
        """Whether an argument names what the tool's name says is booked, and less than half of it was said."""
        held = frozenset(objects_of(self.call.tool)) & frozenset(name_words(one.name))
        parts = [part for part in tokens(one.value.casefold()) if len(part) > 1]
        said = frozenset() if self.view.words is None else self.view.words.said
        return bool(held - lexicon().deeds["book"].any) and sum(part in said for part in parts) * 2 < len(parts)

    def _is_reference(self, one: ArgumentText) -> bool:
        """Whether an argument refers to something that must be known before: an agent makes up no number of one."""
        text, words = one.value.strip(), name_words(one.name)
        said = frozenset() if self.view.words is None else self.view.words.said
        if not text or " " in text or text.casefold() in lexicon().defaults or said.issuperset(tokens(text.casefold())):
            return False
        shape = shape_of(text)
        if bool(words) and words[-1] in lexicon().references and (self.does in _BINDING or bool(shape)):
            return True
        if sum(char.isdigit() for char in text) >= _LEAST_NUMBERED and bool(shape) and not dates_of(text):
            told = flow_of_argument(self.call.flow, self.does, one.name)  # where it goes is asked of sinks
            # What is numbered like a thing has its number from somebody.
            return told is None and not is_prose_name(one.name)
        # What is taken away for good is named by somebody, whatever the argument is called.
        is_of_tool = self.does == "delete" or not frozenset(objects_of(self.call.tool)).isdisjoint(words)
        return is_of_tool and bool(shape)

    def _is_elsewhere(self, words: TrustedWords, origins: tuple[ValueOrigin, ...]) -> bool:
        """Whether the user's names stand in other records of the lists that hold this value, and in none of its own."""
        records = {(origin.document, record) for origin in origins if (record := record_of(origin.path))}
        if len({(origin.document, origin.path) for origin in origins}) > len(records):
            return False
        named = {
            (origin.document, record)
            for name in words.names
            for origin in self.view.origins("t", name)
            if (record := record_of(origin.path))
        }
        lists = {(document, record.rpartition("/")[0]) for document, record in records}
        return not records & named and any((document, one.rpartition("/")[0]) in lists for document, one in named)

    def _hold(self, rule: str, path: str, message: str, origins: tuple[ValueOrigin, ...], kind: str) -> None:
        self.found.append(
            FlowFinding(rule, Reason.UNTRUSTED_VALUE, path, Outcome.REQUIRE_APPROVAL, message, origins, kind)
        )

    # (4), (5)
    def carried(self) -> None:
        words = self.view.words
        for one, values in zip(self.strings, self.values, strict=True):
            told = flow_of_argument(self.call.flow, self.does, one.name)
            if told is not None and told.sink:
                continue
            if self.does in _LEAVING:
                for value in values:
                    if value.kind not in {"url", "wallet"} and not (value.kind == "account" and self.does != "execute"):
                        continue
                    if self._is_fine(one, value.kind, value.normal, first=False):
                        continue
                    origins = self._origins(value.kind, value.normal)
                    if value.kind == "account" and not origins:
                        continue  # a long number that nobody wrote is a number
                    self._hold(
                        "untrusted-content",
                        one.path,
                        "a text that leaves carries an address that only a document names",
                        origins,
                        value.kind,
                    )
            if words is not None and self._is_planted(one):
                self._hold(
                    "planted-value",
                    one.path,
                    "the argument stands only in what somebody wrote into a text",
                    self._texts(one.value),
                    "text",
                )
            elif words is not None and self._is_copied(one.value) and not words.covers(one.value):
                self._hold(
                    "copied-instruction",
                    one.path,
                    "the argument is word for word what a document told the agent to do",
                    (),
                    "text",
                )
            if self.does in {"send", "post", "share", "pay"} and len(one.value) <= _SHORT:
                origins = self._texts(one.value)
                said = words is not None and words.says("text", normalise("text", one.value))
                if not said and any(origin.flags & SECRET for origin in origins):
                    self.found.append(
                        FlowFinding(
                            "secret-leaves",
                            Reason.SENSITIVE_DATA,
                            one.path,
                            Outcome.REQUIRE_APPROVAL,
                            "a field that is kept secret would leave",
                            origins,
                            "secret",
                        )
                    )

    def _is_planted(self, one: ArgumentText) -> bool:
        """Whether an argument that names something is what a text says, and no field, line or word of the user."""
        text = one.value
        if not 1 < len(text) <= _SHORT or text.count(" ") > _NAMING:
            return False
        origins = self._texts(text)
        if not origins or any(is_field(origin) and not origin.flags & INSTRUCTION for origin in origins):
            return False
        # A line by itself names what it says, unless somebody's sentence says it as well: anybody can add a line.
        if all(_is_own(origin) and not origin.flags & INSTRUCTION for origin in origins):
            return False
        if self._granted(one, "text", origins) or self._is_told(text, origins):
            return False
        return not (self.view.words is not None and self.view.words.covers(text))

    def _is_told(self, text: str, origins: tuple[ValueOrigin, ...]) -> bool:
        """Whether a message tells a day, or where that is delegated, what a document that the user named says."""
        if self.does not in _TELLING:
            return False
        if not any(map(str.isalpha, text)) and dates_of(text):
            return True
        is_named = all(origin.flags & NAMED and not origin.flags & INSTRUCTION for origin in origins)
        return self.delegation == "typed" and is_named

    def _is_copied(self, text: str) -> bool:
        if text.count(" ") < 2:
            return False
        if self.view.spans >= MAX_SPANS:  # what an instruction said is not known any more
            return True
        if not self.view.shingles:
            return False
        known = self.view.shingles
        if known.isdisjoint(pairs_of(self.view.key, text[:2_000])):  # the rest of them is less than is needed
            return False
        hashes = shingles(self.view.key, text[:2_000])
        return bool(hashes) and sum(map(known.__contains__, hashes)) >= _COPIED * len(hashes)


def _is_own(origin: ValueOrigin) -> bool:
    """Whether a value stands for itself: in a field, or as a line of a text."""
    return is_field(origin) or not origin.path


def place_of_sink(path: str) -> str:
    """A pointer without the positions of lists: a grant for `/recipients` covers each of them."""
    return "/".join(part for part in path.split("/") if not part.isdigit())
