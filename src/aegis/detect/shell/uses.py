"""What a command does to which resource, by what is known of its program: the member `does` of `data/programs`.

The same entries serve every shell: a program has the effects that its options say, whoever starts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from ntpath import normpath
from typing import Any, Final, Literal, NamedTuple

import re2

from aegis.core.effects import RESOURCES, VERBS, EffectScope, Resource, Verb
from aegis.core.names import glob_match
from aegis.core.patterns import Lazy
from aegis.detect.paths import names_secrets
from aegis.detect.resources import host_place, place_of, preference_path
from aegis.detect.shell.catalogue import Use, of_kind, uses
from aegis.detect.shell.keys import is_key, key_at, key_place, numbered_hive, value_place
from aegis.detect.shell.words import LOOSE_PLACES, PROGRAM_FILES, RUNS, is_share, is_stream, prints_names
from aegis.detect.tool_words import vocabulary

_OPTION: Final = frozenset("-/")
_LONGEST: Final = 4_096  # characters of a word that is compared
_MOST_WORDS: Final = 512  # of one command
_MOST_TOLD: Final = 32  # members of a table that a method is told
_FEW: Final = 2  # alternatives of an entry that are compared without asking first
_CMDLETS: Final = of_kind("cmdlet")
_DEFENCES: Final = of_kind("defence")
_BACKUPS: Final = of_kind("keeps-backups")
# Places that every user can write: a word that holds one of them is looked for.
_LOOSE: Final = (
    "\\temp\\", "%temp%", "%tmp%", "$env:temp", "$env:tmp", "\\users\\public", "%public%", "\\downloads\\",
    "\\appdata\\", "%appdata%", "%localappdata%", "$env:appdata", "$env:localappdata", "\\programdata\\",
    "\\perflogs", "\\desktop\\", "\\inetcache\\", "\\windows\\tasks\\", "$recycle.bin", "/users/shared", *LOOSE_PLACES,
)  # fmt: skip
_SCHEMES: Final = ("http://", "https://", "ftp://", "webdav://", "davs://")


class Did(NamedTuple):
    """One effect of a command, with the values that it was read from."""

    verb: Verb
    resource: Resource
    scope: EffectScope
    values: tuple[str, ...] = ()


# Folders at the root of a Unix system, which are spelled as a switch of Windows is.
_PLACES: Final = frozenset({
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin",
    "/srv", "/sys", "/usr", "/var", "/users", "/library", "/system", "/applications", "/volumes",
})  # fmt: skip

# Programs of Unix alone: a word of theirs that begins with a slash is a path.
_UNIX: Final = frozenset({"chgrp", "chmod", "chown", "cp", "install", "ln", "mv", "rm", "rsync", "shred", "unlink"})


def _is_path(word: str) -> bool:
    """Whether a word that begins with a slash is a path, and no switch of a program of Windows."""
    return "/" in word[1:] and ":" not in word


# That a command is only to say what it would do, taken back.
_NOT_TRIED: Final = frozenset({
    "-whatif:$false", "-whatif:false", "-whatif:0", "-wi:$false", "--dry-run=false", "--dry-run=none", "--dryrun=false",
    "--dry_run=false", "--noop=false", "--check=false", "--simulate=false",
})  # fmt: skip
TRIES: Final = frozenset({"-whatif", "-whatif:$true", "-wi"})  # of every cmdlet that changes anything
DRY: Final = frozenset({"--dry-run", "--dry-run=client", "--dry-run=server", "--dryrun", "--help", "--noop", "-n=true"})


def without_trials(args: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command but for those behind `--` that would ask for help or a trial before it."""
    if "--" not in args:
        return tuple(args)
    cut = args.index("--")
    return (*args[:cut], *(arg for arg in args[cut:] if arg.lower() not in DRY and arg != "-h"))


