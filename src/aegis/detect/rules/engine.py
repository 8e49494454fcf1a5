"""Two engines that answer one question: which patterns occur in these bytes, and where does one end.

Hyperscan where it is installed; RE2 sets elsewhere. Both read the same subset of patterns, so a rule
behaves the same on either; only the time differs.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import re2

from aegis.core.patterns import Lazy
from aegis.detect.rules.cache import compiling, load_cached, load_shipped, store_cached
from aegis.errors import ConfigError, Problem
from aegis.notices import notice

# Patterns that every engine reads the same, in linear time.

MAX_PATTERN: Final = 4_000  # characters: an automaton grows with its pattern
_MEMORY: Final = 16_777_216  # bytes one compiled pattern may take


def compile_pattern(pattern: str, *, case_sensitive: bool, groups: bool = False) -> Any:
    """The pattern for RE2 over UTF-8 bytes, `.` matching newlines; raises `re2.error`."""
    return _patterns_compile(pattern, case_sensitive, groups)


@lru_cache(maxsize=4_096)
def _patterns_compile(pattern: str, case_sensitive: bool, groups: bool) -> Any:
    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.dot_nl = True
    options.never_capture = not groups
    options.log_errors = False
    options.max_mem = _MEMORY
    return re2.compile(pattern.encode(), options)


def check_pattern(pattern: str, *, case_sensitive: bool) -> str:
    """Why a pattern cannot be used, as one sentence; empty where it can."""
    if len(pattern) > MAX_PATTERN:
        return f"a pattern has more than {MAX_PATTERN} characters"
    if not pattern.isascii() and "[" in pattern and _class_has_wide(pattern):
        return "a character class holds characters outside ASCII; write them as alternatives"
    try:
        compiled = compile_pattern(pattern, case_sensitive=case_sensitive)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        reason = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        return f"the pattern does not compile: {reason}"
    if compiled.search(b"") is not None:
        return "the pattern matches the empty text"
    return ""


def _class_has_wide(pattern: str) -> bool:
    inside, escaped = False, False
    for char in pattern:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "[":
            inside = True
        elif char == "]":
            inside = False
        elif inside and not char.isascii():
            return True
    return False


hyperscan: Any
try:
    hyperscan = importlib.import_module("hyperscan")
except ImportError:  # no wheel for this platform: the RE2 sets below take over
    hyperscan = None

_SET_SIZE: Final = 40  # patterns in one RE2 set: a larger set outgrows its automaton's memory
_SET_MEMORY: Final = 67_108_864  # bytes an RE2 set may take


_REPEAT: Final = Lazy(r"\{(\d{1,4}),(\d{1,4})\}")
_LONG_REPEAT: Final = 24
_LOOSE_LEAD: Final = Lazy(r"\\b(\(?)(\[[^\]\\]+\])\{(?:[3-9]|\d\d+)\}")
_WHOLE_TEXT: Final = {"A": "^", "z": "$"}
_MOST_OPENED: Final = 16  # databases that one process keeps: some megabytes each
_MANY: Final = 3  # databases: the rules that ship are more, one folder of a user's own is less
_MOST_THREADS: Final = 4  # that compile at once
_Identity = tuple[str, ...]
_OPENED: dict[_Identity, Any] = {}
_OPENED_LOCK: Final = threading.Lock()


class EnginePattern(NamedTuple):
    """One pattern, whether case matters, and whether each line counts as a text of its own for `^` and `$`."""

    text: str
    case_sensitive: bool
    lines: bool = False


class Engine(Protocol):
    """Reports each pattern at most once, with the offset where an occurrence ends (-1: unknown)."""

    def hits(self, data: bytes) -> list[tuple[int, int]]: ...


def make_engine(patterns: Sequence[EnginePattern], *, cache: Path | None, prefer: str = "hyperscan") -> Engine:
    """The fastest engine that is installed; raises `ConfigError` for a pattern that it cannot read."""
    return make_engines([patterns], cache=cache, prefer=prefer)[0]


def make_engines(
    lists: Sequence[Sequence[EnginePattern]], *, cache: Path | None, prefer: str = "hyperscan"
) -> list[Engine]:
    """An engine for each list of patterns, as `make_engine` makes it; what must be compiled is compiled at once."""
    if hyperscan is None or prefer != "hyperscan":
        return [_Sets(patterns) if patterns else _Nothing() for patterns in lists]
    named = [(_identity(patterns), patterns) for patterns in lists]
    databases = _open({identity: patterns for identity, patterns in named if patterns}, cache)
    return [_Hyperscan(databases[identity]) if patterns else _Nothing() for identity, patterns in named]


class _Nothing:
    def hits(self, data: bytes) -> list[tuple[int, int]]:
        return []


class _Hyperscan:
    def __init__(self, database: Any):
        self._database = database
        self._proto = hyperscan.Scratch(self._database)
        self._local = threading.local()

    def hits(self, data: bytes) -> list[tuple[int, int]]:
        # Scratch space belongs to one thread; a forked child has its own copy of it.
        try:
            scratch = self._local.scratch
        except AttributeError:
            scratch = self._local.scratch = self._proto.clone()
        found: list[tuple[int, int]] = []
        self._database.scan(data, _collect, context=found, scratch=scratch)
        return found


def relaxed(pattern: str) -> str:
    """The pattern with long bounded repeats unbounded and a lead of any letters cut: wherever the original
    matches, it matches too, with the same end.

    An automaton counts by holding a state for each step, and a lead that every word fits keeps it busy at every
    word. What it finds too much is told apart when a hit is confirmed with the original.
    """
    if "{" not in pattern:  # nothing repeats
        return pattern
    lead = _LOOSE_LEAD.match(pattern) if pattern.startswith("\\b") else None
    if lead is not None:
        pattern = f"{lead.group(1)}{lead.group(2)}{pattern[lead.end() :]}"
    out: list[str] = []
    at = 0
    for match in _REPEAT.finditer(pattern):
        escapes = len(pattern[: match.start()]) - len(pattern[: match.start()].rstrip("\\"))
        if escapes % 2 == 0 and int(match.group(2)) >= _LONG_REPEAT:
            out.append(f"{pattern[at : match.start()]}{{{match.group(1)},}}")
            at = match.end()
    out.append(pattern[at:])
    return "".join(out)


def by_lines(pattern: str) -> str:
    """The pattern with the anchors of a whole text as those of a line: for texts that are joined by newlines."""
    if "\\A" not in pattern and "\\z" not in pattern:
        return pattern
    out: list[str] = []
    escaped = False
    for char in pattern:
        if escaped and char in _WHOLE_TEXT:
            out[-1] = _WHOLE_TEXT[char]
        else:
            out.append(char)
        escaped = char == "\\" and not escaped
    return "".join(out)


def _collect(pattern: int, start: int, end: int, flags: int, found: Any) -> None:
    found.append((pattern, end))


def _identity(patterns: Sequence[EnginePattern]) -> _Identity:
    """What a database depends on: the engine, and what it is given to compile, flags and all."""
    compiled = [f"{_flags(pattern)} {_text(pattern)}" for pattern in patterns]
    return (str(hyperscan.__version__), *compiled)


def _open(wanted: Mapping[_Identity, Sequence[EnginePattern]], cache: Path | None) -> Mapping[_Identity, Any]:
    """The databases of these patterns: those this process has, those on disk, and new ones."""
    with _OPENED_LOCK:
        found = {identity: _OPENED[identity] for identity in wanted if identity in _OPENED}
        absent = {identity: patterns for identity, patterns in wanted.items() if identity not in found}
        if absent:
            opened = _read_or_compile(absent, cache)
            found.update(opened)
            _OPENED.update(opened)
            while len(_OPENED) > _MOST_OPENED:
                del _OPENED[next(iter(_OPENED))]
        return found


def _read_or_compile(absent: Mapping[_Identity, Sequence[EnginePattern]], cache: Path | None) -> dict[_Identity, Any]:
    """The databases from disk; what is not there is compiled by one process, for which the others wait."""
    found = _read(absent, cache)
    if len(found) == len(absent):
        return found
    with compiling(cache):
        found |= _read([identity for identity in absent if identity not in found], cache)
        missing = [identity for identity in absent if identity not in found]
        if len(missing) >= _MANY:
            notice("compiling the rules; that is done once on this machine and takes some seconds", level=logging.INFO)
        with ThreadPoolExecutor(max_workers=_MOST_THREADS) as threads:  # the engine compiles without the GIL
            compiled = list(threads.map(_compiled, [absent[identity] for identity in missing]))
        for identity, database in zip(missing, compiled, strict=True):
            found[identity] = database
            if cache:
                store_cached(cache, identity, hyperscan.dumpb(database))
        if len(missing) >= _MANY:
            notice("the rules are compiled", level=logging.INFO)
    return found


def _read(identities: Iterable[_Identity], cache: Path | None) -> dict[_Identity, Any]:
    found: dict[_Identity, Any] = {}
    for identity in identities:
        for load in (partial(load_cached, cache), load_shipped) if cache else ():
            blob = load(identity)
            if blob is not None:
                # What another build of the engine wrote, or one for another processor, is compiled again.
                with contextlib.suppress(hyperscan.error):
                    found[identity] = hyperscan.loadb(blob, hyperscan.HS_MODE_BLOCK)
                    break
    return found


def _compiled(patterns: Sequence[EnginePattern]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        _compile(database, patterns)
    except hyperscan.error as error:
        raise ConfigError(_culprits(patterns, error)) from error
    return database


def _compile(database: Any, patterns: Sequence[EnginePattern]) -> None:
    flags = list(map(_flags, patterns))
    texts = [_text(pattern).encode() for pattern in patterns]
    database.compile(expressions=texts, ids=list(range(len(patterns))), flags=flags)


def _flags(pattern: EnginePattern) -> int:
    flags: int = hyperscan.HS_FLAG_DOTALL | hyperscan.HS_FLAG_SINGLEMATCH
    flags |= 0 if pattern.case_sensitive else hyperscan.HS_FLAG_CASELESS
    return flags | (hyperscan.HS_FLAG_MULTILINE if pattern.lines else 0)


def _text(pattern: EnginePattern) -> str:
    text = relaxed(pattern.text)
    return by_lines(text) if pattern.lines else text


def _culprits(patterns: Sequence[EnginePattern], together: Exception) -> tuple[Problem, ...]:
    """The patterns that do not compile alone; the engine itself names only an offset."""
    problems: list[Problem] = []
    for pattern in patterns:
        try:
            _compile(hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK), [pattern])
        except hyperscan.error as error:
            problems.append(Problem(message=f"the pattern `{pattern.text[:80]}` does not compile: {error}"))
    return tuple(problems) or (Problem(message=f"the patterns do not compile together: {together}"),)


class _Sets:
    def __init__(self, patterns: Sequence[EnginePattern]):
        options = re2.Options()
        options.max_mem = _SET_MEMORY
        options.log_errors = False
        self._sets: list[tuple[int, Any]] = []
        for base in range(0, len(patterns), _SET_SIZE):
            group = re2.Set.SearchSet(options)
            for pattern in patterns[base : base + _SET_SIZE]:
                flags = f"{'' if pattern.case_sensitive else 'i'}{'m' if pattern.lines else ''}s"
                group.Add(f"(?{flags}:{by_lines(pattern.text) if pattern.lines else pattern.text})")
            group.Compile()
            self._sets.append((base, group))

    def hits(self, data: bytes) -> list[tuple[int, int]]:
        return [(base + index, -1) for base, group in self._sets for index in group.Match(data) or ()]
