"""What PowerShell makes of constant values: operators, casts, members and calls of .NET that build strings.

Every function is pure, and what it makes is bounded: a text that is longer than any script may be is not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from aegis.core.names import glob_match
from aegis.detect.shell.words import decoded_base64, first_name, known_folder

MOST_TEXT: Final = 12_288  # characters of a value that is followed: doubling one in a loop ends here
MOST_ITEMS: Final = 4_096
_MOST_PIECES: Final = 512
_NO_KINDS: Final[frozenset[str]] = frozenset()
FETCHED: Final = frozenset({"fetched"})
DECODED: Final = frozenset({"decoded"})
READ: Final = frozenset({"file"})


UNREAD: Final = "$?"  # what stands for a text that nobody knows: no path, no name and no host


class PsValue(NamedTuple):
    """A value so far as it is known: its text, its items where it is an array, its fields where it is a table.

    `known` says that the text is what the program would see; otherwise it is the spelling in the script. `kinds` say
    where it comes from, `type` is the .NET type of an object, `name` the variable that it was read from. A tuple,
    because a text has thousands of them.
    """

    text: str = ""
    known: bool = True
    kinds: frozenset[str] = _NO_KINDS
    items: tuple[PsValue, ...] = ()
    fields: dict[str, PsValue] | None = None
    type: str = ""
    name: str = ""
    block: bool = False

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


def constant(text: str) -> PsValue:
    """Return a value that stands in the script."""
    return _value(PsValue, (text, True, _NO_KINDS, (), None, "", "", False))


_value: Final = tuple.__new__  # makes a value in half the time


def variable(name: str) -> PsValue:
    """Return what is known of a variable that the script does not set."""
    known = _VARIABLES.get(name)
    return PsValue(text=f"${name}", known=False) if known is None else PsValue(text=known)


def listed(items: Sequence[PsValue]) -> PsValue:
    """Return an array of items."""
    held = tuple(items[:MOST_ITEMS])
    kinds = _NO_KINDS.union(*(item.kinds for item in held))
    text = " ".join([item.text for item in held]) if len(held) <= _MOST_PIECES else ""
    return PsValue(text=text, known=all(item.known for item in held), kinds=kinds, items=held)


def _texts(items: Iterable[str], like: PsValue) -> PsValue:
    held = [PsValue(text=item, kinds=like.kinds) for item in items]
    return listed(held) if held else PsValue(text="", kinds=like.kinds)


def made(text: str, *values: PsValue) -> PsValue:
    """Return a text that was made of values."""
    kinds = _NO_KINDS.union(*(value.kinds for value in values))
    known = all(value.known for value in values)
    return PsValue(text=text[:MOST_TEXT], known=known and len(text) <= MOST_TEXT, kinds=kinds)


def _number(value: PsValue) -> int | None:
    text = value.text.strip().lower()
    if not value.known or len(text) > 12 or not text.isascii():
        return None
    try:
        return int(text, 16) if text.startswith("0x") else int(text)
    except ValueError:
        return None


def binary(operator: str, left: PsValue, right: PsValue) -> PsValue:
    """Return what an operator makes of two values."""
    if operator == "+":
        if left.items or right.items:
            return listed([*left.spread(), *right.spread()])
        one, two = _number(left), _number(right)
        if one is not None and two is not None:
            return constant(str(one + two))
        return made(left.text + right.text, left, right)
    if operator == "..":
        one, two = _number(left), _number(right)
        if one is None or two is None or abs(one - two) > MOST_ITEMS:
            return UNKNOWN
        step = 1 if two >= one else -1
        return listed([constant(str(number)) for number in range(one, two + step, step)])
    if operator in _ARITHMETIC:
        return _arithmetic(operator, left, right)
    if operator == "join":
        return made(right.text.join(left.spread_text()), left, right)
    if operator == "f":
        return _formatted(left, right)
    if operator in {"replace", "ireplace", "creplace"}:
        return _replaced(left, right)
    if operator in {"split", "isplit", "csplit"}:
        return _split(left, right)
    if operator == "as":
        return cast(right.type, left)
    return PsValue(text=UNREAD, known=False, kinds=left.kinds | right.kinds)


_ARITHMETIC: Final = frozenset({"-", "*", "/", "%", "bxor", "band", "bor"})


def _arithmetic(operator: str, left: PsValue, right: PsValue) -> PsValue:
    one, two = _number(left), _number(right)
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


def _formatted(left: PsValue, right: PsValue) -> PsValue:
    """`'{1}{0}' -f a, b`."""
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


def _replaced(left: PsValue, right: PsValue) -> PsValue:
    pair = right.spread()
    old = _literal(pair[0].text)
    new = pair[1].text if len(pair) > 1 else ""
    if not old or "$" in new or len(left.text) * (len(new) + 1) > MOST_TEXT * 16:
        return PsValue(text=left.text, known=False, kinds=left.kinds)
    return made(_replace_any_case(left.text, old, new), left, *pair)


def _replace_any_case(text: str, old: str, new: str) -> str:
    if not (text.isascii() and old.isascii()):
        return text.replace(old, new)
    lowered, wanted = text.lower(), old.lower()
    out: list[str] = []
    start = 0
    while (at := lowered.find(wanted, start)) >= 0:
        out.append(text[start:at])
        out.append(new)
        start = at + len(wanted)
    out.append(text[start:])
    return "".join(out)


def _split(left: PsValue, right: PsValue) -> PsValue:
    pattern = right.spread()[0].text
    literal = _literal(pattern)
    if not left.known:
        return PsValue(text=left.text, known=False, kinds=left.kinds)
    if not pattern:
        return _texts(left.text.split(), left)
    if literal:
        return _texts(left.text.split(literal, MOST_ITEMS), left)
    if pattern.startswith("[") and pattern.endswith("]"):
        pattern = "|".join(pattern[1:-1])
    signs = [_literal(sign) for sign in pattern.split("|")[:16]]
    if not all(signs):
        return PsValue(text=left.text, known=False, kinds=left.kinds)
    text = left.text
    for sign in signs:
        text = text.replace(sign or "", "\x01")
    return _texts(text.split("\x01", MOST_ITEMS), left)


def cast(name: str, value: PsValue) -> PsValue:
    """Return `[name] value`."""
    if name in {"char", "char[]"}:
        numbers = [_number(item) for item in value.spread()]
        if all(number is not None and 0 <= number < 0x110000 for number in numbers) and value.known:
            chars = [chr(number or 0) for number in numbers]
            return constant(chars[0]) if name == "char" and len(chars) == 1 else _texts(chars, value)
        return _texts(list(value.text), value) if name == "char[]" and value.known and not value.items else value
    if name in {"string", "void", "object", "array", "regex", "uri", "scriptblock"} or name.endswith("[]"):
        return PsValue(
            text=value.text, known=value.known, kinds=value.kinds, items=value.items, type=name, block=value.block
        )
    if name in {"type", "reflection.typeinfo"} and value.known:  # a type by its name
        named = value.text.strip().lower().removeprefix("system.")
        return PsValue(text=f"[{named}]", known=False, kinds=value.kinds, type=named)
    if name in {"wmiclass", "adsi", "xml", "wmi", "wmisearcher", "io.fileinfo", "io.directoryinfo", "adsisearcher"}:
        return PsValue(text=value.text, known=value.known, kinds=value.kinds, type=name)
    return value


def indexed(value: PsValue, index: PsValue) -> PsValue:
    """Return `value[index]`."""
    if value.fields is not None:
        return value.fields.get(index.text.lower(), UNKNOWN)
    held: Sequence[str] = [item.text for item in value.items] if value.items else value.text
    if not value.known or not held:
        return PsValue(text=UNREAD, known=False, kinds=value.kinds)
    picked: list[str] = []
    for item in index.spread():
        number = _number(item)
        if number is None:
            return PsValue(text=UNREAD, known=False, kinds=value.kinds)
        if -len(held) <= number < len(held):
            picked.append(held[number])
    if len(picked) == 1:
        return PsValue(text=picked[0], kinds=value.kinds)
    return _texts(picked, value)


# Members of an item of a drive that say where it lies: of what lies in a folder, the folder is known.
_LIES_AT: Final = frozenset({"fullname", "pspath", "path", "providerpath", "literalpath"})


def _is_place(text: str) -> bool:
    if text[:5].lower() == "$env:":  # a folder that the environment names
        return "\n" not in text and "." not in text
    return text[:1] != "$" and ("\\" in text or "/" in text) and "\n" not in text


def member(value: PsValue, name: str) -> PsValue:
    """Return `value.name`."""
    if value.fields is not None:
        return value.fields.get(name, UNKNOWN)
    if name == "length" or name == "count":
        return constant(str(len(value.items) or len(value.text))) if value.known else UNKNOWN
    if name in _LIES_AT and not value.known and _is_place(value.text):
        return value._replace(name="")
    if value.type:
        return PsValue(text=f"{value.text}.{name}", known=False, kinds=value.kinds, type=f"{value.type}.{name}")
    return PsValue(text=f"{value.spelling()}.{name}", known=False, kinds=value.kinds)


_FETCHES: Final = frozenset({
    "downloadstring", "downloaddata", "downloadstringtaskasync", "openread", "getstringasync", "getresponse",
    "getresponsestream", "getstream", "getbytearrayasync", "responsetext", "responsebody",
})  # fmt: skip


_GOES_OVER: Final = frozenset({
    "getfiles", "getdirectories", "getfilesystementries", "getfilesysteminfos", "enumeratefiles",
    "enumeratedirectories", "enumeratefilesystementries", "enumeratefilesysteminfos",
})  # fmt: skip
_OPENS_KEY: Final = frozenset({"opensubkey", "createsubkey"})


def method(value: PsValue, name: str, given: Sequence[PsValue]) -> PsValue:
    """Return `value.name(given)`."""
    kinds = value.kinds.union(*(one.kinds for one in given)) if given else value.kinds
    if name in _FETCHES:
        return PsValue(text=UNREAD, known=False, kinds=kinds | FETCHED)
    if name in _GOES_OVER and _is_place(value.text):
        return PsValue(text=value.text, known=False, kinds=kinds)
    first = given[0] if given else UNKNOWN
    if value.known and all(one.known for one in given):
        text = value.text
        if name == "replace" and len(given) == 2:
            if len(text) * (len(given[1].text) + 1) <= MOST_TEXT * 16 and first.text:
                return made(text.replace(first.text, given[1].text), value, *given)
        elif name in {"tolower", "tolowerinvariant"}:
            return made(text.lower(), value)
        elif name in {"toupper", "toupperinvariant"}:
            return made(text.upper(), value)
        elif name == "trim":
            return made(text.strip(first.text if given else None), value)
        elif name == "tochararray":
            return _texts(list(text), value)
        elif name == "split" and given and first.text:
            return _texts(text.split(first.text[0], MOST_ITEMS), value)
        elif name in {"substring", "remove"}:
            start, length = _number(first), _number(given[1]) if len(given) > 1 else None
            if start is not None and start >= 0:
                end = None if length is None else start + length
                cut = text[start:end] if name == "substring" else text[:start] + ("" if end is None else text[end:])
                return made(cut, value)
        elif name == "insert" and len(given) == 2 and (at := _number(first)) is not None and at >= 0:
            return made(text[:at] + given[1].text + text[at:], value)
    if name in _OPENS_KEY and first.text:  # a key below a key, which later calls are made on
        return PsValue(text=f"{value.type or value.text}\\{first.text}"[:MOST_TEXT], known=False, kinds=kinds)
    if name in {"tostring", "trim", "invoke", "gettype", "getawaiter", "getresult", "normalize", "trimend"}:
        return value.named("")
    if name in {"getstring", "readtoend", "decompress", "read"}:
        source = next((one for one in given if one.kinds), value)
        plain = next((one for one in given if one.known and one.text), UNKNOWN)
        return PsValue(text=plain.text, known=plain.known, kinds=kinds | source.kinds)
    return PsValue(text=UNREAD, known=False, kinds=kinds)


def static_call(type_name: str, name: str, given: Sequence[PsValue]) -> PsValue:
    """Return `[type]::name(given)`."""
    kinds = _NO_KINDS.union(*(one.kinds for one in given)) if given else _NO_KINDS
    first = given[0] if given else UNKNOWN
    if type_name in {"convert", "system.convert"}:
        if name == "frombase64string":
            text = decoded_base64(first.text) if first.known else None
            return PsValue(text=text or UNREAD, known=text is not None, kinds=kinds | DECODED)
        if name in {"toint16", "toint32", "tobyte"} and first.known and len(first.text) < 12:
            base = _number(given[1]) if len(given) > 1 else 10
            try:
                return constant(str(int(first.text, base or 10)))
            except ValueError:
                return UNKNOWN
        return PsValue(text=first.text, known=first.known, kinds=kinds)
    if type_name == "string":
        rest = given[1:]
        if name == "join" and rest:
            return made(
                first.text.join(listed([piece for one in rest for piece in one.spread()]).spread_text()), *given
            )
        if name == "concat":
            return made("".join(piece for one in given for piece in one.spread_text()), *given)
        if name == "format" and rest:
            return _formatted(first, listed([piece for one in rest for piece in one.spread()]))
    if type_name == "io.path" and name == "combine":
        return made("\\".join(piece for one in given for piece in one.spread_text()), *given)
    if name in _GOES_OVER and type_name in {"io.directory", "directory"}:
        return PsValue(text=first.text, known=False, kinds=kinds)
    if name in {"openbasekey", "openremotebasekey"} and given:
        return PsValue(text=f"registry.{first.text.lower()}"[:MOST_TEXT], known=False, kinds=first.kinds)
    if type_name == "regex" and name == "replace" and len(given) > 2:
        return _replaced(first, listed(given[1:3]))
    if type_name == "environment" and name == "getenvironmentvariable":
        return variable(f"env:{first.text.lower()}")
    if type_name == "environment" and name == "getfolderpath":
        of, below = known_folder(first.text)
        return made(variable(f"env:{of}").text + below, *given) if of else UNKNOWN
    if type_name == "scriptblock" and name == "create":
        return PsValue(text=first.text, known=first.known, kinds=kinds, type="scriptblock")
    if type_name in {"io.file", "file"} and name.startswith("read"):
        return PsValue(text=first.text, known=False, kinds=kinds | READ)
    if name == "new":
        return PsValue(text=first.text if given else f"[{type_name}]", known=False, kinds=kinds, type=type_name)
    if type_name in {"text.encoding", "encoding"}:
        return PsValue(text=first.text, known=first.known, kinds=kinds)
    if type_name == "array" and name == "reverse":
        return UNKNOWN
    return PsValue(text=UNREAD, known=False, kinds=kinds, type=type_name)


_SHOWS: Final = frozenset({"write-output", "echo", "write", "write-host", "out-string", "out-default", "oss"})
_FETCHERS: Final = frozenset({
    "invoke-webrequest", "iwr", "curl", "wget", "invoke-restmethod", "irm", "curl.exe", "wget.exe",
    "start-bitstransfer", "new-webserviceproxy",
})  # fmt: skip
_PASSES: Final = frozenset({
    "select-object", "select", "where-object", "where", "?", "sort-object", "sort", "tee-object", "tee", "out-string",
    "foreach-object", "%", "foreach", "convertfrom-json", "select-string", "sls", "convertto-securestring",
})  # fmt: skip
_CHOOSE: Final = frozenset({"where-object", "where", "?"})
_NAMES_FILE: Final = frozenset({
    "get-item", "gi", "get-childitem", "gci", "dir", "ls", "resolve-path", "rvpa", "get-command", "gcm", "get-alias",
    "gal", "get-process", "gps", "ps", "get-service", "gsv", "get-wmiobject", "gwmi", "get-ciminstance", "gcim",
    "get-localuser", "get-aduser", "get-adgroup", "get-disk", "get-volume", "get-eventlog", "get-winevent",
    "get-variable", "gv", "get-itemproperty", "gp", "convert-path",
})  # fmt: skip
_NAMES_COMMAND: Final = frozenset({"get-command", "gcm", "get-alias", "gal"})
_MEANT: Final = ("invoke-expression", "iex", "invoke-command", "start-process", "invoke-webrequest", "remove-item")
_CHOOSES: Final = frozenset({"-filter", "-include", "-fi", "-i"})
_READS: Final = frozenset({"get-content", "gc", "cat", "type", "import-csv", "get-clipboard", "gcb"})


def quoted(name: str, args: list[str], words: list[PsValue], before: PsValue, kinds: frozenset[str]) -> PsValue:
    """Return what a command gives on, so far as that is known from its words."""
    plain = [arg for arg in args if arg and not arg.startswith("-")]
    if name in _SHOWS:
        held = [word for word in words if not word.text.startswith("-")]
        if not held:
            return before
        return made(" ".join(word.text for word in held), *held)
    if name in _FETCHERS:
        return PsValue(text=UNREAD, known=False, kinds=kinds | FETCHED)
    if name == "new-object":
        shown = next((arg for arg in plain), "").lower().removeprefix("system.")
        inner = words[1:] if words else []
        packed = next((word for word in inner if word.kinds or word.type), NOTHING)
        return PsValue(text=packed.text, known=False, kinds=kinds, type=shown)
    if name in _PASSES:
        block = next((word for word in words if word.block), None)
        if not before.text and name in _CHOOSE:  # of a list of everything, what has the first of these names
            return PsValue(
                text=first_name(block.text if block else plain[-1] if plain else ""), known=False, kinds=kinds
            )
        if block is not None and "[char]" in block.text.replace(" ", "").lower() and before.known:
            numbers = before.spread()
            return cast("char[]", listed(numbers)) if "bxor" not in block.text.lower() else UNKNOWN
        return PsValue(
            text=before.text, known=before.known and block is None, kinds=kinds, items=before.items, type=before.type
        )
    if name in {"join-path"} and len(plain) > 1:
        return made(f"{plain[0].rstrip(chr(92))}\\{plain[1].lstrip(chr(92))}", *words)
    if name in _READS:
        return PsValue(text=plain[0] if plain else "", known=False, kinds=kinds | READ)
    if name in _NAMES_FILE:
        folder = plain[0] if plain else ""
        lowered = [arg.lower() for arg in args]
        chosen = next((args[at + 1] for at, arg in enumerate(lowered[:-1]) if arg in _CHOOSES), "")
        if chosen and _is_place(folder) and "*" in chosen:  # of what lies in the folder, what has such a name
            folder = f"{folder.rstrip(chr(92) + '/*')}\\{chosen}"
        if name in _NAMES_COMMAND and ("*" in folder or "?" in folder):  # which may be one that runs what it is given
            folder = next((one for one in _MEANT if glob_match(folder.lower().replace("?", "*"), one)), folder)
        return PsValue(text=folder, known=name in _NAMES_COMMAND, kinds=kinds)
    return PsValue(text=UNREAD, known=False, kinds=kinds)
