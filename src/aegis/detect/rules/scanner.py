"""The scanner: all patterns of all rules in one pass over a text, then each hit confirmed and located."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from aegis.core.outcome import Outcome
from aegis.core.patterns import Lazy
from aegis.core.text import SURFACES, TEXT_ROLES, Surface
from aegis.detect.rules.checks import SPAN_CHECKS, TOGETHER, passes
from aegis.detect.rules.engine import Engine, EnginePattern, by_lines, compile_pattern, make_engines
from aegis.detect.rules.model import Rule, RuleSet
from aegis.detect.rules.order_words import expanded
from aegis.detect.rules.orders import Span

# Screens: for a pattern, a simpler one that occurs wherever it does, and that an automaton passes over faster.
#
# A screen leaves out how a match may begin and end: most of what patterns cost over clean text is trying
# beginnings. It finds too much; what it finds is looked at again with the pattern itself.

_CLASS: Final = r"\[(?:[^\]\\]|\\.)*\]"
# What stands before a match, and words that may stand at its beginning.
_CONTEXT: Final = Lazy(rf"\(\?:\^\|{_CLASS}\)|\\b")
_OPTIONAL: Final = Lazy(rf"{_CLASS}\{{0,\d+\}}\??")
# One of several words, after which anything may stand before one of several others.
_QUALIFIER: Final = Lazy(rf"\(\?:[^()]*\){_CLASS}\{{0,\d+\}}\??")
_REPEATED: Final = ("?", "*", "+", "{")
# Letters before digits that alone tell enough.
_LETTERS: Final = Lazy(r"\(\[[A-Za-z-]+\]\{\d+\}(\\d[^|()]*)\)")
_ENOUGH: Final = 3
_AFTER: Final = Lazy(rf"(?:\(\?:{_CLASS}\|\\z\)|\\b)$")


def patterns_of(rule: Rule) -> list[EnginePattern]:
    """What an engine tries for a rule."""
    return [EnginePattern(expanded(text), rule.case_sensitive, lines=True) for text in rule.patterns]


def screen(pattern: EnginePattern) -> EnginePattern:
    """A pattern that occurs in every text in which `pattern` occurs; the pattern itself where none is known."""
    text = pattern.text
    if _divides(text):
        return pattern
    for step in (_without_beginning, _without_end, _without_letters):
        text = step(text)
    return pattern._replace(text=text) if text else pattern


def _without_beginning(text: str) -> str:
    while True:
        found = _CONTEXT.match(text) or _OPTIONAL.match(text)
        if found is None:
            found = _QUALIFIER.match(text)
            if found is None or not text.startswith("(?:", found.end()):
                return text
        elif text[found.end() : found.end() + 1] in _REPEATED:
            return text
        text = text[found.end() :]


def _without_end(text: str) -> str:
    found = _AFTER.search(text)
    # A backslash before it makes it something else.
    if found is None or (len(text[: found.start()]) - len(text[: found.start()].rstrip("\\"))) % 2:
        return text
    return text[: found.start()]


def _without_letters(text: str) -> str:
    found = _LETTERS.fullmatch(text)
    if found is None or found.group(1).count("\\d") < _ENOUGH:
        return text
    rest: str = found.group(1)
    return rest


def _divides(text: str) -> bool:
    """Whether there are alternatives outside of all groups: then each begins and ends by itself."""
    depth, escaped, inside = 0, False, False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif inside:
            inside = char != "]"
        elif char == "[":
            inside = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and not depth:
            return True
    return False


WINDOW_BEFORE: Final = 4_096  # bytes before the reported end in which a match is looked for first
WINDOW_AFTER: Final = 256
FULL_SEARCH_BYTES: Final = 4_194_304  # bytes of one scan that confirming may search again
DENSE_WINDOW: Final = 1_000  # bytes in which all that a rule needs must stand
_MOST_PLACED: Final = 200  # matches of one pattern whose nearness to others is looked at in one text
DATA: Final = frozenset({"secret", "pii"})  # categories of what is masked or noted, never an attack
MOST_CHECKED_TOGETHER: Final = 2_000  # matches that are checked in all texts of a call
_FEW: Final = 6  # patterns that are tried one by one in less time than the engine takes
_WORD_SYNTAX: Final = (
    "(?i)", "\\b", "\\A", "\\z", "^", "$", "(?:", "(", ")", "|", "\\w", "\\d", "+", "*", "?", "[", "]", "-", "_",
)  # fmt: skip
# Surfaces that share engines: the roles of a call's values, and texts that can be long.
_SHARING: Final[tuple[frozenset[Surface], ...]] = (
    frozenset(TEXT_ROLES), frozenset({"content", "document", "result"}),
)  # fmt: skip
_READ: Final[frozenset[Surface]] = frozenset({"result", "description"})  # what others wrote, and a model reads
_NO_RULES: Final[tuple[Rule, ...]] = ()


class Hit(NamedTuple):
    """One rule that matched, and the matched piece as a span of characters; an order may only be likely."""

    rule: Rule
    start: int
    end: int
    sure: bool = True


class _Confirming(NamedTuple):
    """One pattern of a rule compiled alone, and the group of a match that its checks read (0: all of it)."""

    pattern: Any
    group: int


class Checks:
    """How many matches of one call may still be checked: bounds what many near matches cost together.

    `decoded` says that the texts from here on are other readings of what stands in the call.
    """

    __slots__ = ("decoded", "left")

    def __init__(self) -> None:
        self.left = MOST_CHECKED_TOGETHER
        self.decoded = False


class Scanner:
    """Compiled once from a rule set, then used by any number of threads; also after a fork.

    `cache` is a folder for the compiled database (`None`: compiled anew). `engine` is `hyperscan` or
    `re2`; without the former the latter takes its place.
    """

    def __init__(self, rules: RuleSet, *, cache: Path | None = None, engine: str = "hyperscan"):
        self.rules = rules
        owners: list[Rule] = []
        patterns: list[EnginePattern] = []
        facts: dict[str, list[Rule]] = {}
        self._first: dict[str, int] = {}  # the place of each rule's first pattern
        for rule in rules.rules:
            self._first[rule.id] = len(owners)
            own = patterns_of(rule)
            owners += [rule] * len(own)
            patterns += own
            for fact in rule.facts:
                facts.setdefault(fact, []).append(rule)
        # Whether a bare short word can be a finding: then no text may be passed over for being one.
        self.reads_words = any(_is_word(pattern.text) for pattern in patterns)
        self._owners = tuple(owners)
        self._patterns = tuple(pattern.text for pattern in patterns)
        # Compiled when the engine first reports them: few ever are, and all of them take longer than a start may.
        self._confirm: dict[int, _Confirming] = {}
        self._by_lines: dict[int, Any] = {}
        self._engines, self._cased = self._compile(patterns, cache, engine)
        self._facts: Mapping[str, tuple[Rule, ...]] = {name: tuple(found) for name, found in facts.items()}
        self._applies = {surface: tuple(surface in rule.surfaces for rule in owners) for surface in SURFACES}

    def _compile(
        self, patterns: Sequence[EnginePattern], cache: Path | None, prefer: str
    ) -> tuple[Mapping[Surface, Engine], Engine]:
        """The engine of each surface, and that of the patterns with letters whose case no engine folds.

        What a text is not looked at for costs nothing there, and what several groups of surfaces look for is
        compiled once for all of them.
        """
        shared: dict[tuple[bool, ...], list[int]] = {}
        for place, rule in enumerate(self._owners):
            shared.setdefault(tuple(not group.isdisjoint(rule.surfaces) for group in _SHARING), []).append(place)
        told = [place for place, rule in enumerate(self._owners) if "description" in rule.surfaces]
        cased = [place for place, pattern in enumerate(patterns) if not pattern.text.isascii()]
        lists = [told, cased, *(places for held, places in shared.items() if any(held))]
        engines = make_engines([[patterns[place] for place in places] for places in lists], cache=cache, prefer=prefer)
        parts = list(zip(lists, engines, strict=True))
        by_surface: dict[Surface, Engine] = {"description": _Parts(parts[:1])}
        for number, group in enumerate(_SHARING):
            chosen = zip((held for held in shared if any(held)), parts[2:], strict=True)
            by_surface.update(dict.fromkeys(group, _Parts([part for held, part in chosen if held[number]])))
        return by_surface, _Parts(parts[1:2])

    def scan(
        self,
        text: str,
        surface: Surface,
        *,
        settled: Collection[Outcome] = (),
        checks: Checks | None = None,
        among: Collection[int] | None = None,
    ) -> list[Hit]:
        """Every rule of `surface` whose patterns occur in `text`; one hit a rule.

        Time is linear in the text. A lone surrogate is read as a replacement character. Rules about data whose
        outcome is among `settled` are left out: of them enough was found. `checks` are what the other texts of the
        same call have left; a match beyond them counts without its checksum.
        Of a text that is a line of what `standing` was asked of, only the patterns `among` its answer are tried.
        """
        checks = checks or Checks()
        data = text.encode("utf-8", "replace")
        if among is not None and len(among) <= _FEW and text.isascii():
            found = [(index, -1) for index in among]
        else:
            found = self._engines[surface].hits(data)
        if not text.isascii():
            # The engine folds the case of ASCII alone; other scripts are folded here.
            lowered = text.lower()
            if lowered != text:
                folded = lowered.encode("utf-8", "replace")
                found += [(index, -1) for index, _ in self._cased.hits(folded)]
        if not found:
            return []
        applies = self._applies[surface]
        budget = [FULL_SEARCH_BYTES]
        hits: list[Hit] = []
        taken: set[str] = set()
        likely: dict[str, Hit] = {}
        refuted: set[str] = set()  # rules that looked for their place themselves and found none
        counts: dict[str, set[int]] = {}
        for index, end in found:
            if not applies[index]:
                continue
            rule = self._owners[index]
            if (
                rule.id in taken
                or rule.id in refuted
                or (settled and rule.category in DATA and rule.outcome in settled)
            ):
                continue
            span: Span | tuple[int, int] | None
            if rule.check in SPAN_CHECKS:
                span = SPAN_CHECKS[rule.check](data)
                refuted.add(rule.id)
            else:
                span = self._locate(rule, index, data, end, budget, checks)
            if span is None:
                continue
            if rule.least > 1:
                distinct = counts.setdefault(rule.id, set())
                distinct.add(index)
                if len(distinct) < rule.least or not self._dense(rule, distinct, data):
                    continue
            if not isinstance(span, Span):
                span = Span(*span, sure=True)
            if span.quoted and surface not in _READ:
                continue
            start, end, sure = span.start, span.end, span.sure
            if sure:
                taken.add(rule.id)  # one that is likely may be sure by another pattern
            if rule.unless and _is_excepted(rule, data):
                continue
            if len(data) != len(text):
                start, end = _characters(data, start), _characters(data, end)
            hit = Hit(rule, start, end, sure and not rule.likely)
            if sure:
                hits.append(hit)
            else:
                likely.setdefault(rule.id, hit)
        return hits + [hit for name, hit in likely.items() if name not in taken]

    def is_quiet(self, together: str, *surfaces: Surface, settled: Collection[Outcome] = ()) -> bool:
        """Whether no rule of `surfaces` finds anything in the texts that are lines of `together`: one pass over all.

        No surface stands for every role of a call's values. What the engine reports is confirmed in all lines at
        once, where that tells something. A match across two of them only means that they are scanned one by one, as
        what is not quiet always is.
        """
        data = together.encode("utf-8", "replace")
        found = self._reported(data, surfaces)
        if found and next(self._standing(found, data, surfaces, settled), None) is not None:
            return False
        return together.isascii() or not self._cased.hits(together.lower().encode("utf-8", "replace"))

    def standing(self, together: str, *surfaces: Surface, settled: Collection[Outcome] = ()) -> list[int]:
        """The places of the patterns that can match in texts of ASCII that are lines of `together`, for `scan`."""
        data = together.encode("utf-8", "replace")
        found = self._reported(data, surfaces) if surfaces else self._engines["unknown"].hits(data)
        return list(self._standing(found, data, surfaces, settled)) if found else []

    def _reported(self, data: bytes, surfaces: Sequence[Surface]) -> list[tuple[int, int]]:
        """What the engines of `surfaces` report of a text; those of a call's values where none is named."""
        if not surfaces:
            return self._engines["unknown"].hits(data)
        engines = dict.fromkeys(self._engines[surface] for surface in surfaces)
        return [hit for engine in engines for hit in engine.hits(data)]

    def _standing(
        self,
        found: Sequence[tuple[int, int]],
        data: bytes,
        surfaces: Sequence[Surface],
        settled: Collection[Outcome],
    ) -> Iterator[int]:
        applies = [self._applies[surface] for surface in surfaces]
        told: dict[str, bool] = {}  # by check: whether it can find anything in these texts
        for index in dict.fromkeys(index for index, _ in found):
            if applies and not any(one[index] for one in applies):
                continue
            rule = self._owners[index]
            if settled and rule.category in DATA and rule.outcome in settled:
                continue
            if rule.check in TOGETHER:
                if rule.check not in told:
                    told[rule.check] = TOGETHER[rule.check](data)
                if not told[rule.check]:
                    continue
            if rule.check or rule.entropy or self._in_lines(index).search(data) is not None:
                yield index

    def _in_lines(self, index: int) -> Any:
        """The pattern at one place, as it matches in texts that are joined by newlines."""
        compiled = self._by_lines.get(index)
        if compiled is None:
            text = f"(?m){by_lines(self._patterns[index])}"
            compiled = compile_pattern(text, case_sensitive=self._owners[index].case_sensitive)
            self._by_lines[index] = compiled
        return compiled

    def _confirming(self, index: int) -> _Confirming:
        """The pattern at one place, as it matches in a text by itself."""
        made = self._confirm.get(index)
        if made is None:
            made = self._confirm[index] = _confirming(self._owners[index], self._patterns[index])
        return made

    def rules_for(self, fact: str) -> tuple[Rule, ...]:
        """The rules that judge the signal `fact`."""
        return self._facts.get(fact, _NO_RULES)

    def spans(self, rule: Rule, text: str, *, checks: Checks | None = None) -> list[tuple[int, int]]:
        """Everywhere that `rule` matches in `text`, as spans of characters, for masking; `checks` are as in `scan`."""
        checks = checks or Checks()
        data = text.encode("utf-8", "replace")
        judged = bool(rule.check or rule.entropy)
        first, finds = self._first[rule.id], SPAN_CHECKS.get(rule.check)
        whole = None if finds is None else finds(data)
        found = [] if whole is None else [(whole.start, whole.end)]
        for index in range(first, first + len(rule.patterns)) if finds is None else ():
            compiled, group = self._confirming(index)
            for match in compiled.finditer(data):
                checks.left -= judged
                if not judged or checks.left < 0 or passes(rule, match, group, decoded=checks.decoded):
                    found.append(match.span(group))
        if not text.isascii():
            place = _places(data, found)
            found = [(place[start], place[end]) for start, end in found]
        return sorted(found)

    def _dense(self, rule: Rule, indexes: set[int], data: bytes) -> bool:
        """Whether enough different patterns of a rule stand close together; a long text says a little of all."""
        anchors = range(self._first[rule.id], self._first[rule.id] + rule.anchors)
        if rule.anchors and indexes.isdisjoint(anchors):
            return False
        if len(data) <= DENSE_WINDOW:
            return True
        places: list[tuple[int, int]] = []
        for index in indexes:
            places.extend((match.start(), index) for match in _first(self._confirming(index).pattern.finditer(data)))
        places.sort()
        first = 0
        inside: Counter[int] = Counter()
        for start, index in places:
            inside[index] += 1
            while start - places[first][0] > DENSE_WINDOW:
                gone = places[first][1]
                inside[gone] -= 1
                if not inside[gone]:
                    del inside[gone]
                first += 1
            if len(inside) >= rule.least and (not rule.anchors or any(at in inside for at in anchors)):
                return True
        return False

    def _locate(
        self, rule: Rule, index: int, data: bytes, end: int, budget: list[int], checks: Checks
    ) -> Span | tuple[int, int] | None:
        """Where a pattern that the engine reported really matches; `None` where it does not.

        The whole text is searched only as far as `budget` goes; beyond it a report stands unconfirmed,
        because giving up must not let anything through.
        """
        pattern, group = self._confirming(index)
        if rule.check or rule.entropy:
            likely: Span | None = None
            for match in pattern.finditer(data):
                checks.left -= 1
                given = checks.left < 0 or passes(rule, match, group, decoded=checks.decoded)
                if given in ("likely", "quoted"):
                    likely = likely or Span(match.start(), match.end(), sure=False, quoted=given == "quoted")
                elif given:
                    return Span(match.start(), match.end(), sure=True)
            return likely
        # Of each pattern only the first end is reported; what does not match there may match behind it.
        first, last = (max(0, end - WINDOW_BEFORE), end + WINDOW_AFTER) if end >= 0 else (0, 0)
        match = pattern.search(data, first, min(len(data), last)) if last else None
        if match is None and (first or last < len(data)):
            if len(data) > budget[0]:
                return max(0, end - 1), max(0, end)
            budget[0] -= len(data)
            match = pattern.search(data)
        return match.span() if match is not None else None


