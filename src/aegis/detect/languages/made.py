"""What calls of libraries make of their arguments, by what kind of making it is; pure, and known from `data/calls`."""

from __future__ import annotations

import base64
import binascii
import codecs
import shlex
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from aegis.detect.languages.calls import Makes
from aegis.detect.languages.values import (
    ANY_NAME,
    HOLE,
    MAX_CHARS,
    MAX_ITEMS,
    MAX_TEXTS,
    UNKNOWN,
    FollowedValue,
    chosen_of,
    filled,
    join_paths,
    sliced,
    texts_of,
)

_ENVIRONMENT: Final[Mapping[str, str]] = {
    "home": "~", "userprofile": "~", "homepath": "~", "appdata": "~/AppData/Roaming", "localappdata": "~/AppData/Local",
    "windir": "C:/Windows", "systemroot": "C:/Windows", "systemdrive": "C:", "programdata": "C:/ProgramData",
    "programfiles": "C:/Program Files", "tmpdir": "/tmp", "temp": "/tmp", "tmp": "/tmp", "xdg_config_home": "~/.config",  # noqa: S108 - places that are looked for
    "user.home": "~", "user.dir": ".", "java.io.tmpdir": "/tmp", "java.home": "/usr/lib/jvm",  # noqa: S108 - as above
}  # fmt: skip
_MOST_ABOVE: Final = 12  # folders that a path lies in, one in another
_OF_FIRST_KNOWN: Final[frozenset[Makes]] = frozenset({"same", "inside", "base64", "base32", "hex", "rot13"})


def variable(names: Sequence[str], default: Sequence[FollowedValue]) -> FollowedValue:
    """The folder that a variable of the environment stands for, else what the program takes in its place."""
    found = [_ENVIRONMENT[name.lower()] for name in names if name.lower() in _ENVIRONMENT]
    return FollowedValue(tuple(found)) if found else default[0] if default else UNKNOWN


def make(makes: Makes, every: Sequence[FollowedValue], *, plainly: bool, method: bool) -> FollowedValue:
    """The value of a call; `every` are its arguments, what a method is called on before them.

    `plainly` says that paths are put behind each other even where one of them is absolute.
    """
    first = every[0] if every else UNKNOWN
    if makes == "join" and method and first.items:  # of Ruby, whose lists and paths are joined by one word
        return _concatenated(every if len(every) > 1 else (first, FollowedValue(("",))), method=method)
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
        return FollowedValue((), tuple(every[:MAX_ITEMS]))
    if makes == "added":
        more = [item for one in every[1:] for item in (one.items or (one,))]
        return FollowedValue((), (*first.items, *more)[:MAX_ITEMS])
    if makes == "together":
        return FollowedValue(("".join((value.texts or (HOLE,))[0] for value in every)[:MAX_CHARS],))
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
    if makes in ("parent", "lower"):
        return FollowedValue(tuple(text.lower() if makes == "lower" else _parent(text) for text in first.texts))
    if makes == "parents":
        return FollowedValue(
            (), tuple(FollowedValue((path,)) for path in _ancestors(first.known[0])) if first.known else ()
        )
    if makes == "format":
        return filled(first, every[1:] or [UNKNOWN])
    if makes == "replace" and len(every) == 3:
        if not method:  # what is looked for comes first
            every = (every[2], every[0], every[1])
            first = every[0]
        new = every[2].texts[:1]
        replaced = [one.replace(old, other) for one in first.texts for old in every[1].known for other in new]
        return FollowedValue(tuple(replaced[:MAX_TEXTS]) or (HOLE,))
    if makes == "concat":
        return _concatenated(every, method=method)
    if makes == "split":
        sign = every[1].texts[0] if len(every) > 1 and every[1].texts else None
        words = (word for text in first.known[:1] for word in (text if sign == "" else text.split(sign)))
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
    if makes == "first":
        return first.items[0] if first.items else first
    if makes == "part":
        return sliced(first, ":".join([(*value.known, "")[0] for value in every[1:3]] + [""] * (len(every) == 2)))
    if makes == "member" and len(every) > 1 and every[1].known:
        found = first.member(every[1].known[0])
        return found if found.known or found.items or len(every) < 3 else every[2]
    return first if makes == "codec" else UNKNOWN


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
        (value.known[0] for value in every if value is not listed and value.known), "" if len(every) > 1 else ","
    )
    return FollowedValue((glue.join((item.texts or (HOLE,))[0] for item in listed.items),))


def joined_plainly(parts: Sequence[FollowedValue]) -> FollowedValue:
    """The paths of parts that are put behind each other, whatever they begin with."""
    found = []
    for chosen in chosen_of([part.texts or (HOLE,) for part in parts]):
        rest = "/".join(part.strip("/") for part in chosen[1:])
        found.append(f"{chosen[0].rstrip('/')}/{rest}"[:MAX_CHARS] if rest else chosen[0])
    return texts_of(found)


_CODE_POINTS: Final = 0x110000


def decoded(value: FollowedValue, how: str) -> FollowedValue:
    """What constant text says that was encoded: `base64`, `hex`, `reversed`, `codes`."""
    if how == "codes":
        codes = [item.texts[0] for item in value.items if item.texts] or list(value.known[:1])
        if codes and all(code.isascii() and code.isdigit() and int(code[:8]) < _CODE_POINTS for code in codes):
            return FollowedValue(("".join(chr(int(code[:8])) for code in codes),))
        return UNKNOWN
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


def command_lines(words: Sequence[FollowedValue]) -> list[str]:
    """Command lines of words, each of them the first that it may be; the last ones as all that they may be."""
    lines = [""]
    for word in words:
        chosen = [text.replace(HOLE, "VALUE") for text in (word.texts or (HOLE,))]
        lines = [f"{line} {shlex.quote(text)}".strip() for line in lines for text in chosen][:MAX_TEXTS]
    return lines


def started(runs: str | None, words: Sequence[FollowedValue], given: FollowedValue) -> list[str]:
    """The command lines that a call starts which takes them so; `given` are the arguments of a program by itself.

    `runs` is `command` for a text that a shell reads, `words` for a list, `split` for a program and the list of its
    arguments, `rest` for words one behind another.
    """
    value = words[0]
    if runs == "split":
        if given.items:
            return command_lines((value, *given.items))
        return [" ".join([text, *given.known[:1]]) for text in value.known]
    if runs == "rest":
        every = [item for word in words for item in (word.items or (word,))]
        return command_lines(every) if len(every) > 1 else list(every[0].known)
    listed = command_lines(value.items) if value.items else []
    return [*value.known, *listed] if runs == "command" else listed or list(value.known)
