"""The sets of programs that several analysers of commands ask for, the places that they know, packed texts and
templates of what is printed.

Which programs they are stands in `data/programs`.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.facts import RanCommand
from aegis.detect.paths import is_settings_file
from aegis.detect.shell.catalogue import Prints, builtin_programs, members, of_kind, options
from aegis.detect.shell.tree import Command
from aegis.detect.tool_words import is_throwaway

SHELLS: Final = of_kind("shell")
INTERPRETERS: Final = SHELLS | of_kind("interpreter")
FETCHERS: Final = of_kind("fetcher")
SENDERS: Final = FETCHERS | of_kind("sender")
NETWORK: Final = SENDERS | of_kind("network")
# Commands that name a shell without starting it, or whose work is to start one where a person wants it.
NAMES_A_SHELL: Final = SHELLS | of_kind("names-shell")
# Those of the above that start what they are given: a bare shell as the last word is a shell started.
STARTS: Final = of_kind("starts-shell")
FED: Final = of_kind("fed")
DELETERS: Final = of_kind("deleter")
WRITERS: Final = of_kind("writer")
READERS: Final = of_kind("reader")
# Commands that name a file without giving away what is in it.
NAMERS: Final = of_kind("namer")
# Places that every user can write, where programs have no business.
LOOSE_PLACES: Final = ("/tmp/", "/dev/shm/", "/var/tmp/", "%temp%", "$env:temp", "/run/user/")  # noqa: S108 - looked for
SYSTEM_ROOTS: Final = frozenset({
    "/", "/*", "~", "~/", "~/*", "$home", "$home/", "$home/*", "${home}", "${home}/*", "/etc", "/usr", "/bin", "/sbin",
    "/lib", "/lib64", "/boot", "/var", "/home", "/root", "/sys", "/proc", "/dev", "/opt", "/etc/*", "/usr/*",
    "/bin/*", "/boot/*", "/var/*", "/home/*", "/root/*", "/lib/*", "c:\\", "c:\\*", "c:/", "/.", "/..", "/**", "//",
    "$home/.", "c:\\windows", "%userprofile%", "/system", "/library", "/users",
})  # fmt: skip
_STATEMENTS: Final = {name: frozenset(words) for name, words in options("statement").items()}

# Commands that look for a pattern in files; behind these options stands no file, and behind `-o` nothing is written.
SEARCHERS: Final = frozenset(name for name, prints in members("prints", Prints).items() if prints.pattern)
_NO_FILE: Final = frozenset({
    "-A", "-B", "-C", "-m", "--after-context", "--before-context", "--context", "--max-count", "--max-depth",
    "--replace", "--type", "--type-not",
})  # fmt: skip
_NO_FILE_OF: Final = {"rg": frozenset({"-E", "-M", "-T", "-d", "-j", "-r", "-t"})}
_OUTPUTS: Final = frozenset({"-out", "-keyout", "-o", "--output", "-O", "--output-document", "-of"})
_TAKES_TEXT: Final = of_kind("awk") | SEARCHERS | {"sed", "gsed"}
_GIVES_TEXT: Final = frozenset({"-e", "-f", "--expression", "--regexp", "--file"})


def no_files(name: str, args: Sequence[str]) -> frozenset[int]:
    """Return where the words of a command stand that are no files it reads: a pattern, values of options, outputs."""
    if name == "openssl" and not _OF_KEYS.isdisjoint(args[:1]) and "-pubout" in args and "-text" not in args:
        return frozenset(range(len(args)))  # of a key, the half that everybody may have
    if name == "openssl" and (not _OF_CERTIFICATES.isdisjoint(args[:1]) or _is_keyless(args)):
        return frozenset(range(len(args)))
    settings = [at for at, arg in enumerate(args) if is_settings_file(arg)]
    if settings and shows_names(name, args):
        return frozenset(settings)
    found, values = set[int](), set[int]()  # `values` stand behind options, those that name files among them
    for at, before in enumerate(args[:-1], 1):
        if name not in SEARCHERS:
            signs = before in _SIGNS_WITH.get(name, ()) and args[0] != "pkcs12"
            found.update([at] if before in _OUTPUTS or signs else ())
        elif before in _GLOBS:
            values.add(at)
            found.update([at] if args[at].startswith("!") else ())
        elif before in _NO_FILE or before in _NO_FILE_OF.get(name, ()):
            found.add(at)
    if name in _TAKES_TEXT and _GIVES_TEXT.isdisjoint(args):
        skipped = found | values if name in SEARCHERS else values
        found.update(next(([at] for at, arg in enumerate(args) if arg[:1] != "-" and at not in skipped), ()))
    return frozenset(found)


_OF_KEYS: Final = frozenset({"dsa", "ec", "pkey", "rsa"})
_OF_CERTIFICATES: Final = frozenset({"crl", "req", "verify", "x509"})  # which show no key of what they are given
_BEFORE_KEYLESS: Final = frozenset({"-cacerts", "-clcerts", "-info", "-legacy", "-nodes", "-noenc"})  # take no value


def _is_keyless(args: Sequence[str]) -> bool:
    """Whether certificates alone come out of a store of keys: `-nokeys`, where it is no value of another option."""
    return args[:1] == ("pkcs12",) and any(
        arg == "-nokeys" and (before[:1] != "-" or before in _BEFORE_KEYLESS) for before, arg in pairwise(args)
    )


# Options whose key signs or opens a connection, and does not come out again.
_SIGNS_WITH: Final = {
    "curl": ("--cert", "--key", "--netrc-file"),
    "openssl": ("-CAkey", "-inkey", "-key", "-sign", "-signkey"),
}
_GLOBS: Final = frozenset({"-g", "--glob", "--iglob"})
# What a filter is told, beside files, that shows names of settings alone, or whether and how often something is set.
_FEW: Final = r"-[inqlcwEFHhsvx]*[cql][inqlcwEFHhsvx]*|--(?:count|quiet|silent|files-with-matches)"
_NAME: Final = r"\^(?:export )?(?:\[(?:A-Z|a-z|0-9|[\w.])+\]|\[\^=\]|\\w)[*+]=?"
_SHOWS_NAMES: Final = {
    "cut": Lazy(r"^(?:-s )?(?:(?:-d ?|--delimiter[ =])= (?:-f ?|--fields[ =])1|-f ?1 -d ?=)$"),
    "sed": Lazy(r"^(?:-[Enr]+ )*(?:-e )?s(?:/=\.\*\$?/[^/&\\\n]*/|\|=\.\*\$?\|[^|&\\\n]*\|)[gp]?$"),
    "awk": Lazy(r"^-F ?= (?:!?/[^/(){}\n]*/ ?)?\{ ?print \$1 ?;? ?\}$"),
    "grep": Lazy(
        rf"^(?:(?:-[EFinwsx]+ )*(?:{_FEW})(?: -e)?(?: [^- \n][^ \n]*| )*|(?:-[Eo]+ |--only-matching )+{_NAME})$"
    ),
}


_POSTS: Final = Lazy(r"^(?:--(?:post-file|body-file|upload-file|data[a-z-]*|form[a-z-]*|json)=@?|[\w.\[\]-]+:?=?@)")


def posted_file(name: str, arg: str) -> str:
    """Return the file that a word of a command names, without what says to a client of the web how it is sent."""
    lead = _POSTS.match(arg) if name in FETCHERS else None
    return arg[lead.end() :] if lead is not None else arg.lstrip("@<").rsplit("=@", 1)[-1]


def shows_names(name: str, args: Sequence[str]) -> bool:
    """Whether a filter shows the names of settings alone, or whether and how often something is among them."""
    known = _SHOWS_NAMES.get("grep" if name in {"egrep", "rg"} else name)
    return known is not None and known.search(" ".join(arg for arg in args if not is_settings_file(arg))) is not None


def without_values(commands: Sequence[Command]) -> list[Command]:
    """Return the commands without the files of settings of which names alone go on, or which a shell only loads.

    `grep -v '^#' .env | cut -d= -f1`, `export $(cat .env | xargs)`.
    """
    shown = {(one.pipe, one.stage) for one in commands if one.pipe and shows_names(one.name, one.args)}
    passed = {(one.pipe, one.stage) for one in commands if one.pipe and one.name in ("grep", "sort")}
    shown |= {(pipe, stage - 1) for pipe, stage in shown if (pipe, stage - 1) in passed}
    loaded = {one.text for one in commands if one.name == "export" and not one.inside}
    found: list[Command] = []
    for one in commands:
        is_loaded = one.inside and f"export $({one.pipeline or one.text})" in loaded and _ends_in_xargs(one, commands)
        if one.name in ("cat", "grep") and (is_loaded or (one.pipe and (one.pipe, one.stage + 1) in shown)):
            one = one._replace(args=tuple(arg for arg in one.args if not is_settings_file(arg)))
        found.append(one)
    return found


def _ends_in_xargs(command: Command, commands: Sequence[Command]) -> bool:
    beside = (
        [one for one in commands if one.pipe == command.pipe and one.stage != command.stage] if command.pipe else ()
    )
    return all(one.name == "xargs" and one.args in _BARE_XARGS for one in beside)


_BARE_XARGS: Final = ((), ("-0",), ("-d", "\\n"))


def statements(command: Command) -> list[str]:
    """Return the SQL statements that a command hands to a database; none for every other command."""
    given = _STATEMENTS.get(command.name)
    if given is not None:
        joined = [arg.partition("=")[2] for arg in command.args if arg.partition("=")[0] in given and "=" in arg]
        told = joined + [following for option, following in pairwise(command.args) if option in given]
        return [one for one in told if not is_spared(command, one)]
    if command.name == "sqlite3":
        plain = [arg for arg in command.args if not arg.startswith("-")]
        named = plain[0] if plain and ".." not in plain[0] else ""
        scratch = named == ":memory:" or named.startswith("/tmp/") or (named[:1].isalnum() and is_throwaway(named))  # noqa: S108 - a place
        return [plain[1]] if len(plain) > 1 and not plain[1].startswith(".") and not scratch else []
    return []


# One statement that changes rows, tables or what is in a database, and nothing of the machine or of who may do what.
_OF_DATA: Final = Lazy(
    r"(?i)^\s*(?:drop\s+(?:table|schema|view|index)|truncate|delete\s+from|alter\s+table)\b[^;$`\\]*;?\s*"
    r"(?:create\s+schema\s+[^;$`\\]*;?\s*)?$"
)
NEAR_BY: Final = Lazy(
    r"(?i)^(?:postgres(?:ql)?|mysql|mariadb)://(?:[^\s/@]{1,80}@)?(?:localhost|127\.0\.0\.1)(?::\d+)?/([\w-]{1,63})(?:\?[\w=&-]{0,80})?$"
)
_HOSTS: Final = frozenset({"-h", "--host", "-S", "--server"})
# Settings that stand among the words of a command as well, or say only who asks.
_OF_CLIENTS: Final = frozenset({"PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "MYSQL_HOST", "MYSQL_PWD"})
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", "/var/run/postgresql", "db", "postgres", "mysql"})


def is_spared(command: Command, statement: str) -> bool:
    """Whether a statement changes data alone, of a database near by that was made to be thrown away.

    `psql -h localhost app_test -c "DROP TABLE carts"`.
    """
    options = dict(pairwise(command.args))
    far = [value for option, value in options.items() if option in _HOSTS]
    far += [arg.partition("=")[2] for arg in command.args if arg.startswith(("--host=", "--server="))]
    addressed = [match.group(1) for arg in command.args if (match := NEAR_BY.match(arg)) is not None]
    if (
        not _OF_CLIENTS.issuperset(name for name, _ in command.variables)
        or ("://" in command.text and len(addressed) != 1)
        or not _LOCAL.issuperset(far)
        or not _OF_DATA.match(statement)
    ):
        return False
    named = [arg.partition("=")[2] for arg in command.args if arg.startswith(("--dbname=", "--database="))]
    named += [options[option] for option in ("-d", "-D", "--dbname", "--database") if option in options]
    taken = {value for option, value in options.items() if option[:1] == "-"}
    if addressed:
        return not named and is_throwaway(addressed[0])
    named += [arg for arg in command.args if arg[:1] != "-" and arg not in taken and arg != statement]
    return len(named) == 1 and is_throwaway(named[0])


# What a coding agent reads of its folder by commands, as by a tool that reads files. Programs that start others, ask
# hosts or run code are none of them; of git, the words that ask the repository alone.
_PRINTERS: Final = (
    (of_kind("reader") | of_kind("lister") | of_kind("namer") | of_kind("shows") | {"cd", "pwd", "true"})
    - of_kind("network") - of_kind("fetcher") - of_kind("sender") - of_kind("connects") - of_kind("http-client")
)  # fmt: skip
_OF_REPOSITORY: Final = frozenset({"blame", "diff", "grep", "log", "ls-files", "show", "status"})
# Programs that check what stands in the folder and print what they found there, with the first words that say so.
_CHECKS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys((
        "ctest", "eslint", "flake8", "jest", "mocha", "mypy", "phpunit", "pylint", "pyright", "pytest", "rspec",
        "ruff", "tsc", "vitest",
    ), frozenset[str]()),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset({"lint", "run lint", "run test", "test"})),
    **dict.fromkeys(("cargo", "dotnet", "go", "gradle", "gradlew", "mvn", "mvnw", "swift"), frozenset({"test", "vet"})),
    **dict.fromkeys(("make", "just", "rake"), frozenset({"check", "lint", "test"})),
    **dict.fromkeys(("python", "python3"), frozenset({"-m pytest", "-m unittest"})),
}  # fmt: skip
_STARTS_CHECKS: Final[Mapping[str, tuple[str, ...]]] = {
    "bundle": ("exec",), "bunx": (), "hatch": ("run",), "npx": (), "pipenv": ("run",), "poetry": ("run",),
    "uv": ("run",),
}  # fmt: skip
_SHELLS: Final = frozenset({"bash", "dash", "sh", "zsh"})  # what they are given by `-c` is listed beside them


def prints_files(ran: Sequence[RanCommand]) -> bool:
    """Whether commands print what stands in files of this machine, and nothing that comes from elsewhere."""
    return bool(ran) and all(
        command.name in _PRINTERS
        or (command.name == "git" and command.args[:1] and command.args[0] in _OF_REPOSITORY)
        or (command.name in _SHELLS and len(ran) > 1)
        or _checks(command)
        for command in ran
    )


def _checks(command: RanCommand) -> bool:
    name, args = command.name, command.args
    before = _STARTS_CHECKS.get(name)
    if before is not None and args[: len(before)] == before and len(args) > len(before):
        name, args = args[len(before)], args[len(before) + 1 :]
    words = _CHECKS.get(name)
    if words is None:
        return False
    return not words or not words.isdisjoint((" ".join(args[:1]), " ".join(args[:2]).partition(":")[0]))


# Programs that carry a file away, and the words with which they do.
_CARRIERS: Final = of_kind("carrier")
_PROGRAMS: Final = frozenset(builtin_programs())
_CARRIES: Final = frozenset({
    "copy", "copyto", "cp", "create", "mirror", "move", "mput", "mv", "push", "put", "rcat", "send", "sync", "upload",
    "upload-batch",
})  # fmt: skip


def carries(name: str, args: Sequence[str]) -> bool:
    """Whether a command carries a file away, by a word that says so; of a program that nobody knows, that is enough."""
    return (name in _CARRIERS or name not in _PROGRAMS) and not _CARRIES.isdisjoint(args)


# Endings of files that are run or read as a program, then those in which one hides.
PROGRAM_FILES: Final = (
    ".exe", ".dll", ".bat", ".cmd", ".ps1", ".vbs", ".vbe", ".js", ".jse", ".hta", ".cpl", ".scr", ".wsf", ".inf",
    ".sct", ".msi", ".com", ".pif", ".xsl",
)  # fmt: skip
RUNS: Final = (*PROGRAM_FILES, ".cab", ".ini", ".reg", ".txt", ".log", ".xml", ".py", ".ttt")
_LONGEST_WORD: Final = 4_096  # characters of a word that is compared


def is_share(word: str) -> bool:
    r"""Whether a word names a file on another machine: `\\host\share`, whatever option stands before it."""
    at = word.find("\\\\")
    if at < 0 or word.startswith(("\\\\.\\", "\\\\?\\", "\\\\localhost\\", "\\\\127.0.0.1\\")):
        return False
    before, behind = word[:at], word[at + 2 :]
    drive = len(before) == 2 and before[0].isalpha()  # behind which a program in another language writes two for one
    return behind[:1].isalnum() and "\\" in behind and (not before or (before[-1] in "=:@(,\"' " and not drive))


def is_stream(word: str) -> bool:
    r"""Whether a word names an alternate data stream of NTFS, in which a file hides: `a.txt:b.exe`, `C:\a:b`."""
    if len(word) > _LONGEST_WORD or "://" in word or "::" in word:
        return False
    if "$" in word:
        word = word.replace("$env:", "").replace("${env:", "")
    rest = word[2:] if word[1:2] == ":" and word[:1].isalpha() else word
    left, colon, right = rest.rpartition(":")
    if not (colon and left and right) or left[0] in "/-%$@" or any(sign in left for sign in ":@"):
        return False
    if "/" in right or "\\" in right:
        return False
    if not right.replace(".", "").replace("_", "").replace("-", "").isalnum() or right.isdigit() or "=" in left:
        return False
    name = left.replace("/", "\\").rpartition("\\")[2]
    if not name or name.lower() in _DRIVES:
        return False
    in_folder = "\\" in left
    if "." in name and not name.replace(".", "").isdigit() and (in_folder or right.lower().endswith(RUNS)):
        return True
    if left.isalpha() and right.lower().endswith(".com") and right.count(".") > 1:
        return False  # a service and the host that it is on: `Pool:a1.shop.com`
    return right.lower().endswith(PROGRAM_FILES) or (in_folder and word[1:2] == ":")


_DRIVES: Final = frozenset({
    "hklm", "hkcu", "hkcr", "hku", "cert", "env", "variable", "function", "alias", "wsman", "registry", "script",
    "file", "http", "https", "localhost", "mailto",
})  # fmt: skip


_STARTUP: Final = "\\Microsoft\\Windows\\Start Menu\\Programs\\Startup"
_FOLDERS: Final[Mapping[str, tuple[str, str]]] = {
    "userprofile": ("userprofile", ""), "personal": ("userprofile", "\\Documents"), "windows": ("windir", ""),
    "mydocuments": ("userprofile", "\\Documents"), "desktop": ("userprofile", "\\Desktop"),
    "desktopdirectory": ("userprofile", "\\Desktop"), "mypictures": ("userprofile", "\\Pictures"),
    "localapplicationdata": ("localappdata", ""), "commonapplicationdata": ("programdata", ""),
    "programfiles": ("programfiles", ""), "system": ("windir", "\\System32"), "applicationdata": ("appdata", ""),
    "startup": ("appdata", _STARTUP), "commonstartup": ("programdata", _STARTUP),
    "mymusic": ("userprofile", "\\Music"), "myvideos": ("userprofile", "\\Videos"),
    "favorites": ("userprofile", "\\Favorites"), "programfilesx86": ("programfiles", " (x86)"),
    "systemx86": ("windir", "\\SysWOW64"),
}  # fmt: skip


_NUMBERED: Final = {
    "0": "desktop", "5": "personal", "6": "favorites", "7": "startup", "13": "mymusic", "14": "myvideos",
    "16": "desktopdirectory", "24": "commonstartup", "26": "applicationdata", "28": "localapplicationdata",
    "35": "commonapplicationdata", "36": "windows", "37": "system", "38": "programfiles", "39": "mypictures",
    "40": "userprofile", "41": "systemx86", "42": "programfilesx86",
}  # fmt: skip


def known_folder(name: str) -> tuple[str, str]:
    """A folder by its name in .NET: the variable of the environment that holds it, and what lies below that."""
    name = name.lower().replace("::", ".").rpartition(".")[2]
    return _FOLDERS.get(_NUMBERED.get(name, name), ("", ""))


_CHOSEN: Final = Lazy(r"['\"]\^?\(?([\w.*-]{2,60})")


def first_name(condition: str) -> str:
    """The first name that a condition of PowerShell asks for: `$_.Name -match '^(WinDefend|Sense)$'`."""
    found = _CHOSEN.search(condition)
    return (
        found.group(1) if found is not None else condition.strip("^$()").split("|")[0] if " " not in condition else ""
    )


_MOST_DECODED: Final = 12_288  # characters


def decoded_base64(text: str) -> str | None:
    """Return the text of base64, UTF-16 where every second byte is zero; `None` where it holds no text."""
    packed = "".join(text.split())
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), validate=False)
    except (binascii.Error, ValueError):
        return None
    for mode in (-15, 31, 15):  # deflate, gzip, zlib: what scripts unpack after decoding
        if data[:2] != b"\x1f\x8b" and mode == 31:
            continue
        try:
            plain = zlib.decompressobj(mode).decompress(data, _MOST_DECODED)
        except zlib.error:
            continue
        if len(plain) > 8 and not any(byte < 9 for byte in plain[:64]):
            data = plain
            break
    if len(data) > 3 and data[1:8:2].count(0) == len(data[1:8:2]):
        return data.decode("utf-16-le", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


# What a template for the output of a command prints of secrets: their names, or what they hold.

_FORMS: Final = ("go-template", "jsonpath", "custom-columns")
_ACTIONS: Final = Lazy(r"\{\{-?\s*(.*?)\s*-?\}\}")
_PATHS: Final = Lazy(r"\{\s*([^{}]*?)\s*\}")
_NAMES: Final = (
    r"(?:[.$\[\]*\w]{0,40}\.)?(?:metadata\.(?:name|namespace|uid|labels|creationtimestamp|resourceversion)|type|kind)"
)
_TEXT: Final = r"\"[^\"]*\"|'[^']*'|`[^`]*`"
# What prints no value: a length, a name, a text of its own, and what only says how often or whether the rest is done.
_HARMLESS: Final = Lazy(
    rf"(?:{_TEXT}|{_NAMES}|len\s+[\w.$]{{1,80}}|[\w.$]{{1,80}}\s*\|\s*len|end|else|(?:range|if|with|else\s+if)\b[^{{}}]*)"
)
_KEYED: Final = Lazy(r"range\s+(\$\w+)\s*,\s*\$\w+\s*:=")

_SET: Final = Lazy(r"(\$\w+)\s*:=")


def prints_names(word: str) -> bool:
    """Whether a template prints names and sizes of things alone, and nothing that they hold."""
    form, _, template = word.partition("=")
    if form not in _FORMS or not template:
        return False
    if form == "custom-columns":
        parts = [column.partition(":")[2].strip("{} ") for column in template.split(",")]
    else:
        parts = (_ACTIONS if form == "go-template" else _PATHS).findall(template)
    keys = {match.group(1) for match in map(_KEYED.match, parts) if match is not None}
    keys.difference_update(name for part in parts for name in _SET.findall(part))
    return all(part in keys or _HARMLESS.fullmatch(part) is not None for part in parts)


def divided(text: str, sign: str) -> tuple[str, str, str]:
    """A text in two at the first place of a sign in any case, as `partition` gives it."""
    at = text.lower().find(sign.lower()) if text.isascii() else text.find(sign)
    return (text, "", "") if at < 0 else (text[:at], sign, text[at + len(sign) :])


def replaced_any_case(text: str, old: str, new: str) -> str:
    """Text with every `old` in it, in any case, replaced."""
    if not (text.isascii() and old.isascii()):
        return text.replace(old, new)
    lowered, wanted = text.lower(), old.lower()
    out: list[str] = []
    start = 0
    while (at := lowered.find(wanted, start)) >= 0:
        out += (text[start:at], new)
        start = at + len(wanted)
    out.append(text[start:])
    return "".join(out)


_ENDINGS: Final = (".exe", ".com", ".cmd", ".bat")


def program_name(program: str) -> str:
    r"""The name of a program without its folder and ending: `reg` of `C:\Windows\System32\REG.exe`."""
    name = program.replace("/", "\\").rstrip("\\").rpartition("\\")[2].lower()
    for ending in _ENDINGS:
        if name.endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)]
    return name


# Programs that Windows starts itself and nobody else makes.
_OF_SYSTEM: Final = frozenset({
    "svchost", "lsass", "csrss", "winlogon", "wininit", "smss", "spoolsv", "lsm", "taskhostw", "taskhost", "dllhost",
    "dwm", "sihost", "userinit", "logonui", "explorer", "rundll32", "regsvr32", "conhost", "wuauclt",
})  # fmt: skip
_OF_WINDOWS: Final = ("\\windows\\", "%systemroot%", "%windir%", "$env:systemroot", "$env:windir")


def poses(program: str) -> bool:
    r"""Whether a program has the name of one of Windows and lies outside of its folders: `C:\Temp\svchost.exe`."""
    if program_name(program) not in _OF_SYSTEM:
        return False
    place = program.lower().replace("/", "\\")
    outside = not any(folder in place for folder in _OF_WINDOWS) or any(
        loose in place for loose in ("\\temp\\", "\\tasks\\")
    )
    return "\\" in place and outside
