"""What commands print, so far as it can be worked out from their words and from what they read.

Commands that choose lines or order them (`head`, `grep`, `sort`) are taken to pass on all that they read: what follows
is then judged by more than it gets, never by less. Nothing here runs anything, and every answer is bounded.
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from aegis.core.patterns import Lazy, foreign
from aegis.detect.files import EMPTY, MAX_FLOW, UNKNOWN, UNKNOWN_GAP, FileFlow
from aegis.detect.shell.catalogue import Prints, members, of_kind
from aegis.detect.shell.edits import substitutes
from aegis.detect.shell.expansions import number
from aegis.detect.shell.heredocs import unescaped
from aegis.detect.shell.starts import split_words

_MOST_FILES: Final = 32  # operands of one filter
_WIDEST: Final = 256  # characters that a directive of `printf` may pad to
Read = Callable[[str], FileFlow]  # what a file holds, by its name


def printed(name: str, args: Sequence[str], stdin: FileFlow, read: Read) -> FileFlow:
    """What a command prints that reads `stdin`; `UNKNOWN` for every command that is not known here."""
    simple = _SIMPLE.get(name)
    if simple is not None:
        return simple(args)
    if name in _SILENT:
        return EMPTY
    if name == "tee":
        return stdin
    if name == "openssl":
        source = next((value for option, value in pairwise(args) if option == "-in"), "-")
        return _decoded(name, args, stdin if source == "-" else read(source))
    if name == "xxd" or name in _CODED:
        return _decoded(name, args, _given(args, stdin, read, valued=_CODED_VALUES))
    if name == "tr":
        return stdin.with_text(_translated(args, stdin.text))
    if name in _TRANSFORMS:
        flow = _given(args, stdin, read)
        return flow.with_text(_TRANSFORMS[name](flow.text))
    if name == "sed":
        return _edited(args, stdin, read)
    prints = _PASSES.get(name)
    if prints is not None:
        flow = _given(args, stdin, read, valued=prints.value, skip=prints.pattern)
        return flow.with_text(flow.text + _members(flow.text)) if name in {"jq", "yq"} else flow
    return UNKNOWN


_XARGS_VALUED: Final = frozenset({"-n", "-L", "-P", "-d", "-s", "-E", "-a", "-j", "--max-args", "--delimiter"})


def repeated(name: str, words: Sequence[str]) -> tuple[list[str], str, str | None]:
    """Return the command that `xargs` or `parallel` starts, what stands for an item in it, and the items given."""
    rest = list(words)
    placeholder = "{}" if name == "parallel" else ""
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in {"-I", "--replace"} and rest:
            placeholder = rest.pop(0)
        elif option.startswith("-I") or option == "-i":
            placeholder = option[2:] or "{}"
        elif option in _XARGS_VALUED and rest:
            rest.pop(0)
    if ":::" in rest:
        at = rest.index(":::")
        return rest[:at], placeholder, "\n".join(rest[at + 1 :])
    return rest, placeholder, None


_BY_NULL: Final = frozenset({"-0", "--null", "-r0", "-0r"})
_WHOLE_LINES: Final = _BY_NULL | {"-d", "--delimiter"}
_MOST_RUNS: Final = 64  # lines that `xargs` and `parallel` make commands of


def repetitions(name: str, words: Sequence[str], rest: list[str], placeholder: str, text: str) -> tuple[str, bool]:
    """The command lines that `xargs` or `parallel` makes of what it reads, and whether it makes more; none to print."""
    whole = name == "xargs" and any(word in _WHOLE_LINES or word[:2] == "-d" for word in words)
    by_null = "\0" in text or any(word in _BY_NULL for word in words)
    every = [line for line in text.split("\0" if by_null else "\n") if line.strip()]
    lines = every[:_MOST_RUNS]
    joined = shlex.join if name == "xargs" or len(rest) > 1 else "".join  # one word is a line
    if not rest:
        return "\n".join(lines) if name == "parallel" else "", len(every) > _MOST_RUNS
    if placeholder and any(placeholder in word for word in rest):
        made = [joined([word.replace(placeholder, line) for word in rest]) for line in lines]
        return "\n".join(made), len(every) > _MOST_RUNS
    arguments = shlex.join(lines if whole else split_words(text))
    return f"{joined(rest)} {arguments}"[:MAX_FLOW], len(every) > _MOST_RUNS


def descriptor(name: str) -> str:
    """Return the name of a file, that of an open one by its number."""
    return name.replace("/proc/self/fd/", "/dev/fd/") if name.startswith("/proc/self/fd/") else name


def _given(
    args: Sequence[str], stdin: FileFlow, read: Read, *, valued: frozenset[str] = frozenset(), skip: bool = False
) -> FileFlow:
    """What a filter reads: its operands, or what comes in."""
    names: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg in valued:
            next(rest, "")
        elif arg == "-" or not arg.startswith("-"):
            names.append(arg)
    if skip:
        names = names[1:]
    if not names:
        return stdin
    flow = EMPTY
    for name in names[:_MOST_FILES]:
        flow = flow.then(stdin if name == "-" else read(name))
    return flow if len(names) <= _MOST_FILES else flow.then(UNKNOWN)


def _echoed(args: Sequence[str]) -> FileFlow:
    words = list(args)
    newline, escapes = "\n", None
    while words and words[0][:1] == "-" and words[0][1:] and not words[0][1:].strip("neE"):
        option = words.pop(0)
        newline = "" if "n" in option else newline
        escapes = "e" in option if "e" in option or "E" in option else escapes
    text = " ".join(words)
    if "\\" in text and escapes is not False:
        # Without an option it depends on the shell whether escapes are undone: both are read.
        text = unescaped(text) if escapes else f"{unescaped(text)}\n{text}"
    return EMPTY.with_text(text + newline)


_DIRECTIVE: Final = Lazy(r"%(%|[-+ #0]*(\d+|\*)?(?:\.(?:\d+|\*))?([a-zA-Z]))")
_NUMBERS: Final = frozenset("diouxX")


def _formatted(args: Sequence[str]) -> FileFlow:
    words = list(args)
    if words[:1] == ["-v"]:
        words = words[2:]
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        return EMPTY
    pattern, values = words[0], words[1:]
    out: list[str] = []
    size = 0
    while True:
        before = len(values)
        piece = _once(pattern, values)
        out.append(piece)
        size += len(piece)
        if not values or len(values) == before or size > MAX_FLOW:
            break
    return EMPTY.with_text("".join(out))


def _once(pattern: str, values: list[str]) -> str:
    """One round of `printf` over its format, which takes what it needs from `values`."""
    out: list[str] = []
    at = 0
    for match in _DIRECTIVE.finditer(pattern):
        out.append(unescaped(pattern[at : match.start()]))
        at = match.end()
        if match.group(1) == "%":
            out.append("%")
            continue
        width = match.group(2)
        if width == "*" and values:
            values.pop(0)
        value = values.pop(0) if values else ""
        kind = match.group(3)
        if kind == "b":
            value = unescaped(value)
        elif kind == "c":
            value = value[:1]
        elif kind in _NUMBERS:
            value = _number(value, kind)
        if width and width.isdecimal():
            value = value.rjust(min(int(width[:4]), _WIDEST))
        out.append(value)
    out.append(unescaped(pattern[at:]))
    return "".join(out)


def _number(value: str, kind: str) -> str:
    try:
        number = ord(value[1]) if value[:1] in {"'", '"'} and len(value) > 1 else int(value[:20] or "0", 0)
    except ValueError:
        return "0"
    return {"o": f"{number:o}", "x": f"{number:x}", "X": f"{number:X}"}.get(kind, str(number))


def _repeated(args: Sequence[str]) -> FileFlow:
    return FileFlow(" ".join(args or ("y",)) + "\n", UNKNOWN_GAP)


_CODED: Final[dict[str, frozenset[str]]] = {
    "base64": frozenset({"-d", "-D", "--decode", "-di", "-id"}),
    "gbase64": frozenset({"-d", "-D", "--decode", "-di"}),
    "base32": frozenset({"-d", "-D", "--decode", "-di"}),
}
_CODED_VALUES: Final = frozenset({"-w", "-c", "-l", "-s", "-b"})


def _decoded(name: str, args: Sequence[str], flow: FileFlow) -> FileFlow:
    """What a decoder prints; an encoder's output runs nothing and is not worked out."""
    try:
        if name == "xxd":
            if not any(arg.startswith("-") and "r" in arg for arg in args):
                return FileFlow("", UNKNOWN_GAP, flow.files)
            return flow.with_text(_hex(flow.text, plain=any(arg.startswith("-") and "p" in arg for arg in args)))
        if name == "openssl":
            if "-d" not in args or not {"base64", "-base64", "-a"} & set(args):
                return FileFlow("", UNKNOWN_GAP, flow.files)
        elif not _CODED[name] & set(args):
            return FileFlow("", UNKNOWN_GAP, flow.files)
        body = "".join(flow.text.split())
        if name == "base32":
            return flow.with_text(
                base64.b32decode(body + "=" * (-len(body) % 8), casefold=True).decode("utf-8", "replace")
            )
        return flow.with_text(_from_base64(body))
    except (binascii.Error, ValueError):
        return FileFlow("", UNKNOWN_GAP, flow.files)


