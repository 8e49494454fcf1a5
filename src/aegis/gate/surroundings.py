"""What the host says of a session beside its task: the folders that its agent works in, and the tools it is offered.

Mounts are looked at by previews and judges on the gateway's own machine, so they may not lead to what the
gateway itself, the system or a person keeps there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from msgspec import structs

from aegis.audit.writer import Unit
from aegis.core.canonical import canonical
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.strict_json import parse
from aegis.errors import InvalidCall

COLLECTION: Final = "surroundings"
MAX_MOUNTS: Final = 16
# Whole trees that belong to the system, and places that only contain other people's.
_SYSTEM: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/etc",
    "/boot",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/var/run",
    "/var/lib",
)
_ROOTS: Final = ("/", "/home", "/root", "/var", "/opt", "/srv", "/mnt", "/tmp")  # noqa: S108 - named to be refused
_SECRETS: Final = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".aegis", ".azure", ".config"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What is known of a session; nothing for one that was not opened."""

    mounts: tuple[str, ...] = ()
    tools: tuple[Any, ...] = ()


def check_mounts(mounts: Sequence[Any], below: Sequence[str], protected: Sequence[Path]) -> tuple[str, ...]:
    """The mounts, absolute and as they really are; raises `InvalidCall` for one that a session may not name."""
    if len(mounts) > MAX_MOUNTS:
        raise InvalidCall(f"a session has at most {MAX_MOUNTS} mounts")
    found: list[str] = []
    for mount in mounts:
        if not isinstance(mount, str) or not PurePosixPath(mount).is_absolute() or "\0" in mount:
            raise InvalidCall("a mount is the absolute path of a folder")
        real = os.path.realpath(mount)
        if not Path(real).is_dir():
            raise InvalidCall("a mount is not a folder on this machine", hint="previews and judges need its files here")
        if not _may(PurePosixPath(real), below, protected):
            raise InvalidCall(
                "this folder may not be a mount", code="forbidden", status=403, hint="see `previews.mounts`"
            )
        if real not in found:
            found.append(real)
    return tuple(found)


def _may(path: PurePosixPath, below: Sequence[str], protected: Sequence[Path]) -> bool:
    if str(path) in _ROOTS or path == PurePosixPath(os.path.expanduser("~")) or _SECRETS & set(path.parts):  # noqa: PTH111
        return False
    if any(path.is_relative_to(one) for one in _SYSTEM):
        return False
    own = [PurePosixPath(os.path.realpath(one)) for one in protected]
    if any(path.is_relative_to(one) or one.is_relative_to(path) for one in own):
        return False
    return any(path.is_relative_to(one) for one in below)


def surrounded(unit: Unit, key: str, mounts: Sequence[str], tools: Sequence[Any] | None) -> Unit:
    """`unit`, which opens a session, with its surroundings kept beside it."""
    if not mounts and not tools:
        return unit
    body = canonical({"mounts": list(mounts), "tools": list(tools or ())})
    document, first = Document(collection=COLLECTION, key=key, version=1, body=body), unit.apply

    def apply(transaction: Transaction) -> Sequence[Draft]:
        drafts = () if first is None else first(transaction)
        transaction.put_document(document)
        return drafts

    return structs.replace(unit, apply=apply)


def find_surroundings(reader: Reader, key: str) -> Surroundings:
    """What the host said when it opened the session."""
    document = reader.document(COLLECTION, key)
    if document is None:
        return Surroundings()
    body = parse(document.body)
    return Surroundings(mounts=tuple(body["mounts"]), tools=tuple(body["tools"]))