class Used:
    """The words of one command, read once for every entry that asks about them."""

    __slots__ = ("args", "is_cmdlet", "joined", "lowered", "name", "operands", "options")

    def __init__(self, name: str, args: Sequence[str]):
        self.name = name
        self.is_cmdlet = name in _CMDLETS
        self.args = [arg for arg in args[:_MOST_WORDS] if arg.lower() not in _NOT_TRIED]
        self.lowered = [arg.lower() for arg in self.args]
        self.joined = "\n".join(self.lowered)
        self.options: list[tuple[str, str]] = []
        self.operands: list[str] = []
        switches = "-" if name in _UNIX else _OPTION
        for at, arg in enumerate(self.lowered):
            if arg[:2] == "@{" and ("cim" in name or "wmi" in name):  # what a method is told, as a table
                pairs = [piece.partition("=") for piece in arg[2:-1].split(";")[:_MOST_TOLD]]
                self.options += [(told, value) for told, _, value in pairs]
            if arg[:1] in switches and len(arg) > 1 and (arg[0] == "-" or not _is_path(arg)):
                self._option(arg, at)
                if arg in _PLACES:
                    self.operands.append(self.args[at])
            else:
                self.operands.append(self.args[at])
                cut = arg.find("=", 1, 24)
                if cut > 0:  # `binPath= x`, `start=disabled`
                    following = self.lowered[at + 1] if at + 1 < len(self.lowered) else ""
                    self.options.append((arg[: cut + 1], arg[cut + 1 :] or following))

    def _option(self, arg: str, at: int) -> None:
        body = arg.lstrip("-/")
        cut = min((place for place in (body.find(":"), body.find("=")) if place > 0), default=-1)
        following = self.lowered[at + 1] if at + 1 < len(self.lowered) else ""
        if cut < 0:
            self.options.append((body, following))
        else:
            self.options.append((body[:cut], body[cut + 1 :] or following))
            if body[cut] == ":" and "\\" not in body:
                self.options.append((body, following))

    def values(self, option: str) -> Iterator[str]:
        """Return the values that an option is given, in every spelling that the program takes."""
        wild = "*" in option
        for name, value in self.options:
            cut = self.is_cmdlet and option.startswith(name)
            if name == option or cut or (wild and glob_match(option, name)):
                yield value


_TokenKind = Literal["word", "glob", "option", "valued", "operand", "class", "typed"]


class _Token(NamedTuple):
    kind: _TokenKind
    text: str
    value: str = ""
    at: int = 0


@lru_cache(maxsize=8_192)
def _tokens(alternative: str) -> tuple[_Token, ...]:
    return tuple(map(_token, alternative.split()))


def _token(word: str) -> _Token:
    word = word.replace("~", " ")
    if word[0] == "<" and word[-1] == ">":
        return _Token("class", word[1:-1])
    if word[:2] == "=-":
        return _Token("typed", word[1:])
    if word[0].isdigit() and word[1:2] == ":":
        return _Token("operand", word[2:], at=int(word[0]) - 1)
    if word[0] in _OPTION and len(word) > 1 and not (word[0] == "/" and (_is_path(word) or word in _PLACES)):
        name, sign, value = word.lstrip("-/").partition("=")
        return _Token("valued", name, value) if sign else _Token("option", name)
    if word.endswith("=") and len(word) > 2:
        return _Token("option", word)
    return _Token("glob" if "*" in word else "word", word)


def _holds(token: _Token, used: Used) -> bool:
    if token.kind == "word":
        return token.text in used.lowered
    if token.kind == "glob":
        return any(glob_match(token.text, word[:_LONGEST]) for word in used.lowered)
    if token.kind == "typed":
        wild = "*" in token.text
        return any(glob_match(token.text, arg) if wild else arg.startswith(token.text) for arg in used.args)
    if token.kind == "option":
        return any(True for _ in used.values(token.text))
    if token.kind == "valued":
        if token.value[:1] == "<":
            return any(is_of(token.value[1:-1], value) for value in used.values(token.text))
        return any(glob_match(token.value, value[:_LONGEST]) for value in used.values(token.text))
    if token.kind == "operand":
        if token.at >= len(used.operands):
            return False
        word = used.operands[token.at].lower()[:_LONGEST]
        return is_of(token.text[1:-1], word) if token.text[:1] == "<" else glob_match(token.text, word)
    if token.text == "none":
        return not used.args
    if token.text == "operand":
        return bool(used.operands)
    if token.text == "elsewhere":
        return not all(map(_IS_HERE.match, used.operands))
    return any(is_of(token.text, word) for word in used.lowered)