def _from_base64(body: str) -> str:
    """The decoded text; each padded piece on its own, as decoders take what follows padding."""
    out: list[str] = []
    for piece in body.replace("=", "= ").split():
        core = piece.rstrip("=")
        if core:
            core = core[: len(core) - (len(core) % 4 == 1)]
            out.append(base64.b64decode(core + "=" * (-len(core) % 4)).decode("utf-8", "replace"))
    return "".join(out)


def _hex(text: str, *, plain: bool) -> str:
    if not plain:  # each line has its place before it and its characters behind it
        text = "\n".join(line.partition(":")[2].partition("  ")[0] or line for line in text.split("\n"))
    digits = "".join(text.split())
    return bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("utf-8", "replace")


_CLASSES: Final = {
    "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "[:lower:]": "abcdefghijklmnopqrstuvwxyz", "[:digit:]": "0123456789",
    "[:space:]": " \t\n\r\v\f", "[:blank:]": " \t",
}  # fmt: skip


def _translated(args: Sequence[str], text: str) -> str:
    """What `tr` makes of a text: replaced, deleted, or (as it stands) squeezed."""
    flags = "".join(arg[1:] for arg in args if arg.startswith("-") and len(arg) > 1)
    sets = [arg for arg in args if not arg.startswith("-") or arg == "-"]
    if not sets:
        return text
    first = _set(sets[0])
    if "d" in flags:
        kept = set(first)
        return "".join(char for char in text if (char in kept) == ("c" in flags or "C" in flags))
    if len(sets) < 2 or not first:
        return text
    second = _set(sets[1]) or " "
    if "c" in flags or "C" in flags:
        kept = set(first)
        return "".join(char if char in kept else second[-1] for char in text)
    second += second[-1] * (len(first) - len(second))
    return text.translate({ord(left): right for left, right in reversed(list(zip(first, second, strict=False)))})


