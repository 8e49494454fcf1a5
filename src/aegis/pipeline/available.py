"""What this version can enforce; naming anything else is an error, never silently ignored."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aegis.keys.reference import is_reference

CALL_GUARDS: Final = ("rate", "registry", "schema", "content", "cedar")
# Asked about every call of a mission, whatever the lists say; they may be listed.
MISSION_GUARDS: Final = ("mission", "budget", "flow")
MISSION_RESULT_GUARDS: Final = ("postconditions",)
# Asked last, where `judges` has entries, whatever the lists say; it may be listed.
SLOW_GUARDS: Final = ("judge",)
ALWAYS: Final = ("protected", "evidence")  # asked about every call, whatever `pipeline.call` lists
RESULT_GUARDS: Final = ("content",)
NOTIFIERS: Final = ("webhook", "slack")
STORES: Final = ("sqlite:", "postgresql:", "postgres:", "memory:")

# Named in the documentation, and refused with a clear word until they exist.
PLANNED_GUARDS: Final = frozenset({"dataflow", "anomaly", "stream"})


def check_guard(name: str, known: tuple[str, ...]) -> str:
    """`name`, where this version has that guard at this place; raises `ValueError` otherwise."""
    if name in known:
        return name
    if name in PLANNED_GUARDS:
        raise ValueError(f"the guard `{name}` is not available in this version")
    raise ValueError(f"there is no guard `{name}` here; guards are {', '.join(f'`{one}`' for one in known)}")


def check_store(url: str) -> str:
    """`url`, where this version has a store for it; raises `ValueError` otherwise.

    A password never stands in the configuration, which is shown to administrators and kept beside receipts.
    """
    if url.startswith(STORES):
        if urlsplit(url).password is not None:
            raise ValueError("a password does not belong here: give the whole URL as `${env:NAME}` or `file:PATH`")
        return url
    if is_reference(url):
        return url
    raise ValueError("a store is `sqlite:///FILE`, `postgresql://...`, `${env:NAME}`, `file:PATH` or `memory:`")


def check_notifier(kind: str) -> str:
    """`kind`, where this version can send that way; raises `ValueError` otherwise."""
    if kind not in NOTIFIERS:
        raise ValueError(f"the notifier `{kind}` is not available in this version")
    return kind