# This machine by its names, with what may stand around them in an address; and words that name no machine at all.
_IS_HERE: Final = Lazy(
    r"(?i)^(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}(?:-127(?:\.\d{1,3}){3})?|\[?::1\]?)(?::\d{1,5})?(?:/(?:[^@\d][^@]*|[1-9]\d[^@]*|[89])?)?$|^[\d,-]{1,64}$|^-|^[tu]:[\d,-]+$"
)
# What composed containers and virtual machines of a developer call the machines beside them.
_NEAR: Final = frozenset({
    "db", "database", "postgres", "mysql", "mariadb", "mongo", "mongodb", "redis", "host.docker.internal", "default",
    "desktop-linux", "colima", "minikube", "kind-kind", "docker-desktop", "orbstack", "rancher-desktop",
})  # fmt: skip
CLASSES: Final = frozenset({
    "none", "operand", "url", "unc", "remote", "loose", "stream", "line", "path", "secret", "share-program",
    "collector", "tunnel", "address", "broad", "vital", "elsewhere", "far", "near", "secret-name",
    "names", "all",
})  # fmt: skip


def is_of(kind: str, word: str) -> bool:
    """Whether a word belongs to a class of words that entries name in angle brackets."""
    lowered = word.lower()
    if kind in ("url", "unc", "remote"):
        is_url = kind != "unc" and any(scheme in lowered for scheme in _SCHEMES)
        return is_url or (kind != "url" and is_share(lowered))
    if kind == "share-program":
        return is_share(lowered) and lowered.rstrip("\"'").endswith(PROGRAM_FILES)
    if kind == "loose":
        return any(place in lowered for place in _LOOSE)
    if kind in _TOLD:
        return _TOLD[kind](word)
    if kind == "path":
        return "\\" in word or "/" in word[1:] or lowered.endswith(RUNS)
    if kind == "line":
        return " " in word.strip() or lowered.endswith((".exe", ".bat", ".cmd", ".ps1", ".vbs", ".js", ".scr", ".com"))
    if kind in _HOSTS:
        return "." in word and host_place(word.partition("=")[2] if word[:2] == "--" else word) == kind
    if kind == "broad":
        return is_broad(word)
    if kind == "vital":
        return lowered.partition(":")[0].partition("=")[0] in vocabulary().values["vitalplaces"]
    if kind == "all":
        return word == "*"
    if kind in ("far", "near"):
        host = lowered.partition("://")[2].partition("/")[0].rpartition("@")[2] if "://" in word else lowered
        is_far = host not in _NEAR and _IS_HERE.match(host) is None
        return bool(host) and host[0] != "/" and is_far == (kind == "far")
    if kind == "secret":
        place = place_of(word)
        return place is not None and place.resource in {"credential", "account", "browser-data"}
    return False


# Packages without which a system neither starts nor runs another program, nor lets anybody in.
_HOSTS: Final = frozenset({"collector", "tunnel", "address"})
_TOLD: Final = {"names": prints_names, "secret-name": names_secrets, "stream": is_stream}
_BROAD: Final = frozenset({"home", "system-file", "credential", "browser-data", "account", "log", "database"})
_HOMES: Final = ("/home/", "/users/", "/root/", "~/", "$home/", "c:/users/", "$env:userprofile", "%userprofile%")
_OF_PEOPLE: Final = ("documents", "desktop", "downloads", "pictures", "mail", "onedrive")


def is_broad(word: str) -> bool:
    """Whether a word names all that a person or a machine has: a home folder, its documents, `/etc`, credentials."""
    word = word.strip("\"'").rstrip("*") if len(word) <= _LONGEST else ""
    if len(word) < 2 and word != "~":
        return word == "/"
    last = word.rstrip("/\\").replace("\\", "/").rpartition("/")[2].lower()
    if last in _OF_PEOPLE:
        lowered = word.lower().replace("\\", "/")
        return lowered.startswith(_HOMES)
    place = place_of(word.rstrip("/\\"))
    if place is None:
        return word.rstrip("/\\").lower() in {"c:\\users", "$env:userprofile", "%userprofile%"}
    return place.resource in _BROAD and (place.whole or place.resource in {"credential", "browser-data", "account"})


def is_cmdlet(name: str) -> bool:
    """Whether a name is that of a command of PowerShell."""
    return name in _CMDLETS


# Services and processes as places


@lru_cache(maxsize=1_024)
def _guards(name: str) -> bool:
    """Whether a name, perhaps with wildcards of its own, is that of what watches or guards a machine."""
    if "*" in name and len(name.strip("*")) > _SHORT:
        return any(glob_match(name, known.rstrip("*")) for known in _DEFENCES)
    return any(name == known or (known[-1] == "*" and glob_match(known, name)) for known in _DEFENCES)


