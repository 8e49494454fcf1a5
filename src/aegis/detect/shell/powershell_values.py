"""What PowerShell makes of constant values: operators, casts, indexes and members.

Every function is pure, and what it makes is bounded: a text that is longer than any script may be is not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import re2

from aegis.core.names import glob_match
from aegis.core.patterns import foreign
from aegis.detect.shell.words import replaced_any_case

MOST_TEXT: Final = 12_288  # characters of a value that is followed: doubling one in a loop ends here
MOST_ITEMS: Final = 4_096
_MOST_PIECES: Final = 512
_MOST_FIELDS: Final = 512  # of a table that is filled one by one
_MOST_EACH: Final = 64  # items of a loop that are followed one by one
NO_KINDS: Final[frozenset[str]] = frozenset()
FETCHED: Final = frozenset({"fetched"})
DECODED: Final = frozenset({"decoded"})
READ: Final = frozenset({"file"})
SECRET: Final = frozenset({"secret"})  # a password in clear
SENDABLE: Final = frozenset({"environment"})  # what nobody should send elsewhere


_SEAM: Final = "\x1f"
SPECIAL: Final = "'\"$@(){}[];|&,<>=#` \t\n"
# PowerShell takes typographic quotes and dashes for plain ones (about_Quoting_Rules, about_Operators).
_ALIKE: Final = {
    **dict.fromkeys("‘’‚‛", "'"), **dict.fromkeys("“”„", '"'), **dict.fromkeys("–—―", "-"),
    **dict.fromkeys("\r\v\f\x1f\u00a0\u0085", " "),
}  # fmt: skip
_PLAIN: Final = str.maketrans(_ALIKE)
UNREAD: Final = "$?"  # what stands for a text that nobody knows: no path, no name and no host


class PsValue(NamedTuple):
    """A value so far as it is known: its text, its items where it is an array, its fields where it is a table.

    `known` says that the text is what the program would see; otherwise it is the spelling in the script. `kinds` say
    where it comes from, `type` is the .NET type of an object, `name` the variable that it was read from. One that is
    `each` is one of its items at a time, as the variable of a loop is. A tuple, because a text has thousands of them.
    """

    text: str = ""
    known: bool = True
    kinds: frozenset[str] = NO_KINDS
    items: tuple[PsValue, ...] = ()
    fields: dict[str, PsValue] | None = None
    type: str = ""
    name: str = ""
    block: tuple[int, ...] = ()  # where it begins and ends in the script
    each: bool = False

    def named(self, name: str) -> PsValue:
        """Return the same value, read from a variable."""
        return self if self.name == name else self._replace(name=name)

    def spread(self) -> tuple[PsValue, ...]:
        """Return the items of an array, or the value alone."""
        return self.items or (self,)

    def spread_text(self) -> list[str]:
        """Return the texts of the items; a table is one text, with the texts of its members."""
        if self.fields:
            told = ";".join(f"{name}={one.text}" for name, one in list(self.fields.items())[:MOST_ITEMS])
            return [f"@{{{told}}}"[:MOST_TEXT]]
        return [item.text for item in self.items] if self.items else [self.text]

    def about(self) -> str:
        """Return what an object is made of, where that is known, or its type."""
        return (
            self.text
            if self.type and self.text[:1] not in {"", "[", "$"}
            else self.type or self.text or f"${self.name}"
        )

    def spelling(self) -> str:
        """Return how the value is called where it is not known."""
        return f"${self.name}" if self.name else self.text


NOTHING: Final = PsValue(text="", known=False)
UNKNOWN: Final = PsValue(text=UNREAD, known=False)

_VARIABLES: Final = {
    "env:comspec": "C:\\WINDOWS\\system32\\cmd.exe", "env:systemroot": "C:\\Windows", "env:windir": "C:\\Windows",
    "env:systemdrive": "C:", "env:programdata": "C:\\ProgramData", "env:allusersprofile": "C:\\ProgramData",
    "env:public": "C:\\Users\\Public", "env:programfiles": "C:\\Program Files", "shellid": "Microsoft.PowerShell",
    "pshome": "C:\\Windows\\System32\\WindowsPowerShell\\v1.0", "verbosepreference": "SilentlyContinue",
    "true": "$true", "false": "$false", "null": "$null",
}  # fmt: skip


def atoms_of(text: str) -> list[str]:
    """Return the atoms of a text: signs that mean something one by one, and what stands between them."""
    plain = text.replace("\r\n", "\n")
    if not plain.isascii() or "\r" in plain or "\x1f" in plain:
        plain = plain.translate(_PLAIN)
    for sign in SPECIAL:  # each a pass at the speed of C, which a table for `translate` is not
        plain = plain.replace(sign, f"{_SEAM}{sign}{_SEAM}")
    return [atom for atom in plain.split(_SEAM) if atom]


def constant(text: str) -> PsValue:
    """Return a value that stands in the script."""
    return _value(PsValue, (text, True, NO_KINDS, (), None, "", "", (), False))


_value: Final = tuple.__new__  # makes a value in half the time


def literal(value: PsValue) -> PsValue:
    """Return a text that stands in quotes, which is true also where it reads like a number or a name of nothing."""
    return value._replace(type="string") if value.known and value.text.lower() in _FALSE else value


_FALSE: Final = frozenset({"$false", "$null", "0"})


def variable(name: str) -> PsValue:
    """Return what is known of a variable that the script does not set."""
    known = _VARIABLES.get(name)
    return PsValue(text=f"${name}", known=False) if known is None else PsValue(text=known)


def listed(items: Sequence[PsValue]) -> PsValue:
    """Return an array of items."""
    held = tuple(items[:MOST_ITEMS])
    kinds = NO_KINDS.union(*(item.kinds for item in held))
    text = " ".join([item.text for item in held]) if len(held) <= _MOST_PIECES else ""
    return PsValue(text=text, known=all(item.known for item in held), kinds=kinds, items=held)


def listed_texts(items: Iterable[str], like: PsValue) -> PsValue:
    """Return an array of texts that come from where another value does."""
    held = [PsValue(text=item, kinds=like.kinds) for item in items]
    return listed(held) if held else PsValue(text="", kinds=like.kinds)


def made(text: str, *values: PsValue) -> PsValue:
    """Return a text that was made of values."""
    kinds = NO_KINDS.union(*(value.kinds for value in values))
    known = all(value.known for value in values)
    return PsValue(text=text[:MOST_TEXT], known=known and len(text) <= MOST_TEXT, kinds=kinds)


def joined(parts: list[PsValue]) -> PsValue:
    """Return the text that parts make side by side."""
    if not parts:
        return constant("")
    if len(parts) == 1:
        return parts[0].named("")
    if any(part.each for part in parts):
        return _joined_each(parts)
    return made("".join([part.text for part in parts]), *parts)


def one_by_one(value: PsValue) -> PsValue:
    """Return what a variable is that has one item of an array after the other."""
    return value._replace(each=True) if 1 < len(value.items) <= _MOST_EACH else value


def _joined_each(parts: Sequence[PsValue]) -> PsValue:
    """Return the texts that parts make for each item of those that are one item at a time."""
    count = next(len(part.items) for part in parts if part.each)
    turns = [
        [part.items[at] if part.each and len(part.items) == count else part for part in parts] for at in range(count)
    ]
    items = [made("".join([part.text for part in turn]), *turn) for turn in turns]
    if sum(len(item.text) for item in items) > MOST_TEXT:
        return made("".join([part.text for part in parts]), *parts)
    return one_by_one(listed(items))


_AS_NUMBERS: Final = {"$true": "1", "$false": "0"}


def number_of(value: PsValue) -> int | None:
    """Return the whole number that a value is; `None` for every other one."""
    text = _AS_NUMBERS.get(value.text.lower()) or value.text.strip().lower()
    if not value.known or len(text) > 12 or not text.isascii():
        return None
    try:
        return int(text, 16) if text.startswith("0x") else int(text)
    except ValueError:
        return None


def binary(operator: str, left: PsValue, right: PsValue) -> PsValue:
    """Return what an operator makes of two values."""
    if operator == "+":
        if left.each or right.each:
            return joined([left, right])
        if left.items or right.items:
            return listed([*left.spread(), *right.spread()])
        one, two = number_of(left), number_of(right)
        if one is not None and two is not None:
            return constant(str(one + two))
        return made(left.text + right.text, left, right)
    if operator == "..":
        one, two = number_of(left), number_of(right)
        if one is None or two is None or abs(one - two) > MOST_ITEMS:
            return UNKNOWN
        step = 1 if two >= one else -1
        return listed([constant(str(number)) for number in range(one, two + step, step)])
    if operator in _ARITHMETIC:
        return _arithmetic(operator, left, right)
    if operator == "join":
        return made(right.text.join(left.spread_text()), left, right)
    if operator == "f":
        return formatted(left, right)
    if operator in {"replace", "ireplace", "creplace"}:
        return replaced(left, right)
    if operator in {"split", "isplit", "csplit"}:
        return _split(left, right)
    if operator in _COMPARES or operator in _CONNECTS:
        return _compared(operator, left, right)
    bare = operator.removeprefix("not")
    if (asks := bare if bare in _ASKS else bare[1:]) in _ASKS:
        answer = _asked(asks, left, right)
        return UNKNOWN if answer is None else told(answer == (bare == operator))
    if operator == "??":
        return right if left.text.lower() == "$null" or not left.known else left
    if operator == "as":
        return cast(right.type, left)
    return PsValue(text=UNREAD, known=False, kinds=left.kinds | right.kinds)


_COMPARES: Final = frozenset({"eq", "ieq", "ceq", "ne", "ine", "gt", "lt", "ge", "le"})
_CONNECTS: Final = frozenset({"and", "or", "xor"})


def truth(value: PsValue) -> bool | None:
    """Return whether a value counts as true; `None` where nobody knows."""
    if not value.known:
        return None
    return value.text != "" if value.type == "string" else value.text.lower() not in _FALSE | {""}


def told(answer: bool) -> PsValue:
    return constant("$true" if answer else "$false")


def _compared(operator: str, left: PsValue, right: PsValue) -> PsValue:
    one, two = truth(left), truth(right)
    if one is None or two is None or left.items or right.items:
        return PsValue(text=UNREAD, known=False, kinds=left.kinds | right.kinds)
    if operator in _CONNECTS:
        return told((one and two) if operator == "and" else (one or two) if operator == "or" else one != two)
    first, second = number_of(left), number_of(right)
    if operator[-2:] in {"eq", "ne"}:
        same = left.text.lower() == right.text.lower() if first is None or second is None else first == second
        return told(same == operator.endswith("eq"))
    if first is None or second is None:
        return UNKNOWN
    greater = first > second if operator in {"gt", "le"} else first >= second
    return told(greater == (operator in {"gt", "ge"}))


_ASKS: Final = frozenset({"like", "match", "in", "contains"})


def _asked(operator: str, left: PsValue, right: PsValue) -> bool | None:
    """Whether a text has a form, or a list an item; `None` where nobody knows."""
    if not (left.known and right.known):
        return None
    if operator in {"in", "contains"}:
        item, items = (left, right) if operator == "in" else (right, left)
        return item.text.lower() in {one.text.lower() for one in items.spread()}
    if left.items:
        return None
    if operator == "like":
        return glob_match(right.text.lower(), left.text.lower())
    pattern = foreign(f"(?i){right.text}")
    return None if pattern is None else pattern.search(left.text) is not None


_ARITHMETIC: Final = frozenset({"-", "*", "/", "%", "bxor", "band", "bor"})


def _arithmetic(operator: str, left: PsValue, right: PsValue) -> PsValue:
    one, two = number_of(left), number_of(right)
    if operator == "*" and two is not None and one is None and left.known:
        return constant(left.text * two) if 0 <= two * len(left.text) <= MOST_TEXT else UNKNOWN
    if one is None or two is None:
        return PsValue(text=UNREAD, known=False, kinds=left.kinds | right.kinds)
    if operator == "-":
        return constant(str(one - two))
    if operator == "*":
        return constant(str(one * two))
    if operator in {"/", "%"}:
        return UNKNOWN if not two else constant(str(one // two if operator == "/" else one % two))
    return constant(str(one ^ two if operator == "bxor" else one & two if operator == "band" else one | two))


def formatted(left: PsValue, right: PsValue) -> PsValue:
    """Return what `'{1}{0}' -f a, b` makes."""
    values = right.spread()
    if len(left.text) > MOST_TEXT:
        return UNKNOWN
    pieces = left.text.replace("{{", "\x01").replace("}}", "\x02").split("{")
    out = [pieces[0]]
    for piece in pieces[1:]:
        inside, brace, rest = piece.partition("}")
        digits = inside.partition(":")[0].partition(",")[0].strip()
        if brace and digits.isdecimal() and len(digits) < 4 and int(digits) < len(values):
            out.append(values[int(digits)].text)
            out.append(rest)
        else:
            out.append("{" + piece)
        if sum(map(len, out[-2:])) > MOST_TEXT:
            return UNKNOWN
    return made("".join(out)[: MOST_TEXT + 1].replace("\x01", "{").replace("\x02", "}"), left, *values)


_PATTERNS: Final = frozenset("\\.^$*+?()[]{}|")


def _literal(pattern: str) -> str | None:
    """The text that a regular expression without alternatives means; `None` for every other one."""
    out: list[str] = []
    escaped = False
    for char in pattern:
        if escaped:
            if char.isalnum():
                return None
            out.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in _PATTERNS:
            return None
        else:
            out.append(char)
    return None if escaped else "".join(out)


def replaced(left: PsValue, right: PsValue) -> PsValue:
    """Return a text with every place of a plain pattern replaced."""
    pair = right.spread()
    old = _literal(pair[0].text)
    new = pair[1].text if len(pair) > 1 else ""
    small = len(left.text) * (len(new) + 1) <= MOST_TEXT * 16
    if old and "$" not in new and small:
        return made(replaced_any_case(left.text, old, new), left, *pair)
    pattern = foreign(f"(?i){pair[0].text}") if small and all(one.known for one in (left, *pair)) else None
    if pattern is None:
        return PsValue(text=left.text, known=False, kinds=left.kinds)
    groups = new.replace("\\", "\\\\").replace("$&", "$0")
    for place in range(min(pattern.groups, 9) + 1):
        groups = groups.replace(f"${{{place}}}", f"\\{place}").replace(f"${place}", f"\\{place}")
    try:
        return made(pattern.sub(groups, left.text), left, *pair)
    except (re2.error, UnicodeError):
        return UNKNOWN


def _split(left: PsValue, right: PsValue) -> PsValue:
    pattern = right.spread()[0].text
    literal = _literal(pattern)
    if not left.known:
        return PsValue(text=left.text, known=False, kinds=left.kinds)
    if not pattern:
        return listed_texts(left.text.split(), left)
    if literal:
        return listed_texts(left.text.split(literal, MOST_ITEMS), left)
    if pattern.startswith("[") and pattern.endswith("]"):
        pattern = "|".join(pattern[1:-1])
    signs = [_literal(sign) for sign in pattern.split("|")[:16]]
    if not all(signs):
        return PsValue(text=left.text, known=False, kinds=left.kinds)
    text = left.text
    for sign in signs:
        text = text.replace(sign or "", "\x01")
    return listed_texts(text.split("\x01", MOST_ITEMS), left)


def cast(name: str, value: PsValue) -> PsValue:
    """Return `[name] value`."""
    if name in {"char", "char[]"}:
        numbers = [number_of(item) for item in value.spread()]
        if all(number is not None and 0 <= number < 0xD800 for number in numbers) and value.known:
            chars = [chr(number or 0) for number in numbers]
            return constant(chars[0]) if name == "char" and len(chars) == 1 else listed_texts(chars, value)
        return listed_texts(list(value.text), value) if name == "char[]" and value.known and not value.items else value
    if name in {"string", "void", "object", "array", "regex", "uri", "scriptblock"} or name.endswith("[]"):
        text = _BOOLEANS.get(value.text.lower(), value.text) if name == "string" else value.text
        return value._replace(text=text, fields=None, type=name, each=False)
    if name in _NUMBERS and (number := number_of(value)) is not None:
        return constant(str(number)).named(value.name)
    if name in {"pscustomobject", "psobject"}:
        return value._replace(type="psobject")
    if name in {"bool", "boolean", "switch"} and (answer := truth(value)) is not None:
        return told(answer)
    if name in {"type", "reflection.typeinfo"} and value.known:  # a type by its name
        named = value.text.strip().lower().removeprefix("system.")
        return PsValue(text=f"[{named}]", known=False, kinds=value.kinds, type=named)
    if name in {"wmiclass", "adsi", "xml", "wmi", "wmisearcher", "io.fileinfo", "io.directoryinfo", "adsisearcher"}:
        return PsValue(text=value.text, known=value.known, kinds=value.kinds, type=name)
    return value


_BOOLEANS: Final = {"$true": "True", "$false": "False", "$null": ""}
_NUMBERS: Final = frozenset({"int", "int16", "int32", "int64", "uint32", "long", "byte", "decimal", "double", "float"})


def indexed(value: PsValue, index: PsValue) -> PsValue:
    """Return `value[index]`."""
    if value.fields is not None:
        found = [value.fields.get(item.text.lower(), UNKNOWN) for item in index.spread()]
        return found[0] if len(found) == 1 else one_by_one(listed(found))
    held: Sequence[str] = [item.text for item in value.items] if value.items else value.text
    if not value.known or not held:
        return PsValue(text=UNREAD, known=False, kinds=value.kinds)
    picked: list[str] = []
    for item in index.spread():
        number = number_of(item)
        if number is None:
            return PsValue(text=UNREAD, known=False, kinds=value.kinds)
        if -len(held) <= number < len(held):
            picked.append(held[number])
    if len(picked) == 1:
        return PsValue(text=picked[0], kinds=value.kinds)
    return listed_texts(picked, value)


def put(fields: dict[str, PsValue], names: Sequence[str], value: PsValue) -> None:
    """Set members of a table, whatever the variable is called that it is read from."""
    for name in names[: max(0, _MOST_FIELDS - len(fields))]:
        fields[name.strip().lower()] = value


# Members of an item of a drive that say where it lies: of what lies in a folder, the folder is known.
_LIES_AT: Final = frozenset({"fullname", "pspath", "path", "providerpath", "literalpath"})


def is_place(text: str) -> bool:
    """Whether a text is a path, or a variable that stands for one."""
    if text[:5].lower() == "$env:":  # a folder that the environment names
        return "\n" not in text and "." not in text
    return text[:1] != "$" and ("\\" in text or "/" in text) and "\n" not in text


def is_rooted(text: str) -> bool:
    """Whether a path begins at a drive or at the root of one."""
    return text[:1] in {"\\", "/"} or (text[1:2] == ":" and text[:1].isalpha())


def member(value: PsValue, name: str) -> PsValue:
    """Return `value.name`."""
    if value.fields is not None:
        names = [constant(one) for one in value.fields] if name == "keys" else value.fields.values()
        return listed(list(names)) if name in {"keys", "values"} else value.fields.get(name, UNKNOWN)
    if name == "length" or name == "count":
        return constant(str(len(value.items) or len(value.text))) if value.known else UNKNOWN
    if name in _LIES_AT and not value.known and is_place(value.text):
        return value._replace(name="")
    if value.type == "environment" and name == "systemdirectory":
        return constant("C:\\Windows\\System32")
    if name in {"responsetext", "responsebody", "responsestream"} and "http" in value.type:
        return PsValue(text=UNREAD, known=False, kinds=value.kinds | FETCHED)
    if name == "psbase":
        return value
    if value.type == "networkcredential" and name == "password":
        return PsValue(text=UNREAD, known=False, kinds=value.kinds | SECRET)
    if value.type:
        return PsValue(text=f"{value.text}.{name}", known=False, kinds=value.kinds, type=f"{value.type}.{name}")
    return PsValue(text=f"{value.spelling()}.{name}", known=False, kinds=value.kinds)