class _Parts:
    """Engines over parts of all patterns as one, speaking of them by their place in the whole."""

    def __init__(self, parts: Sequence[tuple[list[int], Engine]]):
        self._parts = tuple(parts)

    def hits(self, data: bytes) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for places, engine in self._parts:
            reported = engine.hits(data)
            if reported:
                found += [(places[index], end) for index, end in reported]
        return found


def _is_word(pattern: str) -> bool:
    """Whether a pattern asks for words alone, with nothing that a short plain word cannot hold."""
    plain = pattern
    for sign in _WORD_SYNTAX:
        plain = plain.replace(sign, "")
    return bool(plain) and plain.isalnum()


def _first(matches: Iterator[Any]) -> Iterator[Any]:
    for number, match in enumerate(matches):
        if number >= _MOST_PLACED:
            return
        yield match


def _confirming(rule: Rule, pattern: str) -> _Confirming:
    judged = bool(rule.check or rule.entropy)
    compiled = compile_pattern(pattern, case_sensitive=rule.case_sensitive, groups=judged)
    return _Confirming(compiled, 1 if judged and compiled.groups else 0)


def _is_excepted(rule: Rule, data: bytes) -> bool:
    """Whether a text is one that the rule says nothing of, whatever occurs in it."""
    patterns = (compile_pattern(text, case_sensitive=rule.case_sensitive) for text in rule.unless)
    return any(pattern.search(data) is not None for pattern in patterns)


def _places(data: bytes, spans: Sequence[tuple[int, int]]) -> dict[int, int]:
    """How many characters stand before each edge of `spans`, in one pass over the text."""
    places: dict[int, int] = {}
    at = count = 0
    for edge in sorted({edge for span in spans for edge in span}):
        start = edge
        while start < len(data) and data[start] & 0xC0 == 0x80:  # within a character: what stands before it counts
            start -= 1
        count += len(data[at:start].decode("utf-8", "ignore"))
        at = start
        places[edge] = count
    return places


def _characters(data: bytes, offset: int) -> int:
    return len(data[:offset].decode("utf-8", "ignore"))