_CHOSEN: Final = Lazy(r"name\s*(?:=|like)\s*(?:[\"']([^\"']*)[\"']|([^\s\"'()=]+))")  # in a query of WMI
_SHORT: Final = 3  # letters of a name that many names have


def service_resource(name: str, otherwise: Resource) -> Resource:
    """What a service or a process is for, by its name."""
    lowered = name.lower().strip("\"' ")
    for chosen in [first or second for first, second in _CHOSEN.findall(lowered)][:_MOST_TOLD]:
        resource = service_resource(chosen.replace("%", "*"), otherwise)
        if resource != otherwise:
            return resource
    lowered = lowered.rpartition("name=")[2].strip("\"' ")
    if lowered[:1] in {"$", "`"}:  # `$(pgrep auditd)`: the process that another command names
        lowered = next(iter(lowered.rstrip(")`").split()[::-1]), "")
    lowered = lowered.rpartition("\\")[2].removesuffix(".exe").removesuffix(".service")
    if any(map(_guards, {lowered, lowered.replace(" ", ""), lowered.rpartition(".")[2]})):
        return "defence"
    return "backup" if lowered in _BACKUPS else otherwise


# Effects


def effects_of(name: str, args: Sequence[str]) -> Iterator[Did]:
    """Return what a command does, by the entries of its program; nothing for one that is not known."""
    entries = uses().get(name)
    if entries is None:
        return
    used = Used(name, without_trials(args))
    if used.is_cmdlet and not TRIES.isdisjoint(used.lowered):
        return
    for entry in entries:
        if _applies(entry, used):
            yield from _did(entry, used)


@lru_cache(maxsize=8_192)
def _needles(when: tuple[str, ...], is_cmdlet: bool) -> Any:
    """A pattern of pieces of which one stands in every command that one of the alternatives holds for; `None` for none.

    Most entries for a program that is used every day speak of words that a command seldom has: one search says so.
    The parameters of a cmdlet may be cut short, so that only their values count.
    """
    pieces: set[str] = set()
    for words in when:
        told = [token.value if is_cmdlet and token.kind in ("option", "valued") else token.text
                for token in _tokens(words) if token.kind != "class"]  # fmt: skip
        texts = [text for text in told if text[:1] != "<"]
        longest = max((piece for text in texts for piece in _LITERAL.split(text.lower())), key=len, default="")
        if not longest:
            return None
        pieces.add(longest)
    return re2.compile("|".join(map(re2.escape, sorted(pieces))))


_LITERAL: Final = Lazy(r"[*]+")


def _applies(entry: Use, used: Used) -> bool:
    if len(entry.when) > _FEW:
        needles = _needles(entry.when, used.is_cmdlet)
        if needles is not None and needles.search(used.joined) is None:
            return False
    if entry.when and not any(all(_holds(token, used) for token in _tokens(words)) for words in entry.when):
        return False
    return not any(all(_holds(token, used) for token in _tokens(words)) for words in entry.unless)


def _did(entry: Use, used: Used) -> Iterator[Did]:
    verb, resource, *scopes = entry.effect.split()
    if resource in RESOURCES and not (entry.of and resource in _KINDS):
        scope = _SCOPES[scopes[0]] if scopes else "one"
        yield Did(_VERBS[verb], _RESOURCES[resource], scope, tuple(used.operands[:4]))
        return
    values = _operands(entry.of, used)
    seen: set[tuple[str, str]] = set()
    for value in values[:64]:
        found = _placed(resource, value, used)
        if found is not None:
            what, wide, shown = found
            if entry.among and what not in entry.among:
                continue
            folder = what == "system-file" and not shown.rstrip("/").startswith("/etc/")
            if verb == "write" and wide == "all" and folder:  # what is put into a folder leaves the rest
                continue
            wide = _SCOPES[scopes[0]] if scopes else wide
            if (what, wide) not in seen:
                seen.add((what, wide))
                yield Did(_VERBS[verb], what, wide, (shown,))


