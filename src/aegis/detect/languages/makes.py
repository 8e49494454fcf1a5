"""What calls of libraries make of the values of their arguments, by what `data/calls` says of them."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Final

from aegis.detect.languages.calls import Makes
from aegis.detect.languages.computed import COMPUTED, compiled, replaced
from aegis.detect.languages.followed import (
    ANY_NAME,
    HOLE,
    MAX_CHARS,
    MAX_ITEMS,
    MAX_TEXTS,
    PATTERN,
    UNKNOWN,
    FollowedValue,
    chosen_of,
    filled,
    join_paths,
    object_of,
    sliced,
    texts_of,
)
from aegis.detect.languages.numeric import is_sign, number_of

_ENVIRONMENT: Final[Mapping[str, str]] = {
    "home": "~", "userprofile": "~", "homepath": "~", "appdata": "~/AppData/Roaming", "localappdata": "~/AppData/Local",
    "windir": "C:/Windows", "systemroot": "C:/Windows", "systemdrive": "C:", "programdata": "C:/ProgramData",
    "programfiles": "C:/Program Files", "tmpdir": "/tmp", "temp": "/tmp", "tmp": "/tmp", "xdg_config_home": "~/.config",  # noqa: S108 - places that are looked for
    "user.home": "~", "user.dir": ".", "java.io.tmpdir": "/tmp", "java.home": "/usr/lib/jvm",  # noqa: S108 - as above
}  # fmt: skip
_OF_ARGUMENT: Final[frozenset[Makes]] = frozenset(
    {"letters", "to-base64", "to-hex"}
)  # of what makes them nothing is known
_NUMBERS_BY_NAME: Final = frozenset({"new_prefix", "prefixlen_diff", "base", "exp", "count", "n"})
_MOST_ABOVE: Final = 12  # folders that a path lies in, one in another
_OF_FIRST_KNOWN: Final[frozenset[Makes]] = frozenset({"same", "inside", "base64", "base32", "hex", "rot13"})


def variable(names: Sequence[str], default: Sequence[FollowedValue]) -> FollowedValue:
    """The folder that a variable of the environment stands for, else what the program takes in its place."""
    found = [_ENVIRONMENT[name.lower()] for name in names if name.lower() in _ENVIRONMENT]
    return FollowedValue(tuple(found)) if found else default[0] if default else UNKNOWN


def make(
    makes: Makes,
    every: Sequence[FollowedValue],
    *,
    plainly: bool = False,
    method: bool = False,
    named: FollowedValue | None = None,
) -> FollowedValue:
    """The value of a call; `every` are its arguments, what a method is called on before them, `named` those with names.

    `plainly` says that paths are put behind each other even where one of them is absolute.
    """
    first = every[0] if every else UNKNOWN
    if not every and makes in ("format", "key", "or"):
        return UNKNOWN
    computed = COMPUTED.get(makes)
    if computed is not None:
        given = () if named is None else (value for key, value in named.members if key in _NUMBERS_BY_NAME)
        given_alone = makes in _OF_ARGUMENT and method and len(every) > 1 and not first.known and not first.items
        return computed([*(every[1:] if given_alone else every), *given])
    if makes == "join" and method and first.items:  # of Ruby, whose lists and paths are joined by one word
        return _concatenated(every if len(every) > 1 else (first, FollowedValue(("",))), method=method)
    lists = [one.items for one in every if one.items] if makes in ("join", "together") and len(every) > 1 else []
    if len(lists) == 1:  # of R: for each item of a list, of which only the texts count, so that nothing multiplies
        each = ([FollowedValue(item.texts or (HOLE,)) if one.items else one for one in every] for item in lists[0])
        return FollowedValue((), tuple(make(makes, parts, plainly=plainly) for parts in islice(each, MAX_ITEMS)))
    if makes == "join":
        parts = list(first.items) if len(every) == 1 and first.items else every
        return (joined_plainly if plainly else join_paths)(parts) if parts else UNKNOWN
    if makes == "key":  # of a registry: the hive or a key of it, and a key below that
        return joined_plainly(every[:2])
    if makes in _OF_FIRST_KNOWN and method and not first.known and not first.items and len(every) > 1:
        first = every[1]  # of what a decoder is called on nothing is known
    if makes == "same":
        return first
    if makes == "list":
        return FollowedValue((), tuple(every[:MAX_ITEMS]), () if named is None else named.members)
    if makes == "or":
        return first if first.known else every[-1]
    if makes == "added" and first.members:
        return object_of(member for one in every for member in one.members)
    if makes == "added":
        more = [item for one in every[1:] for item in (one.items or (one,))]
        return FollowedValue((), (*first.items, *more)[:MAX_ITEMS])
    if makes == "together":
        pieces = ((value.texts or (HOLE,))[0] for one in every for value in (one.items or (one,)))
        return FollowedValue(("".join(pieces)[:MAX_CHARS],))
    if makes in ("pairs", "table") and (makes == "table" or not first.items):
        first = FollowedValue((), tuple(every[:MAX_ITEMS]))
    if makes == "values":
        return FollowedValue((), tuple(value for _, value in first.members) or first.items)
    if makes in ("pairs", "table"):
        held = [pair.items for pair in first.items if len(pair.items) > 1 and pair.items[0].texts]
        return FollowedValue((HOLE,), (), tuple((pair[0].texts[0], pair[1]) for pair in held))
    if makes == "text":
        return first if every else FollowedValue(("",))
    if makes == "listed":  # names alone: which folder they lie in is not said by them
        return FollowedValue((), (FollowedValue(ANY_NAME),))
    if makes == "inside":
        paths = (text if "*" in text else f"{text.rstrip('/')}/*" for text in first.every)
        return FollowedValue((), tuple(FollowedValue((path,)) for path in paths))
    if makes == "lower":
        return FollowedValue(tuple(text.lower() for text in first.texts))
    if makes == "parent":
        steps = (number_of(every[1]) or 1) if len(every) > 1 else 1  # of PHP
        above = first.texts
        for _ in range(min(steps, _MOST_ABOVE)):
            above = tuple(map(_parent, above))
        return FollowedValue(above)
    if makes == "parents":
        return FollowedValue(
            (), tuple(FollowedValue((path,)) for path in _ancestors(first.known[0])) if first.known else ()
        )
    if makes == "format":
        listed = every[1].items if len(every) == 2 and every[1].items else every[1:]
        return filled(first, listed or [UNKNOWN], named if named is not None and named.members else every[-1])
    if makes in _LISTS_MADE:
        return FollowedValue((), tuple(islice(_listed(makes, every), MAX_ITEMS)))
    if makes == "members":
        told = [pair.items for pair in first.items if len(pair.items) > 1 and pair.items[0].texts]
        members = [member for one in every for member in one.members] + [(one[0].texts[0], one[1]) for one in told]
        return object_of((*members, *(() if named is None else named.members)))
    if makes == "alternating":
        pairs = zip(every[::2], every[1::2], strict=False)
        return FollowedValue((HOLE,), (), tuple((key.texts[0], value) for key, value in pairs if key.texts))
    if makes == "json":
        return _read_json(first)
    if makes.startswith("replace") and any(PATTERN in text for one in every for text in one.texts[:1]):
        return replaced(every, 1, once=makes == "replace-once")
    if makes.startswith("replace") and len(every) == 3:
        if not method and makes != "replace-in":  # what is looked for comes first
            every = (every[2], every[0], every[1])
            first = every[0]
        new = every[2].texts[:1]
        often = 1 if makes == "replace-once" else -1
        texts = [one.replace(old, other, often) for one in first.texts for old in every[1].known for other in new]
        return FollowedValue(tuple(texts[:MAX_TEXTS]) or (HOLE,))
    glue = () if named is None else (*named.member("collapse").known, *named.member("sep").known)
    if makes == "concat" and glue:  # of R
        texts = [(item.texts or (HOLE,))[0] for one in every for item in (one.items or (one,))]
        return FollowedValue((glue[0].join(texts),))
    if makes == "concat":
        return _concatenated(every, method=method)
    if makes == "split-by" and len(every) > 1:  # the sign comes first; of Perl as a pattern
        first, every = every[1], (every[1], every[0])
        makes = "split"
    if makes == "split":
        sign = every[1].texts[0] if len(every) > 1 and every[1].texts else None
        words = (word for text in first.known[:1] for word in _words(text, sign))
        return FollowedValue((), tuple(FollowedValue((word,)) for word in islice(words, MAX_ITEMS)))
    if makes == "codes":
        return decoded(
            FollowedValue((), tuple(every))
            if len(every) > 1 and not first.items
            else first
            if first.items
            else FollowedValue(first.texts, (first,)),
            "codes",
        )
    if makes == "codec" and len(every) > 1:
        makes = _CODECS.get("".join(char for char in (*every[1].known, "")[0].lower() if char.isalnum()), "same")
    elif makes == "buffer":
        how = every[1].known[:1] if len(every) > 1 else ()
        makes = "codes" if first.items else _CODECS.get(how[0], "same") if how else "same"
        return decoded(first, makes) if makes != "same" else first
    if makes == "reversed" and first.items:
        return FollowedValue((), first.items[::-1])
    if makes in ("base64", "base32", "hex", "rot13", "reversed"):
        return decoded(first, makes)
    if makes == "first" and len(every) > 1 and number_of(every[1]) is not None:
        return COMPUTED["taken"](every)
    if makes == "first":
        return first.items[0] if first.items else first
    if makes == "part":
        return sliced(first, ":".join([(*value.known, "")[0] for value in every[1:3]] + [""] * (len(every) == 2)))
    if makes == "member" and len(every) == 1:  # of an optional value
        return first
    if makes == "member" and len(every) > 1 and every[1].known:
        found = COMPUTED["at"](every[:2]) if first.items else first.member(every[1].known[0])
        return found if found.known or found.items or len(every) < 3 else every[2]
    return first if makes == "codec" else UNKNOWN


def _words(text: str, sign: str | None) -> Sequence[str]:
    """The parts of a text between signs; one that is not in it may be a pattern."""
    found = compiled(sign, [text]) if sign and sign not in text else None
    if found is not None:
        return [word or "" for word in found.split(text)]
    return text if sign == "" else text.split(sign)


_LISTS_MADE: Final[frozenset[Makes]] = frozenset({"numbered", "zipped", "entries", "keys", "crossed"})


def _listed(makes: Makes, every: Sequence[FollowedValue]) -> Sequence[FollowedValue]:
    """The list that a call makes of others: items with their places, items side by side, members with their names."""
    first = every[0] if every else UNKNOWN
    if makes == "numbered":
        return [FollowedValue((), (FollowedValue((str(at),)), item)) for at, item in enumerate(first.items)]
    if makes == "keys":
        return [FollowedValue((key,)) for key, _ in first.members]
    if makes == "entries":
        return [FollowedValue((), (FollowedValue((key,)), value)) for key, value in first.members]
    if makes == "zipped":
        return [FollowedValue((), items) for items in zip(*[one.items for one in every], strict=False)]
    return [FollowedValue((), items) for items in islice(product(*[one.items[:MAX_TEXTS] for one in every]), MAX_ITEMS)]


def _read_json(value: FollowedValue) -> FollowedValue:
    """What a constant text of JSON holds."""
    try:
        return _held(json.loads(value.known[0]), 0) if len(value.known) == 1 else value
    except (ValueError, RecursionError):
        return value


def _held(value: object, depth: int) -> FollowedValue:
    if isinstance(value, dict) and depth < _DEEPEST:
        members = islice(value.items(), MAX_ITEMS)
        return FollowedValue((HOLE,), (), tuple((str(key), _held(one, depth + 1)) for key, one in members))
    if isinstance(value, list) and depth < _DEEPEST:
        return FollowedValue((), tuple(_held(one, depth + 1) for one in value[:MAX_ITEMS]))
    return FollowedValue((str(value)[:MAX_CHARS],))


_DEEPEST: Final = 6  # objects in each other that are read
_CODECS: Final[Mapping[str, Makes]] = {
    "rot13": "rot13", "rot_13": "rot13", "hex": "hex", "base64": "base64", "base64codec": "base64", "hexcodec": "hex",
    "utf8": "same",
}  # fmt: skip


def _ancestors(path: str) -> list[str]:
    """The folders that a path lies in, the nearest first."""
    found: list[str] = []
    while path.strip("./") and len(found) < _MOST_ABOVE:
        path = _parent(path)
        found.append(path)
    return found


def _parent(text: str) -> str:
    if text.rstrip("/") == "~":
        return "/home"
    return text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")


def _concatenated(every: Sequence[FollowedValue], *, method: bool) -> FollowedValue:
    """What is put together of a list: `",".join(list)`, `list.join(",")`, `implode(",", list)`."""
    listed = next((value for value in every if value.items), None)
    if listed is None:
        texts = [(value.texts or (HOLE,))[0] for value in every]
        # Texts that are added to one, or what joins them before them: `join("/", "", "etc")`.
        return FollowedValue(("".join(texts) if method else texts[0].join(texts[1:]),)) if texts else UNKNOWN
    glue = next(
        (value.texts[0] for value in every if value is not listed and value.texts and value.texts[0] != HOLE), ""
    )
    return FollowedValue((glue.join((item.texts or (HOLE,))[0] for item in listed.items),))


def joined_plainly(parts: Sequence[FollowedValue]) -> FollowedValue:
    """The paths of parts that are put behind each other, whatever they begin with."""
    found = []
    for chosen in chosen_of([part.texts or (HOLE,) for part in parts]):
        rest = "/".join(part.strip("/") for part in chosen[1:])
        found.append(f"{chosen[0].rstrip('/')}/{rest}"[:MAX_CHARS] if rest else chosen[0])
    return texts_of(found)


def decoded(value: FollowedValue, how: str) -> FollowedValue:
    """What constant text says that was encoded: `base64`, `hex`, `reversed`, `codes`."""
    if how == "codes":
        codes = [number_of(item) for item in value.items] or [number_of(value)]
        told = [code for code in codes if code is not None and is_sign(code)]
        return FollowedValue(("".join(map(chr, told)),)) if told and len(told) == len(codes) else UNKNOWN
    found = []
    for text in value.known:
        try:
            if how == "base64":
                found.append(base64.b64decode(text, validate=False).decode("utf-8", "replace"))
            elif how == "base32":
                found.append(base64.b32decode(text).decode("utf-8", "replace"))
            elif how == "rot13":
                found.append(codecs.decode(text, "rot13"))
            elif how == "hex":
                found.append(bytes.fromhex(text).decode("utf-8", "replace"))
            elif how == "reversed":
                found.append(text[::-1])
        except (binascii.Error, ValueError):
            return UNKNOWN
    return texts_of(found) if found else UNKNOWN
