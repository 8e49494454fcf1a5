"""What standard functions of texts, lists, numbers and paths make of known values: pure, and bounded."""

from __future__ import annotations

import base64
import posixpath
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from aegis.core.patterns import Lazy, foreign
from aegis.detect.languages.followed import (
    HOLE,
    MAX_CHARS,
    MAX_ITEMS,
    MAX_TEXTS,
    PATTERN,
    UNKNOWN,
    FollowedValue,
    join_paths,
    object_of,
    repeated,
    sliced,
)
from aegis.detect.languages.numeric import (
    Values,
    address,
    counted,
    each_of,
    integer,
    is_sign,
    length,
    linked,
    network,
    number_of,
    number_text,
    octal_read,
    operated,
    packed,
    range_of,
    supernet,
    total,
    truth,
    truth_of,
)

_LONGEST_PATTERN: Final = 120
_LONGEST_PATTERNED: Final = 400  # characters of a text
_OFTEN: Final = Lazy(r"\{\d*,?\d{2}")
_GROUP: Final = Lazy(r"[$\\]\{?(\d)\}?")  # what a replacement names of what was found

# Texts


def _texts(function: Callable[[str], str]) -> Callable[[Values], FollowedValue]:
    """A function of each text that a value may be, and of each of a list."""

    def of_value(value: FollowedValue) -> FollowedValue:
        if value.items:
            return FollowedValue((), tuple(map(of_value, value.items)))
        return FollowedValue(tuple(text if text == HOLE else function(text)[:MAX_CHARS] for text in value.texts))

    return lambda every: of_value(every[0]) if every else UNKNOWN


def _with_text(function: Callable[[str, str | None], str]) -> Callable[[Values], FollowedValue]:
    """A function of a text and of what is given with it."""
    return lambda every: _texts(lambda text: function(text, every[1].texts[0] if _is_text(every, 1) else None))(every)


def _is_text(every: Values, place: int) -> bool:
    return len(every) > place and bool(every[place].known) and HOLE not in every[place].known[0]