def _operands(where: Sequence[str], used: Used) -> list[str]:
    """The words that an effect is about: values of options, operands by their number, or every operand."""
    if not where:
        return used.operands
    found: list[str] = []
    for place in where:
        if place.isdigit():
            found += used.operands[int(place) - 1 : int(place)]
        elif place == "last":
            found += used.operands[-1:]
        elif place == "rest":
            found += used.operands[1:]
        elif place == "hive":
            found += [key for key, _, _ in _by_number(used)]
        else:
            found.extend(used.values(place.lstrip("-/")))
    return found


def _placed(kind: str, value: str, used: Used) -> tuple[Resource, EffectScope, str] | None:
    value = value.strip("\"'")
    if not value or value == "*":
        return (_KINDS[kind], "all", value) if value else None
    if kind == "service" or kind == "process":
        return service_resource(value, _KINDS[kind]), "one", value
    if kind == "key":
        return _key(value, used)
    if kind == "preference":
        place = place_of(preference_path(used.name, used.args))
        return (place.resource, "one", place.path) if place is not None else None
    return placed_path(value)


def placed_path(value: str) -> tuple[Resource, EffectScope, str]:
    """Return what a path names, and whether all of it."""
    if is_key(value):
        return key_at(key_place(value)) or ("setting", "one", value)
    plain = value.replace("/", "\\") if "\\" in value or value[1:2] == ":" else value
    plain = normpath(plain) if "\\.." in plain else plain
    scope: EffectScope = "one"
    for ending in ("\\*.*", "\\*", "/*", "\\."):
        if plain.endswith(ending):
            plain, scope = plain[: -len(ending)] or plain[:1], "all"
            break
    if plain[1:2] == ":" and not plain[2:].strip("\\"):
        place = place_of("c:\\")
        return (place.resource if place is not None else "device"), "all", value
    place = place_of(plain)
    if place is None:
        return "file", "many" if scope == "all" or "*" in value else "one", value
    if place.resource == "storage" or (place.resource == "home" and "*" in plain):
        return place.resource, "many", value
    if scope == "all":
        return place.resource, "all" if place.whole or place.resource == "system-file" else "many", value
    is_folder = "." not in plain.rpartition("\\")[2]
    return place.resource, "all" if is_folder and (place.whole or place.resource == "system-file") else "one", value


def _by_number(used: Used) -> Iterator[tuple[str, str, str]]:
    """What the registry's provider of WMI is told: a key below the number of its hive, a value's name, and its data."""
    for key in used.values("ssubkeyname"):
        hive = next(map(numbered_hive, used.values("hdefkey")), "") or "hklm"
        told = [value for option in ("uvalue", "svalue") for value in used.values(option)]
        yield f"{hive}\\{key}", next(used.values("svaluename"), ""), told[0] if told else ""
    for at, word in enumerate(used.operands[:-1]):
        if hive := numbered_hive(word):
            key, name, data = (*used.operands[at + 1 : at + 4], "", "")[:3]
            yield f"{hive}\\{key}", name, data


def _key(value: str, used: Used) -> tuple[Resource, EffectScope, str] | None:
    if not is_key(value):
        return None
    for key, name, data in _by_number(used):
        return value_place(key_place(key), [name] if name else [], data)
    place = key_place(value)
    names = [*used.values("v"), *used.values("name"), *used.values("valuename")]
    data = next(iter([*used.values("d"), *used.values("value"), *used.values("propertyvalue")]), "")
    if used.name[:1] == "[":  # a method: key, name, data
        names, data = used.operands[1:2], next(iter(used.operands[2:3]), "")
    elif used.is_cmdlet and not names:
        names, data = used.operands[1:2], data or next(iter(used.operands[2:3]), "")
    elif used.name == ".setvalue":  # of a key that was opened, which the words end with
        names, data = used.operands[:1], next(iter(used.operands[1:2]), "")
    elif used.name[:1] == ".":  # a method of the shell's object: what is named last is the value
        place, _, name = place.rpartition("/")
        names, data = [name], next(iter(used.operands[1:2]), "")
    return value_place(place, names[:2], data)


_KINDS: Final[dict[str, Resource]] = {
    "service": "service", "process": "process", "key": "setting", "path": "file", "preference": "setting",
}  # fmt: skip
_VERBS: Final[dict[str, Verb]] = {str(one): one for one in VERBS}
_RESOURCES: Final[dict[str, Resource]] = {str(one): one for one in RESOURCES}
_SCOPES: Final[dict[str, EffectScope]] = {"one": "one", "many": "many", "all": "all"}
