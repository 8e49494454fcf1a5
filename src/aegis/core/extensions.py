"""What installed packages bring: adapters, guards, judges, notifiers and stores that register by entry point.

A package is loaded where the configuration names what it brings, and only then. What it brings says by
`aegis_protocol` which version of the protocols in this package it was written for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

from aegis.errors import ExtensionError

PROTOCOL: Final = 1  # of all kinds; raised where a member changes its meaning
KINDS: Final[Mapping[str, str]] = {
    "adapter": "aegis.adapters", "guard": "aegis.guards", "judge": "aegis.judges", "notifier": "aegis.notifiers",
    "store": "aegis.stores",
}  # fmt: skip

Kind = Literal["adapter", "guard", "judge", "notifier", "store"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """Something that a package brings: `make` is what its entry point names."""

    kind: Kind
    name: str
    package: str
    version: str
    make: Any

    def made(self, *given: Any, needs: tuple[str, ...] = (), **named: Any) -> Any:
        """Make one; raises `ExtensionError` with the package's name, whatever the package raised.

        `needs` are methods of which it must have one at least.
        """
        try:
            one = self.make(*given, **named)
        except Exception as error:
            # A package says with `ValueError` what is wrong with its options; other texts may hold anything, and those
            # of a store its address, in which a password can stand.
            said = isinstance(error, ValueError) and self.kind != "store"
            why = str(error) if said else type(error).__name__
            raise self._error(f"cannot be made: {why}") from error
        if needs and not any(callable(getattr(one, method, None)) for method in needs):
            raise self._error(f"has no method {' or '.join(f'`{method}`' for method in needs)}")
        return one

    def _error(self, what: str) -> ExtensionError:
        return ExtensionError(f"{_called(self.kind, self.name, self.package)} {what}")


def is_brought(kind: Kind, name: str) -> bool:
    """Tell whether an installed package brings something of this kind and name, without loading it."""
    return bool(_points(kind, name))


def names_brought(kind: Kind) -> tuple[str, ...]:
    """Give the names of everything of this kind that installed packages bring, in order, without loading it."""
    return tuple(sorted({point.name for point in entry_points(group=KINDS[kind])}))


def load_extension(kind: Kind, name: str) -> Extension:
    """Load what an installed package brings; raises `ExtensionError` with the package's name where that fails."""
    points = _points(kind, name)
    if not points:
        known = names_brought(kind)
        brought = f"; those that are there: {', '.join(f'`{one}`' for one in known)}" if known else ""
        raise ExtensionError(f"no installed package brings the {kind} `{name}`{brought}")
    packages = sorted({_package(point) for point in points})
    if len(packages) > 1:
        raise ExtensionError(f"several packages bring the {kind} `{name}`: {', '.join(f'`{one}`' for one in packages)}")
    point, package = points[0], packages[0]
    try:
        make = point.load()
    except Exception as error:
        raise ExtensionError(
            f"{_called(kind, name, package)} cannot be loaded: {type(error).__name__} in `{point.value}`"
        ) from error
    protocol = getattr(make, "aegis_protocol", None)
    if protocol != PROTOCOL:
        says = "does not say which protocol it speaks" if protocol is None else f"speaks protocol {protocol!r}"
        raise ExtensionError(f"{_called(kind, name, package)} {says}: this version takes `aegis_protocol = {PROTOCOL}`")
    version = point.dist.version if point.dist is not None else ""
    return Extension(kind=kind, name=name, package=package, version=version, make=make)


def _points(kind: Kind, name: str) -> list[EntryPoint]:
    return list(entry_points(group=KINDS[kind], name=name))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


def _called(kind: Kind, name: str, package: str) -> str:
    return f"the {kind} `{name}` of the package `{package}`"
