"""What a path names: the resource that stands there, on whichever system, as data (`data/resources/*.yaml`).

Paths are compared in one spelling: links of spelling are carried out (`/etc/./shadow`, `//etc//`), a home folder is
`~` whoever owns it, variables that stand for folders are put in, letters are small and slashes go one way. Of several
patterns the one that says most wins; what no pattern names is no resource of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from aegis.core.addresses import read_address
from aegis.core.effects import RESOURCES, Resource
from aegis.core.json import convert
from aegis.core.names import glob_match
from aegis.core.patterns import Lazy
from aegis.core.shipped import missing, shipped_folder
from aegis.detect.hosts import is_metadata, read_target
from aegis.detect.paths import KNOWN_SECRETS, LONGEST, is_secret_place, is_wild, matched, plain_path, spread
from aegis.detect.quick import remembered
from aegis.detect.rules.cache import default_cache_folder, load_files
from aegis.errors import ConfigError, Problem

DEEP: Final = "**"
MAX_SEGMENTS: Final = 64  # of one path that are compared: deeper ones are compared by their first ones
LEAST_EXAMPLES: Final = 1
_LONGEST_WORD: Final = 2_048  # characters of what is looked at as a host
_MOST_LABELS: Final = 8
# Addresses of the machine itself and of networks that nobody reaches from outside (RFC 1918, 4193, 6598, 6890).
_NEAR: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.168.0.0/16", "224.0.0.0/3", "::/127", "fc00::/7", "fe80::/10", "ff00::/8",
        ),
    )
)  # fmt: skip
_SHARED_DRIVE: Final = Lazy(r"^(?:\\\\|//)[\w.-]{1,80}[\\/]([a-z])\$")  # of administrators: `\\host\c$`
_SHARE: Final = Lazy(r"^\\\\[\w.-]{1,80}\\[\w. -]{1,80}\\?$")  # all that another machine shares by one name
_HOMES: Final = frozenset({"home", "users"})


class ResourcePlaces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """Patterns of paths that name one resource: `*` is any run of characters in a segment, `**` any segments.

    `except` are patterns that do not; `found` are paths that must be recognised and `pass` those that must not.
    """

    resource: Resource
    paths: tuple[str, ...]
    excluded: tuple[str, ...] = msgspec.field(name="except", default=())
    found: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


class ResourceHosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """Hosts that are one resource: names with everything below them.

    `found` are hosts or addresses that must be recognised and `pass` those that must not.
    """

    resource: Resource
    names: tuple[str, ...]
    found: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An example: a file with what a tool writes to it, or puts in for what it takes out."""

    path: str
    content: str
    out: str = ""


class FileSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """What a file does by what it says: `says` are patterns that it must hold all of, `unless` those of which none.

    It is a file at one of `places` where some are named, and has one of `names`, with `*`, where some are. `commands`
    says that the patterns are looked for in what will run of the file alone. `drops` are patterns of what an edit takes
    out and does not put in again. A file that `does` nothing is told by what will run of it, not by where it lies.
    """

    does: str = ""
    places: tuple[Resource, ...] = ()
    names: tuple[str, ...] = ()
    commands: bool = False
    says: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    found: tuple[WrittenFile, ...]
    passes: tuple[WrittenFile, ...]


class FileAttribute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """What an object of a file does by one of its members: `says` are those that tell it, each `name=value`.

    It lies below one of `of`, by the path of the file, what it is called and what kind it is of, where some are named;
    around it or in it stands one of `beside`, where some are, and none of `unless`. Names are small letters and digits;
    `*` is any run of characters, `|` divides values, and `on` and `off` are values that switch. One that `spares` does
    not count where a name says that it is to be thrown away.
    """

    does: str
    says: tuple[str, ...]
    of: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    spares: bool = False
    found: tuple[WrittenFile, ...]
    passes: tuple[WrittenFile, ...]


class ResourceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of resources.

    `names` are variables, in small letters, with the folder that each stands for; `words` are what tools call a
    resource in their names; `hosts` are hosts that are a resource, with everything below them; `settings` are what
    files do by what they say, `attributes` what objects in files do by their members.
    """

    about: str
    places: tuple[ResourcePlaces, ...] = ()
    names: Mapping[str, str] = {}
    words: Mapping[Resource, tuple[str, ...]] = {}
    hosts: tuple[ResourceHosts, ...] = ()
    settings: tuple[FileSetting, ...] = ()
    attributes: tuple[FileAttribute, ...] = ()


class Place(NamedTuple):
    """What a path names: the resource, the path in its plain spelling, and whether all of the resource lies there."""

    resource: Resource
    path: str
    whole: bool = False


class _End(NamedTuple):
    """What a pattern names; `whole` where it is written out to its end, so that it names a thing as a whole."""

    weight: int
    resource: Resource | None
    whole: bool


class _Node:
    """What can follow the segments read so far; `ends` is what a path that ends here names, by the weight of that."""

    __slots__ = ("deep", "ends", "globs", "is_deep", "literal")

    def __init__(self, *, is_deep: bool = False) -> None:
        self.literal: dict[str, _Node] = {}
        self.globs: dict[str, _Node] = {}
        self.deep: _Node | None = None  # behind `**`, which any number of segments lead to
        self.is_deep = is_deep
        self.ends: _End | None = None


class _Table(NamedTuple):
    """The patterns as a tree; `names` are the variables, the longest first."""

    root: _Node
    names: tuple[tuple[str, str], ...]


_OPEN: Final = Lazy(
    r"^(?:0?o?[0246]?[0-7]{2}[2367]|[ugoa,+=rwxXst-]*(?:[oa][ugo]*[+=][rxXst]*w)[ugoa,+=rwxXst-]*)$|\bS_IWOTH\b|\bS_IRWXO\b|OTHERS_WRITE|^-?[r-][w-][xsS-][r-][w-][xsS-][r-]w[xtT-]$"
)


def opens_to_all(mode: str) -> bool:
    """Whether a file's mode lets everybody write it: `777`, `0o666`, `a+rwX`, `stat.S_IRWXO`; not a sticky folder's."""
    return len(mode) <= _LONGEST_WORD and _OPEN.search(mode) is not None


# Resources that belong to nobody in particular: a mode that lets everybody write them opens a system.
_OWNED: Final[frozenset[Resource]] = frozenset({
    "account", "backup", "boot", "credential", "database", "defence", "group", "kernel", "library", "name-resolution",
    "program", "service", "setting", "startup", "system-file", "task", "trust",
})  # fmt: skip
_SHOWN: Final = Lazy(
    r"^(?:0?o?[0-7]{0,3}[4-7]|[ugo]*[oa][ugo]*[+=][wxXst]*r[rwxXst]*|\+r|-?[r-][w-]\S[r-][w-]\Sr[w-]\S)$"
)


def opened_by(program: str, mode: str) -> frozenset[Resource]:
    """The kinds of files that must not be given the mode or the owner that a program gives them."""
    if program == "chown" and not mode.startswith(("root", "0", ":", "$")):
        return frozenset({"account", "group"})
    if program != "chmod" or len(mode) > _LONGEST_WORD:
        return frozenset()
    return _OWNED if opens_to_all(mode) else frozenset({"credential"} if _SHOWN.search(mode) is not None else ())


@remembered
def place_of(path: str) -> Place | None:
    """The resource that a path names; `None` for a path of no particular kind.

    Of a path with braces or wildcards, the first reading that names something.
    """
    if not path or len(path) > LONGEST or "://" in path[:12]:
        return None
    for word in spread(path) if "{" in path and "${" not in path else (path,):
        found = _place(word)
        if found is not None:
            return found
    return Place("storage", path) if path[:2] == "\\\\" and _SHARE.match(path) else None


@remembered
def host_place(word: str) -> Resource | None:
    """The resource that the host of a URL, of `user@host:path` or of a bare word is; `None` for any other host."""
    if not word or len(word) > _LONGEST_WORD:
        return None
    if word[:2] == "\\\\":  # a share
        word = word[2:].partition("\\")[0].partition("@")[0]
    head = word.partition("://")[2] or word
    user, sign = head.partition("/")[0].rpartition("@")[:2]
    poses = "://" in word and _POSES.search(user) is not None
    if sign:
        head = head[len(user) + 1 :]
        word = head
    if "://" not in word and ":" in word and not word.rpartition(":")[2].isdigit():
        word = word.partition(":")[0]  # `host:path` of a copy
    target = read_target(word)
    if target is None:
        return None
    if is_metadata(target) and ("." in target.host or ":" in target.host):
        return "metadata"
    if target.address:
        if not target.scheme and target.odd_spelling:
            return None  # `eslint@8.10.0`, a version
        address = read_address(target.address)
        near = address is None or any(address.version == net.version and address in net for net in _NEAR)
        return None if near else "address"
    labels = target.host.split(".")
    known = _builtin_hosts()
    for at in range(max(0, len(labels) - _MOST_LABELS), len(labels) - 1):
        found = known.get(".".join(labels[at:]))
        if found is not None:
            return found
    return "address" if poses and len(labels) > 1 else None


# Before the `@` of a URL, what would be its host were there none: `http://localhost:80@drop.example/`.
_POSES: Final = Lazy(
    r"(?i)^(?:localhost|(?:\d{1,3}\.){3}\d{1,3})(?::.*)?$|^(?:[\w-]{1,63}\.){1,8}(?:com|org|net|io|dev|local|internal)(?::\d{1,5})?$"
)


@cache
def words_of_resources() -> Mapping[str, Resource]:
    """What tools and commands call resources in their names."""
    return {word: resource for file in builtin_resources() for resource, words in file.words.items() for word in words}


@cache
def _builtin_hosts() -> Mapping[str, Resource]:
    return {name: one.resource for file in builtin_resources() for one in file.hosts for name in one.names}


def plain_segments(path: str) -> tuple[str, ...]:
    """The segments of a path in the spelling that places are compared in; an absolute one begins with ``/``."""
    lowered = _SHARED_DRIVE.sub(r"\1:", _with_names(path.strip().strip("\"'").lower()))
    if lowered.startswith(("~/", "~\\")) and ".." in lowered:
        lowered = f"/home/user{lowered[1:]}"
    plain = plain_path(lowered)
    if "\\" in plain:
        plain = plain_path(plain.replace("\\", "/"))
    absolute = plain.startswith("/")
    parts = [part for part in plain.split("/") if part and part != "."][:MAX_SEGMENTS]
    if lowered.startswith(("\\\\.\\", "//./")):
        return ("//.", *parts)
    if absolute:
        if parts[:1] == ["root"]:
            return ("~", *parts[1:])
        if len(parts) > 1 and parts[0] in _HOMES and not is_wild(parts[1]):
            return ("~", *parts[2:])
        if parts[:2] == ["private", "etc"]:
            parts = parts[1:]
        return ("/", *parts)
    if len(parts) > 2 and parts[0] == "c:" and parts[1] in _HOMES and parts[2] not in ("public", "default"):
        return ("~", *parts[3:])
    return tuple(parts)


def _with_names(path: str) -> str:
    """A path with the variable that it begins with put in."""
    if path[:1] not in ("$", "%"):
        return path
    if path[:2] == "${" and ":-" in path:  # what stands for one that is not set
        path = _with_names(path.partition(":-")[2].replace("}", "", 1))
    for name, folder in _builtin_table().names:
        if path.startswith(name) and path[len(name) : len(name) + 1] in ("", "/", "\\"):
            return folder + path[len(name) :]
    return path


def _place(path: str) -> Place | None:
    segments = plain_segments(path)
    if not segments:
        return None
    # Every place of the tree that the segments so far lead to: a few, for a node has few children.
    nodes = _with_deep([_builtin_table().root])
    best: _End | None = None
    last = len(segments) - 1
    for at, segment in enumerate(segments):
        following: list[_Node] = []
        for node in nodes:
            child = node.literal.get(segment)
            if child is not None:
                following.append(child)
            for glob, child in node.globs.items():
                # A pattern of a name stands at the end of nearly every pattern that has one.
                if (at == last or child.literal or child.globs or child.deep) and glob_match(glob, segment):
                    following.append(child)
            if node.is_deep:
                following.append(node)
        if at == last:
            for node in following:
                if node.ends is not None and (best is None or node.ends.weight > best.weight):
                    best = node.ends
        else:
            nodes = _with_deep(following)
    return None if best is None or best.resource is None else Place(best.resource, _shown(segments), best.whole)


def _with_deep(nodes: list[_Node]) -> list[_Node]:
    return [*nodes, *[node.deep for node in nodes if node.deep is not None]]


def _shown(segments: Sequence[str]) -> str:
    return f"/{'/'.join(segments[1:])}" if segments[0] == "/" else "/".join(segments)


def kept_at(path: str) -> Resource | None:
    """Return what a file keeps for a person or a program that nobody else reads; `None` for every other file."""
    place = place_of(path) if "/" in path or "\\" in path else None
    return place.resource if place is not None and place.resource in ("browser-data", "credential", "sensor") else None


def lets_in(path: str) -> bool:
    """Whether a path names the file of a credential, and no folder of such."""
    return kept_at(path) == "credential" and not is_secret_place(path)


# A page or a picture below visible folders of this machine, as a browser is shown what was just built.
_LOCAL_PAGE: Final = Lazy(
    r"(?i)^file:///(?:[a-z]:/)?(?:[\w][\w. +-]*/)+[\w][\w +.-]*\.(?:x?html?|svg|pdf|png|jpe?g|gif|webp)(?:#[\w-]*)?$"
)


def is_local_page(url: str) -> bool:
    """Whether a URL is a page of this machine: not a file of any other kind, nor one in a hidden folder."""
    return url[:8].lower() == "file:///" and _LOCAL_PAGE.search(url) is not None and place_of(url[7:]) is None


# Preferences, as a desktop keeps them

_TYPES: Final = frozenset({"-bool", "-boolean", "-int", "-integer", "-string", "-float", "-array", "-dict", "-data"})
_GLOBAL: Final = frozenset({"-g", "-globaldomain", "nsglobaldomain"})
_SETS: Final = frozenset({"write", "delete", "import", "set", "reset"})
_YES: Final = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0", "00": "0"}


def preference_path(program: str, args: Sequence[str]) -> str:
    """Return what a program sets as a path, `preferences/<domain>/<name>=<value>`, in small letters."""
    words = [word for word in args if word[:1] != "-" or word.lower() in _GLOBAL]
    after = {word.lower(): args[at + 1] for at, word in enumerate(args[:-1]) if word[:1] == "-"}
    domain, name, value = words[-1] if words else "", "", ""
    if program == "plistbuddy":  # `-c "Set :name value" file`
        name, _, value = after.get("-c", "").partition(" ")[2].strip().lstrip(":").partition(" ")
        value = value.rpartition(" ")[2]
    elif program == "plutil":
        name = after.get("-replace") or after.get("-insert") or after.get("-remove") or ""
        value = next((after[word] for word in after if word in _TYPES), "")
    elif program == "sysctl":  # `-w kernel.x=0`
        name, _, value = next((word for word in words if "=" in word), "").replace("/", ".").partition("=")
        domain = "sysctl"
    else:
        at = next((at for at, word in enumerate(words) if word.lower() in _SETS), len(words))
        domain, name, value, *_ = [*words[at + 1 :], "", "", ""]
    if program == "dconf":  # `/org/gnome/desktop/screensaver/lock-enabled` and its value
        value = name
        domain, _, name = domain.strip("/").replace("/", ".").rpartition(".")
    domain = domain.rpartition("/")[2].removesuffix(".plist")
    value = value.strip("\"' ").lower()
    value = _YES.get(value, value).replace("/", " ").replace("\\", " ")
    return f"preferences/{domain}/{name.strip()}={value}".lower()


# Files into the table


@cache
def _builtin_table() -> _Table:
    return make_table(builtin_resources())


@cache
def builtin_resources() -> tuple[ResourceFile, ...]:
    """Return every file of resources that ships with Aegis; raise as `load_resources` does."""
    files = load_resources(resource_folder(), cache=default_cache_folder())
    if not files:  # without them every path would look harmless
        raise missing("data/resources")
    return files


def resource_folder() -> Path:
    """Return the folder of the built-in resources; raise `ConfigError` where the installation lacks them."""
    return shipped_folder("data/resources")


def load_resources(folder: Path, *, cache: Path | None = None) -> tuple[ResourceFile, ...]:
    """Read every file of a folder; raise `ConfigError` with one problem for each that is wrong."""
    return load_files(folder, "resources", Path(__file__), ResourceFile, _checked, cache=cache)


def _checked(name: str, text: str) -> ResourceFile:
    from aegis.detect.rules.load import parse  # YAML is read where nothing was kept

    value, _ = parse(text, name)
    try:
        file = convert(value, ResourceFile)
    except msgspec.ValidationError as error:
        raise ConfigError((Problem(message=str(error), file=name),)) from error
    problems = [
        Problem(message=f"`{place.resource}` needs {LEAST_EXAMPLES} `found` and `pass` examples", file=name)
        for place in file.places
        if len(place.found) < LEAST_EXAMPLES or len(place.passes) < LEAST_EXAMPLES
    ]
    problems += [
        Problem(message=f"`{place.resource}` is not a resource", file=name)
        for place in file.places
        if place.resource not in RESOURCES
    ]
    if problems:
        raise ConfigError(tuple(problems))
    return file


def make_table(files: Sequence[ResourceFile]) -> _Table:
    """The table that paths are looked up in."""
    root = _Node()
    for place in (place for file in files for place in file.places):
        for text in place.paths:
            _add(root, text, place.resource)
        for text in place.excluded:
            _add(root, text, None)
    names = {name: folder for file in files for name, folder in file.names.items()}
    return _Table(root, tuple(sorted(names.items(), key=lambda item: -len(item[0]))))


def _add(root: _Node, text: str, resource: Resource | None, *, is_below: bool = False) -> None:
    """Add a pattern; one of all that lies below a folder or a key names that as well, where none names it itself."""
    lowered = text.lower()
    if lowered.startswith("//./"):
        segments: tuple[str, ...] = ("//.", *lowered[4:].split("/"))
    elif lowered.startswith("/"):
        segments = ("/", *(part for part in lowered.split("/") if part))
    else:
        segments = tuple(lowered.split("/"))
    node = root
    for part in segments:
        if part == DEEP:
            node.deep = node.deep or _Node(is_deep=True)
            node = node.deep
        elif "*" in part:
            node = node.globs.setdefault(part, _Node())
        else:
            node = node.literal.setdefault(part, _Node())
    # What says more: letters that are written out, then fewer wildcards; an exception beats what it is one of.
    weight = sum(len(part.replace("*", "")) * 4 + 2 for part in segments) - 3 * segments.count(DEEP)
    end = _End(
        weight + (10_000 if resource is None else 0) - is_below, resource, not is_below and "*" not in segments[-1]
    )
    if node.ends is None or end.weight > node.ends.weight:
        node.ends = end
    if resource is not None and segments[-1] == DEEP and len(segments) > 2:
        _add(root, text.removesuffix(f"/{DEEP}"), resource, is_below=True)


def is_any_secret(path: str) -> bool:
    """Whether one of the files that a path with wildcards stands for is a secret, or all that lies with secrets."""
    folder = place_of(path.partition("/*")[0])
    return (
        (folder is not None and folder.resource == "credential")
        or is_secret_place(path.partition("/*")[0])
        or any(True for _ in matched(path, KNOWN_SECRETS))
    )