def _set(written: str) -> str:
    """The characters of a set of `tr`: ranges, classes and escapes."""
    for name, chars in _CLASSES.items():
        written = written.replace(name, chars)
    written = unescaped(written)[:_WIDEST]
    out: list[str] = []
    at = 0
    while at < len(written):
        if at + 2 < len(written) and written[at + 1] == "-" and 0 <= ord(written[at + 2]) - ord(written[at]) < _WIDEST:
            out.append("".join(map(chr, range(ord(written[at]), ord(written[at + 2]) + 1))))
            at += 3
        else:
            out.append(written[at])
            at += 1
    return "".join(out)[: 4 * _WIDEST]


def _turned(text: str) -> str:
    return "\n".join(line[::-1] for line in text.split("\n"))


def _bottom_up(text: str) -> str:
    return "\n".join(reversed(text.split("\n")))


_TRANSFORMS: Final[dict[str, Callable[[str], str]]] = {"rev": _turned, "tac": _bottom_up}
_MOST_EDITS: Final = 32  # substitutions of one `sed` that are worked out


def _edited(args: Sequence[str], stdin: FileFlow, read: Read) -> FileFlow:
    """What `sed` prints: its substitutions done, every other command of it left out."""
    scripts: list[str] = []
    names: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg in {"-e", "--expression"}:
            scripts.append(next(rest, ""))
        elif arg == "-" or not arg.startswith("-"):
            names.append(arg)
    if not scripts and names:
        scripts.append(names.pop(0))
    flow = _given(names, stdin, read)
    if not flow.text:
        return flow
    extended = any(arg[:1] == "-" and arg[1:2] != "-" and ("E" in arg or "r" in arg) for arg in args)
    text = flow.text
    for count, (pattern, instead, flags) in enumerate(substitutes(scripts)):
        if count >= _MOST_EDITS:
            return FileFlow(text, UNKNOWN_GAP, flow.files)
        found = _pattern(pattern, extended=extended, ignores_case="i" in flags.lower())
        if found is None:  # what it makes of the text is not known: what it read stands for it
            flow = flow._replace(gap=UNKNOWN_GAP)
            continue
        replace = _replacement(instead)
        text = "\n".join(found.sub(replace, line, 0 if "g" in flags else 1) for line in text.split("\n"))[:MAX_FLOW]
    return flow.with_text(text)


