"""Approving with less: which places of the arguments can be left out or made smaller, and what is asked then.

A form names places and carries what a person typed, never a value of the call: a page holds nothing that it
masks, and a mask is never sent back in place of a value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from markupsafe import Markup

from aegis.core.pointer import escape
from aegis.core.strict_json import parse
from aegis.errors import InvalidCall
from aegis.server.cockpit.arguments import Leaf, leaves

MAX_PLACES: Final = 250  # places that one form offers: each is two fields, and forms are bounded
MAX_TYPED_CHARS: Final = 500  # text that can be typed anew in one line
DROP: Final = "drop-"
TYPED: Final = "new-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One value that can be left out: an item, a member, or everything below one.

    `id` stands for the pointer in a form. `inside` counts the values of a container. `kind` is `text` or
    `number` where another value can be typed, else empty; `dropped` and `typed` are what the form said.
    """

    id: str
    pointer: str
    name: str
    depth: int
    html: Markup | None
    inside: int
    kind: str
    dropped: bool
    typed: str


def places(
    arguments: Any, findings: Sequence[Mapping[str, Any]], *, hidden: Sequence[str], form: Mapping[str, str]
) -> list[Place] | None:
    """The places of the arguments in order, with the texts of `hidden` masked; `None` where a form cannot hold them."""
    if not isinstance(arguments, dict):
        return None
    found = list(islice(_walk("", arguments), MAX_PLACES + 1))
    if len(found) > MAX_PLACES:
        return None
    shown = {leaf.pointer: leaf for leaf in leaves(arguments, findings, hidden=hidden)}
    return [_place(pointer, value, shown.get(pointer), form) for pointer, value in found]


def narrowed(arguments: Any, form: Mapping[str, str]) -> dict[str, Any]:
    """The arguments without what the form drops, and with what it types.

    Raises `InvalidCall` where nothing changes, a number is none (422, naming the place), or the form names a
    place that the call does not have (409).
    """
    if not isinstance(arguments, dict):
        raise InvalidCall("the call was erased, so it cannot be narrowed", code="erased", status=409)
    dropped = {name.removeprefix(DROP) for name in form if name.startswith(DROP)}
    typed = {name.removeprefix(TYPED): text for name, text in form.items() if name.startswith(TYPED) and text.strip()}
    known = {_id(pointer): (pointer, value) for pointer, value in islice(_walk("", arguments), MAX_PLACES)}
    if not (dropped | typed.keys()) <= known.keys():
        raise InvalidCall(
            "what was shown is not what is held", code="conflict", hint="look at the call again", status=409
        )
    if not dropped and not typed:
        raise InvalidCall(
            "nothing was left out or made smaller", code="not_narrower", hint="mark a value, or approve the call whole"
        )
    without = {known[one][0] for one in dropped}
    instead = {known[one][0]: _typed(*known[one], text) for one, text in typed.items()}
    less: dict[str, Any] = _less("", arguments, without, instead)
    return less


def _walk(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every member and item, each container before what is in it."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in steps:
        below = f"{pointer}/{escape(str(key))}"
        yield below, item
        yield from _walk(below, item)


def _less(pointer: str, value: Any, without: set[str], instead: Mapping[str, Any]) -> Any:
    if pointer in instead:
        return instead[pointer]
    if isinstance(value, dict):
        inner = ((key, f"{pointer}/{escape(key)}", item) for key, item in value.items())
        return {key: _less(below, item, without, instead) for key, below, item in inner if below not in without}
    if isinstance(value, list):
        items = ((f"{pointer}/{at}", item) for at, item in enumerate(value))
        return [_less(below, item, without, instead) for below, item in items if below not in without]
    return value


def _place(pointer: str, value: Any, leaf: Leaf | None, form: Mapping[str, str]) -> Place:
    own = _id(pointer)
    return Place(
        id=own,
        pointer=pointer,
        name=pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~"),
        depth=min(pointer.count("/") - 1, 4),
        html=None if leaf is None else leaf.html,
        inside=len(value) if isinstance(value, dict | list) else 0,
        kind=_kind(value),
        dropped=DROP + own in form,
        typed=form.get(TYPED + own, ""),
    )


def _kind(value: Any) -> str:
    """What can be typed in place of a value: a text of one line, a number, or nothing."""
    if isinstance(value, str):
        return "text" if len(value) <= MAX_TYPED_CHARS and "\n" not in value and "\r" not in value else ""
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _typed(pointer: str, value: Any, text: str) -> Any:
    kind = _kind(value)
    if kind == "text" and len(text) <= MAX_TYPED_CHARS:
        return text
    if kind == "number":
        try:
            number = parse(text.strip().encode())
        except InvalidCall as error:
            raise InvalidCall(f"what was typed at `{pointer}` is not a number") from error
        if isinstance(number, int | float) and not isinstance(number, bool):
            return number
    raise InvalidCall(f"what was typed at `{pointer}` is not a {kind or 'value that can be typed'}")


def _id(pointer: str) -> str:
    """A name of a form's field for a place, whatever its keys hold."""
    return hashlib.sha256(pointer.encode()).hexdigest()[:20]
