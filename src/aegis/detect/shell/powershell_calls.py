"""What calls of .NET and commands of PowerShell give on, so far as their words say it.

Every function is pure; what they make is bounded as all values are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from ntpath import normpath
from typing import Final

from aegis.core.names import glob_match
from aegis.core.patterns import Lazy
from aegis.detect.shell.catalogue import of_kind
from aegis.detect.shell.powershell_values import (
    DECODED,
    FETCHED,
    MOST_ITEMS,
    MOST_TEXT,
    NO_KINDS,
    NOTHING,
    READ,
    SECRET,
    SENDABLE,
    UNKNOWN,
    UNREAD,
    PsValue,
    cast,
    constant,
    formatted,
    is_place,
    is_rooted,
    listed,
    listed_texts,
    made,
    number_of,
    replaced,
    told,
    variable,
)
from aegis.detect.shell.words import decoded_base64, first_name, known_folder
from aegis.detect.tool_words import vocabulary

_LISTS_FILES: Final = frozenset({"getfolder", "getfile", "namespace"})
_OPENS_KEY: Final = frozenset({"opensubkey", "createsubkey"})


def changed(value: PsValue, name: str, given: Sequence[PsValue]) -> dict[str, PsValue]:
    """Return the variables that a call changes: lists and texts that are added to, an array that is turned round."""
    first = given[0] if given else NOTHING
    if name == "reverse" and value.type == "array" and first.items:
        return {first.name: listed(first.items[::-1])}
    if value.name and name in {"append", "add"} and given:
        text, items = value.text.removeprefix(f"[{value.type}]"), value.items
        if value.type.endswith("stringbuilder"):
            return {value.name: made(text + first.text, first)._replace(type=value.type)}
        if value.type.endswith(("arraylist", "list[string]")):
            return {value.name: listed([*items, first])._replace(type=value.type)}
    return {}


_STRIPS: Final[Mapping[str, Callable[[str, str | None], str]]] = {
    "trim": str.strip, "trimstart": str.lstrip, "trimend": str.rstrip,
}  # fmt: skip
_PADS: Final = {"padleft": str.rjust, "padright": str.ljust}
_FINDS: Final[Mapping[str, Callable[[str, str], bool | int]]] = {
    "contains": str.__contains__, "startswith": str.startswith, "endswith": str.endswith, "equals": str.__eq__,
    "indexof": str.find, "lastindexof": str.rfind,
}  # fmt: skip


def method(value: PsValue, name: str, given: Sequence[PsValue]) -> PsValue:
    """Return `value.name(given)`."""
    kinds = value.kinds.union(*(one.kinds for one in given)) if given else value.kinds
    if name in vocabulary().values["psfetches"]:
        return PsValue(text=UNREAD, known=False, kinds=kinds | FETCHED)
    if name in vocabulary().values["psgoesover"] and is_place(value.text):
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
        elif name in _STRIPS:
            signs = "".join(piece for one in given for piece in one.spread_text()) or None
            return made(_STRIPS[name](text, signs), value)
        elif name in _PADS and (width := number_of(first)) is not None and width <= MOST_TEXT:
            sign = given[1].text if len(given) > 1 else " "
            return made(_PADS[name](text, width, sign), value) if len(sign) == 1 else UNKNOWN
        elif name in _FINDS and given:
            found = _FINDS[name](text, first.text)
            return told(found) if isinstance(found, bool) else constant(str(found))
        elif name == "tochararray":
            return listed_texts(list(text), value)
        elif name == "split" and given and first.text:
            return listed_texts(text.split(first.text[0], MOST_ITEMS), value)
        elif name in {"substring", "remove"}:
            start, length = number_of(first), number_of(given[1]) if len(given) > 1 else None
            if start is not None and start >= 0:
                end = None if length is None else start + length
                cut = text[start:end] if name == "substring" else text[:start] + ("" if end is None else text[end:])
                return made(cut, value)
        elif name == "insert" and len(given) == 2 and (at := number_of(first)) is not None and at >= 0:
            return made(text[:at] + given[1].text + text[at:], value)
    if name in _OPENS_KEY and first.text:  # a key below a key, which later calls are made on
        return PsValue(text=f"{value.type or value.text}\\{first.text}"[:MOST_TEXT], known=False, kinds=kinds)
    if name == "getnetworkcredential":
        return PsValue(text=UNREAD, known=False, kinds=kinds, type="networkcredential")
    if name == "getmethod" and value.type:
        return PsValue(text=value.text, known=False, kinds=kinds, type=f"{value.type}::{first.text.lower()}")
    if name in _LISTS_FILES and is_place(first.text):
        return PsValue(text=first.text, known=False, kinds=kinds)
    if name in vocabulary().values["psgivesitself"]:
        return value.named("")
    if name in {"getstring", "readtoend", "decompress", "read"}:
        source = next((one for one in given if one.kinds), value)
        plain = next((one for one in given if one.known and one.text), UNKNOWN)
        return PsValue(text=plain.text, known=plain.known, kinds=kinds | source.kinds)
    return PsValue(text=UNREAD, known=False, kinds=kinds)


_LISTED_TYPES: Final = frozenset({"diagnostics.process", "serviceprocess.servicecontroller"})


def static_call(type_name: str, name: str, given: Sequence[PsValue]) -> PsValue:
    """Return `[type]::name(given)`."""
    kinds = NO_KINDS.union(*(one.kinds for one in given)) if given else NO_KINDS
    first = given[0] if given else UNKNOWN
    if name in {"toboolean", "parse"} and type_name in {"convert", "bool", "boolean"}:
        return told(first.text.strip().lower() in {"true", "1", "$true"}) if first.known else UNKNOWN
    if type_name in {"convert", "system.convert"}:
        if name == "frombase64string":
            text = decoded_base64(first.text) if first.known else None
            return PsValue(text=text or UNREAD, known=text is not None, kinds=kinds | DECODED)
        if name in {"toint16", "toint32", "tobyte"} and first.known and len(first.text) < 12:
            base = number_of(given[1]) if len(given) > 1 else 10
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
            return formatted(first, listed([piece for one in rest for piece in one.spread()]))
    if type_name == "io.path":
        return _path(name, given)
    if name in vocabulary().values["psgoesover"] and type_name in {"io.directory", "directory"}:
        return PsValue(text=first.text, known=False, kinds=kinds)
    if name in {"openbasekey", "openremotebasekey"} and given:
        return PsValue(text=f"registry.{first.text.lower()}"[:MOST_TEXT], known=False, kinds=first.kinds)
    if type_name == "regex" and name == "replace" and len(given) > 2:
        return replaced(first, listed(given[1:3]))
    if type_name == "environment" and name == "getenvironmentvariable":
        return variable(f"env:{first.text.lower()}")
    if type_name == "environment" and name == "getfolderpath":
        of, below = known_folder(first.text)
        return made(variable(f"env:{of}").text + below, *given) if of else UNKNOWN
    if type_name == "type" and name == "gettype":
        return cast("type", first)
    if name.startswith(("getprocess", "getservices")) and type_name in _LISTED_TYPES:
        return PsValue(text=first.text if given else "*", known=False, kinds=kinds, type="process")
    if type_name == "scriptblock" and name == "create":
        return PsValue(text=first.text, known=first.known, kinds=kinds, type="scriptblock")
    if type_name in {"io.file", "file"} and name.startswith("read"):
        return PsValue(text=first.text, known=False, kinds=kinds | READ)
    if name == "new" or (name == "createinstance" and first.type):
        type_name = type_name if name == "new" else first.type
        made_of = " ".join(piece for one in given for piece in one.spread_text()) if name == "new" else ""
        return PsValue(text=made_of[:MOST_TEXT] or f"[{type_name}]", known=False, kinds=kinds, type=type_name)
    if type_name in {"text.encoding", "encoding"}:
        return PsValue(text=first.text, known=first.known, kinds=kinds)
    if type_name == "array" and name == "reverse":
        return UNKNOWN
    return PsValue(text=UNREAD, known=False, kinds=kinds, type=type_name)


def _path(name: str, given: Sequence[PsValue]) -> PsValue:
    """Return what a call of `[IO.Path]` makes: of parts that are combined, the last one with a root begins the path."""
    pieces = [piece for one in given for piece in one.spread_text()]
    if name in {"combine", "join"}:
        rooted = [at for at, piece in enumerate(pieces) if name == "combine" and is_rooted(piece)]
        return made("\\".join(pieces[rooted[-1] if rooted else 0 :]), *given)
    path = pieces[0].replace("/", "\\") if pieces else ""
    above, _, last = path.rpartition("\\")
    if name in {"getfullpath", "getdirectoryname", "getfilename", "getpathroot"} and path:
        full = normpath(path) if ".." in path else pieces[0]
        parts = {"getfullpath": full, "getdirectoryname": above, "getfilename": last, "getpathroot": path[:3]}
        return made(parts[name], *given)
    return PsValue(text=UNREAD, known=False, kinds=NO_KINDS.union(*(one.kinds for one in given)), type="io.path")


def _parted(path: str, options: Sequence[str]) -> str:
    """Return the part of a path that `Split-Path` gives: what is above it, where no option says otherwise."""
    asked = next((option for option in options if option[:2] in {"-l", "-q", "-n"} and option[:3] != "-li"), "")
    if asked[:2] in {"-q", "-n"}:
        drive = path[:2] if path[1:2] == ":" else ""
        return drive if asked[:2] == "-q" else path[len(drive) :]
    above, sign, last = path.replace("/", "\\").rstrip("\\").rpartition("\\")
    if not sign:  # a name alone, or a path that nobody knows
        return last if asked or "$" in last else "."
    return last if asked else f"{above}\\" if above[-1:] == ":" else above


def _selected(value: PsValue, args: Sequence[str]) -> PsValue:
    """Return the items of an array that `Select-Object` takes by their places."""
    items = list(value.items)
    for option, given in pairwise(args):
        number = number_of(constant(given)) or 0
        if option in {"-first", "-last", "-skip", "-index"} and (number > 0 or given == "0"):
            takes = {"-first": slice(number), "-skip": slice(number, None), "-index": slice(number, number + 1)}
            items = items[takes.get(option, slice(-number, None))]
    return value if len(items) == len(value.items) else listed(items)


_SHOWS: Final = frozenset({"write-output", "echo", "write", "write-host", "out-string", "out-default", "oss"})
_OBJECTS: Final = frozenset({"psobject", "pscustomobject", "management.automation.psobject"})
_CHOOSE: Final = frozenset({"where-object", "where", "?"})
VIRTUAL_DISK: Final = "<virtual-disk>"  # what stands for the path of a disk of a virtual machine
_LISTS_DISKS: Final = frozenset({"get-vmharddiskdrive", "get-vhd", "get-harddisk", "get-scvirtualharddisk"})
_ASKS_WMI: Final = frozenset({"get-wmiobject", "gwmi", "get-ciminstance", "gcim"})
_SHORT_QUERY: Final = 64  # characters in which a query of WMI names what it is about
_NAMES_COMMAND: Final = frozenset({"get-command", "gcm", "get-alias", "gal"})
_MEANT: Final = ("invoke-expression", "iex", "invoke-command", "start-process", "invoke-webrequest", "remove-item")
_CHOOSES: Final = frozenset({"-filter", "-include", "-fi", "-i"})
_READS_KEYS: Final = frozenset({"get-itemproperty", "gp", "get-itempropertyvalue", "gpv"})  # where no file shows it
_READS: Final = frozenset({"get-content", "gc", "cat", "type", "import-csv", "get-clipboard", "gcb"})


def _asked(args: Sequence[str]) -> str:
    """The class of objects that WMI is asked for, and which of them, as one text."""
    lowered = [arg.lower() for arg in args]
    said = [args[at + 1] for at, arg in enumerate(lowered[:-1]) if arg[:1] == "-" and "-query".startswith(arg)]
    chosen = [args[at + 1] for at, arg in enumerate(lowered[:-1]) if arg[:1] == "-" and "-filter".startswith(arg)]
    plain = [arg for arg in args if arg and arg[0] != "-" and arg not in chosen and "\\" not in arg]
    named = next((arg for arg in plain if "_" in arg), plain[0] if plain else "")
    return " ".join(said or [named, *chosen])[:MOST_TEXT]


def quoted(name: str, args: list[str], words: list[PsValue], before: PsValue, kinds: frozenset[str]) -> PsValue:
    """Return what a command gives on, so far as that is known from its words."""
    plain = [arg for arg in args if arg and not arg.startswith("-")]
    if name in _SHOWS:
        held = [word for word in words if not word.text.startswith("-")]
        if not held:
            return before
        return made(" ".join(word.text for word in held), *held)
    if name in vocabulary().values["psfetchers"]:
        return PsValue(text=UNREAD, known=False, kinds=kinds | FETCHED)
    if name == "new-object":
        shown = next((arg for arg in plain), "").lower().removeprefix("system.")
        inner = words[1:] if words else []
        if shown in _OBJECTS and (table := next((word for word in inner if word.fields is not None), None)) is not None:
            return table._replace(type="psobject")
        packed = next((word for word in inner if word.kinds or word.type), NOTHING)
        text = packed.text or " ".join(plain[1:])[:MOST_TEXT]
        return PsValue(text=text, known=False, kinds=kinds, type=shown)
    if name in vocabulary().values["pspasses"]:
        block = next((word for word in words if word.block), None)
        if before.items and name in {"select-object", "select"}:
            before = _selected(before, [arg.lower() for arg in args])
        if before.text in {"", "*"} and name in _CHOOSE:  # of a list of everything, what has the first of these names
            return PsValue(
                text=first_name(block.text if block else plain[-1] if plain else ""), known=False, kinds=kinds
            )
        if name in _CHOOSE and "win32_" in before.text[:_SHORT_QUERY].lower():
            chosen = first_name(block.text if block else plain[-1] if plain else "")
            return before._replace(text=f"{before.text} name={chosen}"[:MOST_TEXT], known=False, kinds=kinds)
        if block is not None and "[char]" in block.text.replace(" ", "").lower() and before.known:
            numbers = before.spread()
            return cast("char[]", listed(numbers)) if "bxor" not in block.text.lower() else UNKNOWN
        return PsValue(
            text=before.text, known=before.known and block is None, kinds=kinds, items=before.items, type=before.type
        )
    if name in {"join-path"} and len(plain) > 1:
        return made(f"{plain[0].rstrip(chr(92))}\\{plain[1].lstrip(chr(92))}", *words)
    if name == "split-path" and (plain or before.text):
        return made(_parted(plain[0] if plain else before.text, [arg.lower() for arg in args]), before, *words)
    if name == "convertfrom-stringdata":
        pairs = [line.partition("=") for line in (plain[0] if plain else before.text).splitlines()[:MOST_ITEMS]]
        told_of = {key.strip().lower(): constant(value.strip()) for key, sign, value in pairs if sign}
        return PsValue(text="@{}", known=False, fields=told_of)
    if name in _READS_KEYS and plain and plain[0][:5].lower() in ("hkcu:", "hklm:"):
        return PsValue(text=UNREAD, known=False, kinds=kinds | DECODED)
    if name in _READS:
        return PsValue(text=plain[0] if plain else "", known=False, kinds=kinds | READ)
    if name in _LISTS_DISKS:
        return PsValue(text=VIRTUAL_DISK, known=False, kinds=kinds, type=VIRTUAL_DISK)
    if name in _ASKS_WMI:
        return PsValue(text=_asked(args), known=False, kinds=kinds)
    if name in vocabulary().values["psnamesfile"] or name in vocabulary().values["pslistsall"]:
        folder = plain[0] if plain else "*" if name in vocabulary().values["pslistsall"] else ""
        lowered = [arg.lower() for arg in args]
        chosen = next((args[at + 1] for at, arg in enumerate(lowered[:-1]) if arg in _CHOOSES), "")
        if chosen and is_place(folder) and "*" in chosen:  # of what lies in the folder, what has such a name
            folder = f"{folder.rstrip(chr(92) + '/*')}\\{chosen}"
        if name in _NAMES_COMMAND and ("*" in folder or "?" in folder):  # which may be one that runs what it is given
            folder = next((one for one in _MEANT if glob_match(folder.lower().replace("?", "*"), one)), folder)
        told_env = SENDABLE if folder.lower() in {"env:", "env:*"} else NO_KINDS
        return PsValue(text=folder, known=name in _NAMES_COMMAND, kinds=kinds | told_env)
    return PsValue(text=UNREAD, known=False, kinds=kinds if name.startswith(_RESPELLS) else kinds - SECRET)


_RESPELLS: Final = ("convert", "format-", "out-")


# Blocks that are run elsewhere, or later


RUN_BLOCKS: Final = frozenset({
    "%", "foreach-object", "icm", "invoke-command", "measure-command", "sajb", "start-job", "start-threadjob",
})  # fmt: skip
_ELSEWHERE: Final = ("-computername", "-cn", "-session", "-hostname", "-vmname", "-containerid", "-connectionuri")


def is_elsewhere(name: str, words: Sequence[PsValue]) -> bool:
    """Whether a block that a command is given runs in another session, which has no variables of this one."""
    away = any(word.text.lower() in _ELSEWHERE for word in words)
    return name in {"start-job", "sajb", "start-threadjob"} or (away and name in {"invoke-command", "icm"})


def seen_elsewhere(known: Mapping[str, PsValue]) -> dict[str, PsValue]:
    """Return what is known in another session: nothing of this one but what is named with `$using:`."""
    plain = {name: value for name, value in known.items() if not name.startswith(("using:", "env:"))}
    return {**dict.fromkeys(plain, constant("")), **{f"using:{name}": value for name, value in plain.items()}}


def splatted(known: PsValue) -> list[PsValue]:
    """Return the words that an array or a table stands for behind `@`."""
    words: list[PsValue] = list(known.items)
    for key, value in (known.fields or {}).items():
        if value.text.lower() == "$true":
            words.append(constant(f"-{key}:$true"))
        elif value.text.lower() != "$false":
            words += [constant(f"-{key}"), value]
    return words


def parameters(atoms: Sequence[str]) -> list[str]:
    """Return the names that a list of parameters in brackets declares."""
    depth, before = 0, ""
    names: list[str] = []
    for at, atom in enumerate(atoms):
        depth += (atom in _OPENS) - (atom in _CLOSES)
        if atom == "$" and depth == 1 and before in {"(", ",", "]"} and at + 1 < len(atoms):
            names.append(atoms[at + 1].lower())
        before = atom if atom.strip() else before
    return names[:MOST_ITEMS]


_OPENS: Final = frozenset("([{")
_CLOSES: Final = frozenset(")]}")


def arguments(words: Sequence[PsValue]) -> tuple[PsValue, ...]:
    """Return what the block of a command is given."""
    given = [after for word, after in pairwise(words) if word.text.lower() in {"-argumentlist", "-args"}]
    return given[0].spread() if given else ()


def by_name(before: PsValue, called: str) -> list[PsValue]:
    """Return the parameters that a command takes from the properties of an object that is piped into it."""
    told_on = called in vocabulary().values["pspasses"] or called.startswith(("format-", "convert", "export-", "out-"))
    return splatted(before) if before.type == "psobject" and not told_on else []


def bound(names: Sequence[str], words: Sequence[PsValue]) -> dict[str, PsValue]:
    """Return the parameters of a block or function that is called with these words, by their names."""
    found: dict[str, PsValue] = {}
    plain: list[PsValue] = []
    waits = ""
    for word in words:
        option = word.text[1:].lower().rstrip(":") if word.text[:1] == "-" else ""
        named = next((name for name in names if option and name.startswith(option)), "")
        if named:
            found[named], waits = constant("$true"), named
        elif waits:
            found[waits], waits = word, ""
        else:
            plain.append(word)
    return {**dict(zip([name for name in names if name not in found], plain, strict=False)), **found}


_SETS_DEFAULTS: Final = Lazy(r"(?i)^\s{0,9}\$psdefaultparametervalues\s*=")
_CHANGES_DEFAULTS: Final = Lazy(
    r"(?i)defaultparameter|variable|-parallel|\b(?:invoke-command|icm|start-job|sajb|start-threadjob|iex|invoke-expression|[scr]v|clv)\b"
)


_CMDLETS: Final = of_kind("cmdlet")


def sets_defaults(text: str) -> bool:
    """Whether a text first of all says what commands are given, and neither takes it back nor runs one elsewhere."""
    if "defaultparametervalues" not in text[:64].lower():
        return False
    text = text.encode("utf-8", "replace").decode()  # no pattern takes half of a character
    found = _SETS_DEFAULTS.match(text)
    return found is not None and _CHANGES_DEFAULTS.search(text[found.end() :]) is None


def defaulted(defaults: PsValue, called: str, words: Sequence[PsValue]) -> list[PsValue]:
    """Return the switches that a cmdlet has by `$PSDefaultParameterValues`, unless it says otherwise itself."""
    if called not in _CMDLETS:  # no other program is given any
        return []
    given = [word.text.lower().partition(":")[0] for word in words if word.text[:1] == "-" and len(word.text) > 2]
    found: list[PsValue] = []
    for key, value in (defaults.fields or {}).items():
        pattern, _, switch = key.lower().strip("'\"").rpartition(":")
        written = any(f"-{switch}".startswith(one) for one in given)
        if value.text.lower() == "$true" and not written and glob_match(pattern, called):
            found.append(constant(f"-{switch}"))
    return found