# What a backslash means in a basic expression is what none means in an extended one (POSIX.1-2017, 9.3.3).
_SWAPPED: Final = Lazy(r"\\?[(){}+?|]")


def _pattern(written: str, *, extended: bool, ignores_case: bool) -> Any:
    """A pattern of `sed`, compiled; `None` where it is none that is known here."""
    if not extended:
        written = str(
            _SWAPPED.sub(lambda found: found.group()[-1] if len(found.group()) > 1 else f"\\{found.group()}", written)
        )
    return foreign(f"(?i){written}" if ignores_case else written)


_BACK: Final = Lazy(r"\\([0-9])|\\(.)|&")


def _replacement(written: str) -> Callable[[Any], str]:
    """What `sed` puts in place of a match: `&` and `\\1` are what was matched."""

    def replace(match: Any) -> str:
        def part(found: Any) -> str:
            if found.group(2) is not None:
                return {"n": "\n", "t": "\t"}.get(found.group(2), str(found.group(2)))
            number = int(found.group(1) or 0)
            return (match.group(number) or "") if number <= match.re.groups else ""

        return str(_BACK.sub(part, written))

    return replace


def _strings(args: Sequence[str]) -> FileFlow:
    """What `string` of fish leaves of its words; what matches a pattern that may mean others only where inverted."""
    deed = "".join(args[:1])
    flags = [arg for arg in args[1:] if arg[:1] == "-" and len(arg) > 1]
    words = [arg for arg in args[1:] if arg not in flags]
    if deed == "join" and words:
        return EMPTY.with_text(words[0].join(words[1:]))
    if deed == "replace" and len(words) > 2 and not any("r" in flag.strip("-")[:2] for flag in flags):
        count = -1 if any(flag in ("-a", "--all") for flag in flags) else 1
        return EMPTY.with_text("\n".join(word.replace(words[0], words[1], count) for word in words[2:]))
    if deed != "match" or len(words) < 2:
        return UNKNOWN
    turned = any(flag == "--invert" or (flag[1:2] != "-" and "v" in flag) for flag in flags)
    return EMPTY.with_text("\n".join(word for word in words[1:] if turned or "*" not in word))


def _summed(args: Sequence[str]) -> FileFlow:
    found = number(" ".join(args), lambda _: "?")
    return UNKNOWN if found is None else EMPTY.with_text(f"{found}\n")


def _members(text: str) -> str:
    """Every text in a JSON value, a line each: what `jq -r` picks is one of them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    found: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return "\n" + "\n".join(reversed(found))


_PATHS: Final[dict[str, Callable[[str], str]]] = {
    "dirname": posixpath.dirname, "basename": posixpath.basename, "realpath": posixpath.normpath,
    "normalize": posixpath.normpath, "resolve": posixpath.normpath, "readlink": posixpath.normpath,
}  # fmt: skip


def _path(name: str) -> Callable[[Sequence[str]], FileFlow]:
    """What a program prints that takes a path apart: `dirname /a/b`, and `path dirname /a/b` of fish."""

    def made(args: Sequence[str]) -> FileFlow:
        turn = _PATHS.get(args[0] if name == "path" and args else name)
        words = [arg for arg in args[name == "path" :] if arg[:1] != "-"]
        if turn is None or not words or any("$" in word for word in words):
            return UNKNOWN
        return EMPTY.with_text("\n".join(turn(word.rstrip("/") or "/") for word in words[:_MOST_FILES]) + "\n")

    return made


_SIMPLE: Final[Mapping[str, Callable[[Sequence[str]], FileFlow]]] = {
    "echo": _echoed, "printf": _formatted, "yes": _repeated, "print": _echoed, "expr": _summed,
    "string": _strings, **{name: _path(name) for name in ("dirname", "basename", "realpath", "readlink", "path")},
}  # fmt: skip
_SILENT: Final = of_kind("silent")
_PASSES: Final = members("prints", Prints)
