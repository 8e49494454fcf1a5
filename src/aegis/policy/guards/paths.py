"""The paths guard: arguments that name files stay within the folders that the operator wrote beside their tool.

Every reading of a path has to lie inside: full-width dots, percent escapes, backslashes and `..` lead nowhere that a
plain spelling would not. Where the files are on this machine, links are followed as well (CWE-22, CWE-59).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, Final, NamedTuple

from aegis.core.finding import Finding, Report
from aegis.core.json import escape
from aegis.core.names import Pattern, Selector, matches
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.detect.facts import Text
from aegis.detect.roles import argument_of
from aegis.detect.touch.paths import pattern_segments, readings
from aegis.policy.guards.base import Case

MOST_PATHS: Final = 256  # paths of one call that are compared and followed: each takes system calls
_MOST_FOUND: Final = 5  # findings of one call: a hostile call must not write a long report
_REMEMBERED: Final = 1_024  # names whose limits are looked up once: bounds memory against made-up names
_QUIET: Final = Report(guard="paths")
Segments = tuple[str, ...]
Follow = Callable[[Segments], Segments | None]


class PathLimit(NamedTuple):
    """Where one argument of a tool may lead; `argument` is a name, or a JSON pointer that begins with `/`."""

    argument: str
    inside: tuple[Pattern, ...]
    really: tuple[Pattern, ...]


def path_limit(argument: str, patterns: Sequence[str], *, base: str, follow: Follow | None) -> PathLimit:
    """The limit that an operator wrote; relative patterns are read below `base`."""
    inside = tuple(Pattern(pattern_segments(text, base), literal="*" not in text) for text in patterns)
    if follow is None:
        return PathLimit(argument, inside, ())
    return PathLimit(argument, inside, tuple(_followed(pattern, follow) for pattern in inside))


def _followed(pattern: Pattern, follow: Follow) -> Pattern:
    """A pattern whose folders before the first wildcard are where they really are."""
    fixed = next((at for at, part in enumerate(pattern.segments) if "*" in part), len(pattern.segments))
    real = follow(pattern.segments[:fixed])
    return pattern if real is None else Pattern((*real, *pattern.segments[fixed:]), pattern.literal)


class PathsGuard:
    """Blocks paths outside of what is written beside a tool; `follow` leads to where a path really is."""

    name = "paths"

    def __init__(self, tools: Mapping[str, Sequence[PathLimit]], *, base: str = "", follow: Follow | None = None):
        self._tools = [(Selector(name), tuple(limits)) for name, limits in tools.items() if limits]
        self._base = base
        self._follow = follow
        self._limits = lru_cache(maxsize=_REMEMBERED)(self._look)

    def check(self, case: Case) -> Report:
        """`block` for every path of a limited argument that does not lie inside, or that nobody can read."""
        limits = self._limits(case.server, case.tool)
        if not limits:
            return _QUIET
        texts = [text for text in case.facts.texts.strings if not text.is_key]
        found: list[Finding] = []
        compared = 0
        for path in _numbered(case.arguments, {limit.argument for limit in limits}):
            found.append(_finding(path))
            if len(found) == _MOST_FOUND:
                return _blocked(found)
        for limit in limits:
            for text in texts:
                if not _is_limited(text, limit.argument):
                    continue
                compared += 1
                if compared > MOST_PATHS or not self._is_inside(text.value, limit):
                    found.append(_finding(text.path))
                if compared > MOST_PATHS or len(found) == _MOST_FOUND:
                    return _blocked(found)
        return _blocked(found) if found else _QUIET

    def _look(self, server: str | None, tool: str) -> tuple[PathLimit, ...]:
        """Every limit that is written for a tool: what restricts it counts on every server."""
        return tuple(
            limit
            for selector, limits in self._tools
            if selector.matches(server, tool) or Selector(selector.tool).matches(None, tool)
            for limit in limits
        )

    def _is_inside(self, path: str, limit: PathLimit) -> bool:
        read = readings(path, self._base)
        if not read or not all(any(matches(pattern, name) for pattern in limit.inside) for name in read):
            return False
        if self._follow is None:
            return True
        for name in read:
            real = self._follow(name)
            if real is not None and not any(matches(pattern, real) for pattern in limit.really):
                return False
        return True


def _is_limited(text: Text, argument: str) -> bool:
    if argument.startswith("/"):
        return text.path == argument or text.path.startswith(f"{argument}/")
    return argument_of(text.path) == argument or text.path.startswith(f"/{argument}/")


def _numbered(arguments: Mapping[str, Any], limited: Set[str]) -> Iterator[str]:
    """Where a number stands for a file: what a descriptor leads to is said by nobody."""
    stack: list[tuple[str, str, Any]] = [("", "", arguments)]
    while stack:
        path, name, value = stack.pop()
        if isinstance(value, dict):
            stack.extend((f"{path}/{escape(key)}", key, inner) for key, inner in value.items())
        elif isinstance(value, list | tuple):
            stack.extend((f"{path}/{at}", name, inner) for at, inner in enumerate(value))
        elif isinstance(value, bool) or not isinstance(value, int | float):
            continue
        elif not limited.isdisjoint((name, path, path.rpartition("/")[0])):
            yield path


def _finding(path: str) -> Finding:
    return Finding(
        guard="paths",
        rule="path-limit",
        category="scope",
        severity=Risk.HIGH,
        outcome=Outcome.BLOCK,
        path=path,
        message="the path leads outside of the folders that this tool may use",
    )


def _blocked(found: Sequence[Finding]) -> Report:
    return Report(
        guard="paths",
        outcome=Outcome.BLOCK,
        verdict=Verdict.VIOLATION,
        reason=Reason.SCOPE_VIOLATION,
        risk=Risk.HIGH,
        findings=tuple(found),
    )