def _integer_text(every: Values) -> FollowedValue:
    """The text whose signs are the bytes of a number."""
    number = number_of(every[0]) if every else None
    if number is None or number < 0:
        return UNKNOWN
    return FollowedValue((number.to_bytes((number.bit_length() + 7) // 8, "big").decode("utf-8", "replace"),))


def _swapped(every: Values) -> FollowedValue:
    """A text with each sign of one row put in the place of the same of another, or each member of an object."""
    if len(every) == 2 and every[1].members:
        texts = every[0].texts
        for key, value in every[1].members:
            texts = tuple(text.replace(key, (value.texts or (HOLE,))[0])[:MAX_CHARS] if key else text for text in texts)
        return FollowedValue(texts)
    if len(every) == 2 and every[1].items:  # a table that was made of both
        every = [every[0], *every[1].items]
    if len(every) < 3 or not (every[1].known and every[2].texts):
        return every[0] if every else UNKNOWN
    old, new = _row(every[1].known[0]), _row(every[2].texts[0])
    if old[:1] == "^":
        return UNKNOWN
    table: dict[int, str | None] = {
        ord(sign): (new[min(at, len(new) - 1)] if new else None) for at, sign in enumerate(old)
    }
    return _texts(lambda text: text.translate(table))(every)


def _row(text: str) -> str:
    """A row of signs with its ranges written out: `a-c` as `abc`."""
    found, at = "", 0
    while at < len(text[:MAX_ITEMS]):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text) and text[at] < text[at + 2]:
            found += "".join(map(chr, islice(range(ord(text[at]), ord(text[at + 2]) + 1), MAX_ITEMS)))
            at += 3
        else:
            found, at = found + text[at], at + 1
    return found


def _padded(every: Values, pad: Callable[[str, int, str], str], fill: str = " ") -> FollowedValue:
    width = number_of(every[1]) if len(every) > 1 else None
    sign = every[2].known[0][0] if _is_text(every, 2) else fill
    return UNKNOWN if width is None else _texts(lambda text: pad(text, min(width, MAX_CHARS), sign))(every)


def signs_of(every: Values) -> FollowedValue:
    """The signs of a text; of a list the list."""
    first = every[0] if every else UNKNOWN
    times = number_of(first.member("length"))  # of JavaScript, whose lists are made of that
    if times is not None:
        return FollowedValue((), (UNKNOWN,) * min(max(times, 0), MAX_ITEMS))
    signs = first.known[0] if len(first.known) == 1 and not first.items and not first.members else ""
    return FollowedValue((), tuple(FollowedValue((char,)) for char in signs[:MAX_ITEMS])) if signs else first


def _bytes(every: Values) -> FollowedValue:
    first = signs_of(every)
    return FollowedValue((), tuple(counted(ord(item.texts[0])) for item in first.items if _is_sign(item)))


def _letters(every: Values) -> FollowedValue:
    """The text of the signs or of the codes in a list; a text as it is."""
    first = every[0] if every else FollowedValue(("",))
    items = first.items or ((first,) if first.number else ())
    codes = [number_of(item) if item.number else ord(item.texts[0]) if _is_sign(item) else None for item in items]
    told = [code for code in codes if code is not None and is_sign(code)]
    return FollowedValue(("".join(map(chr, told)),)) if items and len(told) == len(items) else first


def _is_sign(value: FollowedValue) -> bool:
    return len(value.texts) == 1 and len(value.texts[0]) == 1 and value.texts[0] != HOLE


def _code(every: Values) -> FollowedValue:
    at = (number_of(every[1]) or 0) if len(every) > 1 else 0
    text = every[0].known[0] if every and every[0].known else ""
    return counted(ord(text[at])) if 0 <= at < len(text) and text[at] != HOLE else UNKNOWN


# Lists, and texts as lists of signs


def _at(every: Values, *, base: int = 0) -> FollowedValue:
    """What stands at a place of a list or of a text, counted from the end where it is negative."""
    if len(every) < 2:
        return every[0].items[0] if every and every[0].items else UNKNOWN
    place = number_of(every[1])
    whole = every[0]
    if whole.members and every[1].known and (place is None or not whole.items):
        found = whole.member(every[1].known[0])
        return _at([found, *every[2:]]) if len(every) > 2 and (found.items or found.members) else found
    if place is None:
        return UNKNOWN
    place -= base if place > 0 else 0
    if (net := network(whole)) is not None:
        return FollowedValue((str(net[place]),)) if -net.num_addresses <= place < net.num_addresses else UNKNOWN
    if whole.items:
        return whole.items[place] if -len(whole.items) <= place < len(whole.items) else UNKNOWN
    held = [text[place] for text in whole.known if -len(text) <= place < len(text)]
    return FollowedValue(tuple(held)) if held else UNKNOWN


def _popped(every: Values) -> FollowedValue:
    """The last of a list, or what stands at the place or under the name that is given."""
    if len(every) > 1 and every[0].members:
        return _or_else([_at(every[:2]), *every[2:3]])
    first = every[0] if every else UNKNOWN
    return _at(every[:2]) if len(every) > 1 else first.items[-1] if first.items else first


def _or_else(every: Values) -> FollowedValue:
    found = every[0]
    return every[1] if len(every) > 1 and not (found.known or found.items or found.members) else found


def _part(every: Values, *, base: int = 0, counts: bool = False) -> FollowedValue:
    """A part by where it begins and ends, or by how much of it there is."""
    first, *told = every[:3] or (UNKNOWN,)
    numbers = [number_of(one) for one in told]
    if not told or None in numbers:
        return first if not told else UNKNOWN
    begins = (numbers[0] or 0) - base
    ends = numbers[1] if len(numbers) > 1 else None
    if counts and ends is not None and ends >= 0:
        ends = begins + ends if begins >= 0 or begins + ends < 0 else None
    return sliced(first, f"{begins}:{'' if ends is None else ends}")


def _cut(every: Values, way: str) -> FollowedValue:
    """So many of a list or a text from its beginning or its end, or what is left without them."""
    number = number_of(every[1]) if len(every) > 1 else 1
    if not every or number is None or not 0 <= number < _MOST_CUT:
        return UNKNOWN
    if way == ":-{}" and not number:
        return every[0]
    return sliced(every[0], "0:0" if way == "-{}:" and not number else way.format(number))


_MOST_CUT: Final = 10_000  # what a place has digits for


def _unique(every: Values) -> FollowedValue:
    return FollowedValue((), tuple(dict.fromkeys(every[0].items))) if every and every[0].items else UNKNOWN


def _flat(every: Values) -> FollowedValue:
    inner = [one for item in (every[0].items if every else ()) for one in (item.items or (item,))]
    return FollowedValue((), tuple(inner[:MAX_ITEMS])) if inner else UNKNOWN


def _compact(every: Values) -> FollowedValue:
    first = every[0] if every else UNKNOWN
    kept = tuple(item for item in first.items if item.texts not in (("",), ("null",), ("nil",), ("none",)))
    return FollowedValue(first.texts, kept, first.members)


def _gathered(every: Values) -> FollowedValue:
    """What the items of a list are gathered to: a text of signs, a path from its root, else the list."""
    items = every[0].items if every else ()
    if len(items) > 1 and all(map(_is_sign, items)):
        return _letters(every)
    if len(items) > 1 and items[0].texts == ("/",):
        return FollowedValue(("/" + "/".join((item.texts or (HOLE,))[0] for item in items[1:]),))
    return every[0] if every else UNKNOWN


def _same_for_all(every: Values) -> FollowedValue:
    """An object whose members are all alike."""
    told = every[1] if len(every) > 1 else UNKNOWN
    names = (item.texts[0] for item in signs_of(every[:1]).items if item.texts)
    return FollowedValue((HOLE,), (), tuple((name, told) for name in names))


def _filled_list(every: Values) -> FollowedValue:
    """A list that holds one value several times: what it is filled with comes last, how often before it."""
    times = number_of(every[-2]) if len(every) > 1 else None
    return UNKNOWN if times is None else FollowedValue((), (every[-1],) * min(max(times, 0), MAX_ITEMS))


def _times(every: Values) -> FollowedValue:
    number = number_of(every[1]) if len(every) > 1 else None
    return repeated(every[0], str(max(number, 0))) if number is not None else UNKNOWN


# Patterns, and what a text is cut at


def _patterned(every: Values, place: int) -> tuple[Any, list[FollowedValue]]:
    """The pattern among values, which begins with its sign or stands at a place, and the texts beside it."""
    at = next((at for at, one in enumerate(every) if one.texts[:1] and one.texts[0][:1] == PATTERN), place)
    others = [*every[:at], *every[at + 1 :]]
    texts = [text for one in others for text in one.texts]
    return compiled(every[at].texts[0], texts) if _is_text(every, at) else None, others


def compiled(pattern: str, texts: Sequence[str]) -> Any:
    """A pattern that a program applies to texts; `None` for one that is none, or costs more than a glance."""
    is_dear = (
        not pattern.isascii()
        or len(pattern) > _LONGEST_PATTERN
        or pattern.count("{") > 1
        or _OFTEN.search(pattern) is not None
    )
    if is_dear or any(len(text) > _LONGEST_PATTERNED or not text.isascii() for text in texts):
        return None
    return foreign(pattern.lstrip(PATTERN))


def replaced(every: Values, place: int, *, behind: bool = False, once: bool = False) -> FollowedValue:
    """A text with what a pattern finds in it replaced; `behind` says that the text stands behind what is put in."""
    found, others = _patterned(every, place)
    if found is None or len(others) < 2 or not others[1].texts:
        return UNKNOWN
    text, new = others[1::-1] if behind else others[:2]
    once = once or any(one.texts[:1] and one.texts[0][:2] == 2 * PATTERN for one in every)

    def put(match: Any) -> str:
        groups = ("", *match.groups())
        return str(_GROUP.sub(lambda one: (groups[int(one.group(1)) :] or ("",))[0] or "", new.texts[0]))

    return _texts(lambda one: str(found.sub(put, one, int(once))))([text])


def matched(every: Values, place: int = 0, *, front: bool = False) -> FollowedValue:
    """What a pattern finds in a text, with its groups behind it; as a text the first of these."""
    found, others = _patterned(every, place)
    search = None if found is None else found.match if front else found.search
    hit = None if search is None or not others or not others[0].known else search(others[0].known[0])
    if hit is None:
        return UNKNOWN
    groups = tuple(FollowedValue((one or "",)) for one in (hit.group(), *hit.groups()))
    return FollowedValue(groups[:2][-1].texts, groups[:MAX_ITEMS])


def written_pattern(written: str, *, once: bool = False) -> FollowedValue:
    """A pattern that is written out between two signs, with flags behind it; `once` where these do not say more."""
    body, _, flags = written[1:].rpartition({"(": ")", "{": "}", "[": "]"}.get(written[:1], written[:1]))
    return FollowedValue((f"{PATTERN * (1 + (once and 'g' not in flags))}{'(?i)' if 'i' in flags else ''}{body}",))


def _delimited(every: Values) -> Values:
    return [written_pattern(every[0].known[0]), *every[1:]] if every and every[0].known else every


def _of_lua(every: Values) -> Values:
    """A text and a pattern of Lua, in which another sign quotes."""
    plain = _texts(lambda text: text.replace("%a", "[A-Za-z]").replace("%", "\\"))
    return [*every[:1], plain(every[1:2]), *every[2:]]


def _of_two(function: Callable[[str, str], FollowedValue]) -> Callable[[Values], FollowedValue]:
    """A function of two texts that are surely known."""

    def made(every: Values) -> FollowedValue:
        sure = [len(one.texts) == 1 and HOLE not in one.texts[0] and not one.members for one in every[:2]]
        return function(every[0].texts[0], every[1].texts[0]) if sure == [True, True] and every[1].known else UNKNOWN

    return made


def _cut_at(parts: tuple[str, ...]) -> FollowedValue:
    items = tuple(FollowedValue((one,)) for one in parts)
    return FollowedValue((), items, tuple((f"={at}", item) for at, item in enumerate(items)))


def _holds(every: Values) -> FollowedValue:
    """Whether a text has another in it, or a list has it as an item."""
    listed = [item.texts for item in every[0].items] if every else []
    if not listed or len(every) < 2:
        return _of_two(lambda text, other: truth(other in text))(every)
    return truth(every[1].texts in listed) if all(len(one) == 1 for one in [*listed, every[1].texts]) else UNKNOWN


def _parsed_path(every: Values) -> FollowedValue:
    """A path by its parts, as Node and PHP name them."""
    text = every[0].known[0] if every and every[0].known else ""
    folder, base = posixpath.split(text.rstrip("/"))
    named = {"root": text[: text.startswith("/")], "dir": folder, "base": base, "name": _stem(base)}
    scheme, _, rest = text.rpartition("://")
    named |= {"dirname": folder, "basename": base, "filename": _stem(base)}
    named |= {"scheme": scheme, "host": rest.partition("/")[0], "path": _url_path(text)} if scheme else {}
    return object_of((name, FollowedValue((part,))) for name, part in named.items()) if text else UNKNOWN


def _url_path(text: str) -> str:
    """The path of a URL; every other text as it is."""
    return f"/{text.partition('://')[2].partition('/')[2]}" if "://" in text else text


def _split_last(every: Values) -> FollowedValue:
    most = (number_of(every[2]) if len(every) > 2 else None) or MAX_ITEMS
    return _of_two(lambda text, sign: _cut_at(tuple(text.rsplit(sign, most))))(every)


def _common(every: Values, of: Callable[[list[str]], str]) -> FollowedValue:
    """What some texts begin with; nothing where one of them is not known."""
    texts = [item.texts[0] if len(item.texts) == 1 else HOLE for item in each_of(every)]
    try:
        return UNKNOWN if not texts or HOLE in "".join(texts) else FollowedValue((of(texts),))
    except ValueError:
        return UNKNOWN


# Paths


def _stem(text: str) -> str:
    return posixpath.splitext(_base(text))[0]


def _base(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2]


def _named_base(every: Values) -> FollowedValue:
    """The last part of a path, without the ending that is given."""
    return _with_text(lambda text, ends: _base(text).removesuffix(ends or ""))(every)


def _suffixed(every: Values) -> FollowedValue:
    ends = every[1].texts if len(every) > 1 else ()
    texts = [
        f"{posixpath.splitext(text)[0]}{end}"
        for one in every[:1]
        for text in one.texts
        for end in ends
        if HOLE not in end
    ]
    return FollowedValue(tuple(texts[:MAX_TEXTS])) if texts else UNKNOWN


def _beside(every: Values) -> FollowedValue:
    names = every[1].texts if len(every) > 1 else ()
    texts = [f"{text.rpartition('/')[0]}/{name}".lstrip() for one in every[:1] for text in one.known for name in names]
    return FollowedValue(tuple(texts[:MAX_TEXTS])) if texts else UNKNOWN


def normal(text: str) -> str:
    """A path without what goes back in it: `~/.cache/pip/../..` as `~`; what leads out of the home stays above it."""
    if (".." not in text and "//" not in text and "/./" not in text) or HOLE in text or "://" in text:
        return text
    if text.startswith("~/"):
        plain = posixpath.normpath(f"/home/~/{text[2:]}")
        return plain.replace("/home/~", "~", 1) if plain.startswith("/home/~") else plain
    return posixpath.normpath(text)


def _subpath(every: Values) -> FollowedValue:
    parts = (
        FollowedValue((), tuple(FollowedValue((one,)) for one in every[0].known[0].split("/") if one))
        if (every and every[0].known)
        else UNKNOWN
    )
    held = _part([parts, *every[1:]])
    return FollowedValue(("/".join(item.texts[0] for item in held.items),)) if held.items else UNKNOWN


def path_parts(every: Values) -> FollowedValue:
    """The parts of a path, its root among them."""
    text = every[0].known[0] if every and every[0].known else ""
    parts = [*(["/"] if text.startswith("/") else []), *filter(None, text.split("/"))]
    return FollowedValue((), tuple(FollowedValue((one,)) for one in parts[:MAX_ITEMS])) if parts else UNKNOWN


COMPUTED: Final[Mapping[str, Callable[[Values], FollowedValue]]] = {
    "upper": _texts(str.upper), "capital": _texts(lambda text: text[:1].upper() + text[1:]),
    "small-first": _texts(lambda text: text[:1].lower() + text[1:]),
    "trimmed": _with_text(lambda text, signs: text.strip(signs)),
    "trimmed-front": _with_text(lambda text, signs: text.lstrip(signs)),
    "trimmed-end": _with_text(lambda text, signs: text.rstrip(signs)),
    "without-front": _with_text(lambda text, other: text.removeprefix(other or "")),
    "without-end": _with_text(lambda text, other: text.removesuffix(other or "")),
    "swapped-case": _texts(str.swapcase), "swapped": _swapped, "padded-front": lambda every: _padded(every, str.rjust),
    "padded-end": lambda every: _padded(every, str.ljust), "zeroed": lambda every: _padded(every, str.rjust, "0"),
    "repeated": _times, "chars": signs_of, "bytes": _bytes, "letters": _letters, "code": _code, "at": _at,
    "at-place": lambda every: _at(every, base=1),
    "last": lambda every: _at([*every[:1], counted(-1)]) if every else UNKNOWN, "popped": _popped, "cut": _part,
    "cut-place": lambda every: _part(every, base=1), "counted-part": lambda every: _part(every, counts=True),
    "counted-place": lambda every: _part(every, base=1, counts=True), "taken": lambda every: _cut(every, ":{}"),
    "dropped": lambda every: _cut(every, "{}:"), "taken-last": lambda every: _cut(every, "-{}:"),
    "dropped-last": lambda every: _cut(every, ":-{}"), "gathered": _gathered,
    "copied": lambda every: every[0] if len(every) == 1 and every[0].items else FollowedValue((), tuple(every)),
    "unique": _unique, "flat": _flat, "compact": _compact, "alike": _same_for_all, "filled": _filled_list,
    "range": range_of, "range-to": lambda every: range_of(every, inclusive=True), "length": length, "integer": integer,
    "octal-read": octal_read, "sum": total,
    "power": lambda every: (operated("**", every[0], every[1]) or UNKNOWN) if len(every) > 1 else UNKNOWN,
    "truth": truth_of, "hex-text": number_text("x"), "octal-text": number_text("o"), "binary-text": number_text("b"),
    "base": _named_base, "stem": _texts(_stem), "suffix": _texts(lambda text: posixpath.splitext(_base(text))[1]),
    "suffixed": _suffixed, "beside": _beside, "normal": _texts(normal),
    "root": _texts(lambda text: "/" if text.startswith("/") else text[:3] if text[1:2] == ":" else ""),
    "subpath": _subpath, "path-parts": path_parts, "address": address, "supernet": supernet, "packed": packed,
    "pattern": _texts(lambda text: f"{PATTERN}{text}"), "replace-pattern": lambda every: replaced(every, 1),
    "by-pattern": lambda every: replaced(every, 0, behind=True),
    "by-delimited": lambda every: replaced(_delimited(every), 0, behind=True),
    "replace-lua": lambda every: replaced(_of_lua(every), 1), "matched": matched,
    "matched-front": lambda every: matched(every, front=True),
    "match-of": lambda every: matched(every, 1), "match-lua": lambda every: matched(_of_lua(every), 1),
    "integer-text": _integer_text,
    "sides": lambda every: object_of(
        ((key.texts or ("",))[0], value) for key, value in zip(each_of(every[:1]), each_of(every[1:2]), strict=False)
    ),
    "split-last": _split_last, "linked": linked, "link": lambda every: linked(every[1::-1] or every),
    "common-path": lambda every: _common(every, posixpath.commonpath),
    "common-text": lambda every: _common(every, posixpath.commonprefix),
    "network-last": lambda every: _at([*every[:1], counted(-1)]) if every else UNKNOWN,
    "from-base": lambda every: _texts(normal)([join_paths(every[1::-1])]) if every else UNKNOWN,
    "path-apart": lambda every: FollowedValue((), (_texts(posixpath.dirname)(every), _named_base(every[:1]))),
    "halves": _of_two(lambda text, sign: _cut_at(text.partition(sign)[::2])),
    "halves-last": _of_two(lambda text, sign: _cut_at(text.rpartition(sign)[::2])),
    "partition": _of_two(lambda text, sign: _cut_at(text.partition(sign))),
    "partition-last": _of_two(lambda text, sign: _cut_at(text.rpartition(sign))),
    "before": _of_two(lambda text, sign: FollowedValue((text.partition(sign)[0],))),
    "behind": _of_two(lambda text, sign: FollowedValue((text.partition(sign)[2] if sign in text else text,))),
    "before-last": _of_two(lambda text, sign: FollowedValue((text.rpartition(sign)[0] if sign in text else text,))),
    "behind-last": _of_two(lambda text, sign: FollowedValue((text.rpartition(sign)[2],))),
    "place": _of_two(lambda text, sign: counted(text.find(sign))),
    "place-last": _of_two(lambda text, sign: counted(text.rfind(sign))),
    "begins": _of_two(lambda text, other: truth(text.startswith(other))),
    "ends": _of_two(lambda text, other: truth(text.endswith(other))),
    "equals": _of_two(lambda text, other: truth(text == other)), "holds": _holds, "parsed-path": _parsed_path,
    "url-path": _texts(_url_path), "prefix-length": _texts(lambda text: text.rpartition("/")[2]),
    "url-decoded": _texts(urllib.parse.unquote), "to-hex": _texts(lambda text: text.encode("utf-8", "replace").hex()),
    "to-base64": _texts(lambda text: base64.b64encode(text.encode("utf-8", "replace")).decode()),
}  # fmt: skip
