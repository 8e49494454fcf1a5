"""A scope, compiled: whether everything that a call touches is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aegis.core.globs import Pattern, matches
from aegis.core.mission import KINDS, Kind, Scope
from aegis.guards.scope import commands, hosts, paths, recipients
from aegis.guards.scope.touch import Segments, Touched

# Where a path really leads on this file system, as segments; `None` where that cannot be told.
Resolve = Callable[[Segments], Segments | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledScope:
    """Allowed and forbidden patterns by kind; what is forbidden wins."""

    allowed: Mapping[Kind, tuple[Pattern, ...]]
    forbidden: Mapping[Kind, tuple[Pattern, ...]]


def compile_entry(kind: Kind, entry: str, base: str = "") -> Pattern:
    """The pattern of one `exact:` or `glob:` entry; raises `ValueError` where it names no resource of the kind."""
    form, _, text = entry.partition(":")
    literal = form == "exact"
    segments = _segments(kind, text.strip(), base)
    if segments is None or not segments or not text.strip():
        raise ValueError(f"`{entry}` names none of `{kind}`")
    if literal and kind == "commands":
        if "*" in text:
            raise ValueError(f"`{entry}` holds `*`: words of commands are compared as they stand")
        literal = False
    if not literal and kind == "paths" and ".." in segments:
        raise ValueError(f"`{entry}` leaves its start")
    return Pattern(segments, literal)


def compile_scope(scope: Scope, forbidden: Scope) -> CompiledScope:
    """Both scopes of a declaration; raises `ValueError` as `compile_entry` does."""
    return CompiledScope(
        allowed={kind: tuple(compile_entry(kind, one, scope.base) for one in scope.of(kind)) for kind in KINDS},
        forbidden={kind: tuple(compile_entry(kind, one, scope.base) for one in forbidden.of(kind)) for kind in KINDS},
    )


def outside(scope: CompiledScope, touched: Touched, resolve: Resolve | None = None) -> Iterator[tuple[str, Kind, str]]:
    """Every resource that the scope does not allow, as (pointer, kind, rule)."""
    for kind, rows in touched.resources.items():
        allowed, forbidden = scope.allowed[kind], scope.forbidden[kind]
        for pointer, names in rows:
            for name in names:
                rule = _judge(kind, name, allowed, forbidden)
                if rule is None and kind == "paths" and resolve is not None:
                    real = resolve(name)
                    if real is not None and real != name:
                        rule = _judge(kind, real, (*allowed, *_resolved(allowed, resolve)), forbidden)
                        rule = rule and f"{rule}-by-link"
                if rule is not None:
                    yield pointer, kind, rule
                    break


def _judge(kind: Kind, name: Segments, allowed: tuple[Pattern, ...], forbidden: tuple[Pattern, ...]) -> str | None:
    if forbidden:
        # Names of files differ in case alone on some systems: what is forbidden is forbidden in any case.
        folded = tuple(part.casefold() for part in name) if kind == "paths" else name
        for pattern in forbidden:
            if matches(pattern, name) or (kind == "paths" and matches(_folded(pattern), folded)):
                return f"scope-forbidden-{kind}"
    for pattern in allowed:
        if matches(pattern, name):
            return None
    return f"scope-{kind}"


def _folded(pattern: Pattern) -> Pattern:
    return Pattern(tuple(part.casefold() for part in pattern.segments), pattern.literal)


def _resolved(patterns: tuple[Pattern, ...], resolve: Resolve) -> Iterator[Pattern]:
    """The patterns with what stands before their first `*` followed through links: a scope may be one."""
    for pattern in patterns:
        fixed = pattern.segments
        if not pattern.literal:
            at = next((at for at, part in enumerate(fixed) if "*" in part), len(fixed))
            fixed = fixed[:at]
        real = resolve(fixed)
        if real is not None and real != fixed:
            yield Pattern((*real, *pattern.segments[len(fixed) :]), pattern.literal)


def _segments(kind: Kind, text: str, base: str) -> Segments | None:
    if kind == "paths":
        return paths.pattern_segments(text, base)
    if kind == "hosts":
        return hosts.pattern_labels(text)
    if kind == "tables":
        return tuple(text.lower().split("."))  # `name`, `schema.name` or `catalogue.schema.name`
    if kind == "recipients":
        return recipients.pattern_parts(text)
    return commands.pattern_words(text)
