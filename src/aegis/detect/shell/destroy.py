"""Commands that destroy: what they delete, overwrite or lock away, and whether that is a system or a build folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.paths import is_account_file, is_system_secret, matched
from aegis.detect.quick import remembered
from aegis.detect.resources import opened_by, opens_to_all, place_of
from aegis.detect.shell.catalogue import of_kind, options
from aegis.detect.shell.starts import in_odd_place
from aegis.detect.shell.tree import Command
from aegis.detect.shell.uses import Did
from aegis.detect.shell.words import DELETERS, FED, INTERPRETERS, LOOSE_PLACES, SYSTEM_ROOTS

# Code that a program loads because an option names it: scripts, plug-ins and settings that run things.
#
# Where the option names a place that every user can write, somebody else may have written what runs (CWE-426).

_FILES: Final = options("loads")
_LIBRARIES: Final = options("library")  # code itself, which has no business outside the places of a system
_LOADS: Final = {
    name: tuple(dict.fromkeys((*_FILES.get(name, ()), *_LIBRARIES.get(name, ())))) for name in {**_FILES, **_LIBRARIES}
}
# Programs whose operand is a list of commands to run.
_GIVEN_A_LIST: Final = of_kind("runs-list")
# What stands between an option and the file that it loads.
_LEADS: Final = Lazy(
    r"^(?:.*\blua_script:|ssh_command=|\.load\s+|.*\b(?:ladspa|frei0r)=(?:file=|filter_name=)?|[\w.-]+=)"
)
_STARTED_FROM: Final = frozenset({"/bin", "/usr/bin", "/sbin", "/usr/sbin"})


def loads(command: Command) -> str:
    """The option and value by which a command runs code from a place that everybody can write, or nothing."""
    name, args = command.name.lower(), command.args
    for option in _LOADS.get(name, ()):
        for at, word in enumerate(args):
            value = ""
            if word == option:
                value = args[at + 1] if at + 1 < len(args) else ""
            elif word.startswith(option):
                value = word[len(option) :].lstrip("=: ")
            value = _LEADS.sub("", value)
            odd = option in _LIBRARIES.get(name, ()) and (value.startswith(("./", "../")) or in_odd_place(value))
            if odd or value.startswith(LOOSE_PLACES):
                return f"{option} {value}"
    if name in _GIVEN_A_LIST and any(word.startswith(LOOSE_PLACES) for word in args):
        return f"{name} {args[0]}"
    if name == "service" and args and ".." in args[0]:
        return f"service {args[0]}"
    if name == "run-parts" and args and args[-1].rstrip("/") in _STARTED_FROM:
        return f"run-parts {args[-1]}"
    return ""


# Commands that break a running system: its programs, its settings, the data of its services, the way to start it.
#
# What is named here is not the whole system, which `shell_destroy` reads, yet the machine or a service on it is
# gone without the file. Places are those of the Filesystem Hierarchy Standard 3.0 and of the services' own
# packages.

SIGNAL: Final = "shell.breaks"
# Files and folders that a machine does not start or run without; a file below a folder of settings is daily work.
_VITAL: Final = Lazy(
    r"^/(?:boot(?:/(?:grub2?(?:/grub\.cfg)?|efi|(?:vmlinuz|initr|system\.map|config-)[^/]*|\*))?"
    r"|etc/(?:passwd|group|g?shadow|sudoers(?:\.d)?|fstab|crypttab|ssh|pam\.d|ssl|pki|security|network|netplan|systemd|"
    r"systemd/system|init\.d|kubernetes|docker|mysql|postgresql|nginx|apache2|httpd|ld\.so\.(?:conf|cache)|nsswitch\.conf)"
    r"|(?:usr/)?s?bin/(?:[\w.+-]{1,40}|\*)|(?:usr/)?lib(?:32|64)?/(?:systemd(?:/systemd)?|x86_64-linux-gnu|modules|python3[\w.]*|"
    r"ld-linux\S*|libc\.\S*|\*)|run|run/\*|var/run(?:/docker\.sock)?|run/docker\.sock|dev/(?:null|zero|u?random|shm)"
    r"|var/lib/(?:mysql|mariadb|postgresql|pgsql|mongodb?|redis|etcd|docker|containerd|kubelet|dpkg|rpm|elasticsearch|"
    r"cassandra|influxdb|rabbitmq|kafka|neo4j|clickhouse|jenkins|gitlab|libvirt|grafana|prometheus|vault|consul|minio)"
    r"(?:/\*|/data|/main)?|var/(?:spool/cron|backups|mail|spool/mail)|backups?|(?:mnt/)?[a-z]/(?:[Uu]sers(?:/[\w.-]{1,40})?|"
    r"[Ww]indows|ProgramData|Program Files(?: \(x86\))?)|srv|mnt|media|exports?|home/[\w.-]{1,40})(?:/|/\*)?$"
)
_DATABASE: Final = Lazy(r"(?i)\.(?:db|sqlite3?|mdb|accdb|ibd|frm|dbf|realm|kdbx)$")
_EMPTIES: Final = Lazy(
    r"^\s*(?::|true|cat\s+/dev/null|echo\s+-n(?:\s+(?:''|\"\"))?|printf\s+(?:''|\"\"))?\s*(?:\d?>\|?)\s*\S+\s*$"
)
_IDENTITY: Final = Lazy(r"^/etc/(?:g?shadow-?|passwd|sudoers(?:\.d/.*)?|group|pam\.d/.*|security/.*)$")
_LOCKED: Final = frozenset({"000", "0000", "0", "a-rwx", "a=", "ugo-rwx", "ugo="})
_SOCKETS: Final = frozenset({"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"})
_EDITORS: Final = of_kind("edits-in-place")
_NOTHING: Final = frozenset({"empty", "blank", "emptydir", "empty_dir", "void", "empty-dir", "null"})  # empty folders
_NEW_FOLDER: Final = ("$(mktemp -d", "`mktemp -d")
_MIRRORS: Final = ("/backup", "/exports", "/home/", "/media", "/mnt", "/srv", "/var/backups")  # copies


def breaks(command: Command) -> str:
    """`shell.breaks` or `shell.privilege` where one command breaks a system or its list of who may do what."""
    name, args = command.name.lower(), command.args
    if name in DELETERS:
        return SIGNAL if any(is_vital(_widened(arg)) for arg in args) else ""
    if name == "mv":
        gone = args[-1:] == ("/dev/null",) or args[-1:] == ("/tmp",)  # noqa: S108 - a place to look for
        return SIGNAL if gone and any(is_vital(arg) for arg in args[:-1]) else ""
    if name == "truncate":
        return SIGNAL if any(is_vital(arg) or _DATABASE.search(arg) for arg in args) and "0" in args else ""
    if name == "chmod":
        return _modes(args)
    if name in _EDITORS and any(map(_edits, args)):
        return "shell.privilege" if any(map(_IDENTITY.match, args)) else ""
    if name == "rsync":
        return SIGNAL if _empties_target(args) else ""
    return ""


def _empties_target(args: tuple[str, ...]) -> bool:
    """Whether a copy deletes what its target has more than its source: all of a vital folder, or from an empty one."""
    places = [arg for arg in args if not arg.startswith("-")]
    tries = "--dry-run" in args or any(arg[0] == "-" and arg[1:].isalpha() and "n" in arg for arg in args if arg)
    if len(places) < 2 or tries or not any(arg.startswith("--del") for arg in args):
        return False
    target, source = places[-1].rpartition(":")[2].rstrip("/") or "/", places[-2].rstrip("/").rsplit("/", 1)[-1].lower()
    if target.startswith(("/", "~", "$HOME")) and (source in _NOTHING or source.startswith(_NEW_FOLDER)):
        return True
    return (is_vital(target) or _is_root(target)) and not target.startswith(_MIRRORS)


def breaks_file(target: str, source: str) -> bool:
    """Whether the statement `source` leaves nothing of a file that a system or a service needs."""
    if not (is_vital(target) or _DATABASE.search(target)) or ">>" in source or target.startswith("/dev/"):
        return False
    return len(source) < 200 and _EMPTIES.match(source) is not None


@remembered
def is_vital(path: str) -> bool:
    """Whether a machine or a service of it does not work without the file or folder."""
    return path.startswith("/") and _VITAL.match(path) is not None


def _modes(args: tuple[str, ...]) -> str:
    modes = [arg for arg in args if not arg.startswith("-R")][:1]
    if any(mode in _LOCKED for mode in modes) and any("R" in arg for arg in args if arg.startswith("-")):
        return SIGNAL
    opened = any(mode[-1:] in "2367" for mode in modes if mode.isdigit()) or any("o+" in mode for mode in modes)
    return "shell.privilege" if opened and _SOCKETS & set(args) else ""


def _edits(arg: str) -> bool:
    """Whether an option edits files where they stand: `-i`, `-i.bak`, `-ri`, `-pi`."""
    return arg.startswith("--in-place") or (arg.startswith("-") and not arg.startswith("--") and "i" in arg[1:4])


_DEVICE: Final = Lazy(r"^(?:of=)?/dev/(?:sd|hd|nvme|vd|xvd|mmcblk|disk|mapper/|md|dm-|k?mem$|port$)\w*")
_UNKNOWN_DEVICE: Final = Lazy(r"^(?:of=)?/dev/[$`]")  # whichever disk a variable or another command names
_PARTITIONERS: Final = of_kind("partitioner")
# What `mkfs` of a file system only tries out with a letter that means something else to another one.
_MKFS_FLAGS: Final = frozenset("FKQcfqv")
_TRIES: Final = {"xfs": "N", "ext2": "n", "ext3": "n", "ext4": "n", "ntfs": "n", "": "n"}
_LISTS: Final = frozenset({"-l", "--list", "print", "-s", "-d", "--dump", "-n", "--no-act", "-J", "--json", "--verify"})
_NO_ACT: Final = frozenset({"-n", "--no-act"})
# What changes a disk, whatever else is listed of it.
_EDITS: Final = frozenset({
    "rm", "mklabel", "mktable", "mkpart", "resizepart", "rescue", "set", "toggle", "disk_set", "disk_toggle", "name",
    "type", "--delete", "--append", "--activate", "--move-data", "--reorder", "--wipe", "--wipe=always", "-A",
})  # fmt: skip
_WHOLE: Final = frozenset({"*", ".", "./", "./*", ".*", ".git", "./.git", "..", "../*"})
_ALL_BUT: Final = Lazy(r"^(?:!$|!\(|\^[\w.*-]|\*~.)")  # everything of a folder but what the rest of the pattern names
_BUT: Final = Lazy(r"^(.*/)(?:(?:\^|\*~|!\().+|!)$")  # the same of a folder that is named
_NARROWING: Final = frozenset({
    "-name", "-iname", "-path", "-user", "-mtime", "-mmin", "-size", "-empty", "-newer", "-regex", "-inum", "-atime",
    "-ctime", "-perm", "-ipath", "-group", "-nouser", "-links",
})  # fmt: skip
# Of these, what says which files are meant by what they are, and not only by their age or size.
_NAMING: Final = frozenset(
    {"-name", "-iname", "-path", "-ipath", "-regex", "-inum", "-empty", "-nouser", "-user", "-group", "-perm", "-newer"}
)
_BY_NAME: Final = frozenset({"-name", "-iname", "-path", "-ipath", "-regex"})
_AGES: Final = frozenset({"-mtime", "-mmin", "-ctime", "-cmin", "-atime", "-amin"})
_CLUTTER: Final = Lazy(
    r"(?i)^(?:\*\.(?:py[co]|sw[op]|orig|rej|tmp|temp|bak~|class|o|ds_store|cache|dpkg-\w+|rpm(?:save|new|orig))|\*~|"
    r"(?:\*/)?__pycache__(?:/\*)?|\._?\*?|\.ds_store|\._\*|thumbs\.db|desktop\.ini|\.\w+_cache|node_modules|core(?:\.?\*)?|a\.out)$"
)
_OWN_HOME: Final = Lazy(r"(?i)^(?:~|\$\{?home\}?|/home/[^/]+|/users/[^/]+)/?$")
_ENCRYPTORS: Final = of_kind("encryptor")
_LISTERS: Final = of_kind("lister")
# A loop over what is found in a home or a system, whatever its names: encrypted and deleted, it is extortion.
_FOUND_LOOP: Final = Lazy(
    r"\b(?:for\s+\w+\s+in\s+\"?(?:\$\(|`)\s*(?:sudo\s+)?find\s+|find\s+)(?:/|~|\$HOME)(?:home|root|etc|srv|var|mnt|Users)?\b"
)
_COUNTS: Final = Lazy(r"\bfor\s+(\w+)\s+in\s|\bread\s+(?:-\w+\s+)*(\w+)")
_USED: Final = Lazy(r"^\$\{?(\w+)(?::\?\w*)?\}?(?:/\*?)?$")  # all of what is counted, and not a folder in it
_ROOT_LOOP: Final = Lazy(r"\bfor\s+\w+\s+in\s+(?:/\*|/ |~/\*|\$HOME/\*|\"\$HOME\"/\*|/home/\*)")


def destroys(command: Command) -> list[str]:
    """`shell.destroy` for a system, a disk or a home, `shell.delete-all` for the whole folder it stands in."""
    name, args = command.name.lower(), command.args
    if name in DELETERS:
        signal = _delete(tuple(map(_widened, args)))
        return [signal] if signal else []
    if name.startswith(("mkfs.", "mke2fs")) or name == "mkfs":
        tries = _TRIES.get(name.partition(".")[2], "-")
        flags = _MKFS_FLAGS.union(tries)
        tried = any(arg[:1] == "-" and tries in arg[1:] and flags.issuperset(arg[1:]) for arg in args)
        return [] if tried or not any(map(_overwrites, args)) else ["shell.destroy"]
    if name in _PARTITIONERS:
        listing = _LISTS - {"-s"} if name == "parted" else _LISTS  # whose `-s` asks no questions
        lists = bool(listing & set(args)) and (_EDITS.isdisjoint(args) or not _NO_ACT.isdisjoint(args))
        harmless = lists or not any(map(_overwrites, args))
        harmless = harmless or (
            name == "wipefs" and not any(arg.startswith(("-a", "-o", "--all", "--off")) for arg in args)
        )
        asks = len(args) == 1 and name in {"fdisk", "gdisk", "parted"} and not (command.fed or command.stage)
        return [] if harmless else ["shell.infrastructure" if asks else "shell.destroy"]
    if name == "dd":
        return ["shell.destroy"] if any(arg.startswith("of=") and _overwrites(arg) for arg in args) else []
    if name == "kill":
        return ["shell.destroy"] if args[-1:] == ("-1",) and len(args) > 1 else []
    if name == "truncate":
        return ["shell.destroy"] if any(is_account_file(arg) or is_system_secret(arg) for arg in args) else []
    if name == "mv" and len(args) > 1 and any(_is_root(arg) for arg in args[:-1]):
        return ["shell.destroy"] if args[-1] == "/dev/null" or args[0] in {"/*", "/"} else []
    return []


def _overwrites(operand: str) -> bool:
    return writes_device(operand) or _UNKNOWN_DEVICE.match(operand) is not None


def writes_device(target: str) -> bool:
    """Whether a redirection overwrites a disk."""
    return "/dev/" in target and _DEVICE.match(target) is not None


_FORK_BOMB: Final = Lazy(
    r"(\w+|:)\s*\(\)\s*\{\s*(\w+|:)\s*\|\s*(\w+|:)\s*&\s*;?\s*\}|\bfork\s*(?:\(\))?\s*while\s+(?:fork|1)"
)


def is_fork_bomb(text: str) -> bool:
    """Whether a text defines what starts itself twice, without end."""
    found = _FORK_BOMB.finditer(text) if "()" in text or "fork" in text else ()
    return any(len(set(match.groups())) == 1 for match in found)


def loops_over_root(text: str, commands: list[Command]) -> bool:
    """Whether what is counted or listed below the root or a home is deleted one by one, however it gets there."""
    if "find" in text and _FOUND_LOOP.search(text) is not None:
        names = {command.name for command in commands}
        if names & _ENCRYPTORS and names & DELETERS:
            return True
    listed = [command for command in commands if command.name in _LISTERS and _lists_root(command.args)]
    if any(one.inside for one in listed) and any(one.fed and _starts_deleter(one) for one in commands):
        return True
    deleted = [arg for command in commands if command.name in DELETERS for arg in command.args if arg[:1] in "$`"]
    if not deleted:
        return False
    if any(one.text in arg for one in listed for arg in deleted):
        return True
    if not listed and ("for" not in text or _ROOT_LOOP.search(text) is None):
        return False
    counted = {match.group(1) or match.group(2) for match in _COUNTS.finditer(text)}
    used = [match.group(1) for match in map(_USED.match, deleted) if match is not None]
    return any(name in counted for name in used) and (
        not listed or _ROOT_LOOP.search(text) is not None or any(one.inside or one.pipe for one in listed)
    )


_COUNTED: Final = Lazy(r"\$\{?\w+|\{\}|[^\s\"'=]*\*[^\s\"'.]*|@file|@path")
_WHOLES: Final = ("[io.file]::readallbytes", "[io.file]::writeallbytes")
_READS_WHOLE: Final = frozenset({*_WHOLES, "[io.file]::openread", "[io.file]::open"})
_LISTS_ALL: Final = frozenset({"get-childitem", "[io.directory]::getfiles", "[io.directory]::enumeratefiles"})
_ENCODES: Final = frozenset({".createencryptor", ".transformfinalblock", ".flushfinalblock", ".encryptvalue"})
_OPENS: Final = frozenset({"-d", "--decrypt", "--verify", "--sign", "-s", "-b", "--detach-sign", "-x", "-l", "-t"})
_LOCKS: Final = {"openssl": ("enc", "-encrypt"), "7z": ("-p",), "zip": ("-P", "-e", "--password"), "rar": ("-p", "-hp")}


def locks_away(commands: Sequence[Command]) -> str:
    """What a text encrypts and deletes that a loop, or what `parallel` is given, counts; nothing where it does not."""
    encodes = any(command.name in _ENCODES for command in commands)
    locked = {
        counted
        for command in commands
        if (encodes and command.name in _READS_WHOLE) or (command.name in _ENCRYPTORS and _encrypts(command))
        for arg in command.args
        for counted in _COUNTED.findall(arg)
    }
    reads, writes = ({one.args[0] for one in commands if encodes and one.args and one.name == name} for name in _WHOLES)
    if not reads.isdisjoint(writes) and any(command.name in _LISTS_ALL for command in commands):
        return next(iter(writes))  # each in the place of itself
    gone = [command for command in commands if locked and (command.name in DELETERS or "-sdel" in command.args)]
    return next((one.text for one in gone if not locked.isdisjoint(_COUNTED.findall(" ".join(one.args)))), "")


def _encrypts(command: Command) -> bool:
    signs = _LOCKS.get(command.name, ("",))
    return _OPENS.isdisjoint(command.args) and any(arg.startswith(signs) for arg in command.args)


def finds(command: Command) -> list[str]:
    """What `find` destroys with what it finds: all of a system or home, or files after encrypting them."""
    args = command.args
    where = next((arg for arg in args if not arg.startswith("-")), ".")
    started = {args[at + 1].rsplit("/", 1)[-1] for at, arg in enumerate(args[:-1]) if arg in {"-exec", "-execdir"}}
    ends = any(arg in _EXECS and _ends(args[at + 1 : at + 5]) for at, arg in enumerate(args))
    opens = any(arg in _EXECS and _opens(args[at + 1 : at + 5]) for at, arg in enumerate(args))
    if opens and (_is_root(where) or is_vital(where)) and not _BY_NAME & set(args):
        return [SIGNAL]
    removes = ends or not {"-delete", "-sdel"}.isdisjoint(args) or bool(started & DELETERS)
    if "-delete" in args and not _NAMING.isdisjoint(args) and _NAMING.isdisjoint(args[: args.index("-delete")]):
        return ["shell.destroy" if _is_root(where) else "shell.delete-all"]  # no test keeps what is gone before it
    if removes and (started & _ENCRYPTORS or (_is_root(where) and not _NARROWING & set(args))):
        return ["shell.destroy"]
    if removes and _is_root(where) and not _NAMING & set(args):  # old or large files of a whole system
        return [SIGNAL]
    wanted = (
        _is_root(where) or is_vital(where) or (_keeps_logs(where) and not _ROTATED.issuperset(_named(args) or ["*"]))
    )
    if removes and wanted and not _OWN_HOME.match(where) and _deletes_wanted(where, args):
        return [SIGNAL]
    return []


def where_found(words: tuple[str, ...], args: Sequence[str]) -> tuple[str, ...]:
    """The command that `find` starts to change rights, with the place of what it finds: `chmod 644 /etc/ssl/*.key`."""
    where = next((arg for arg in args if not arg.startswith("-")), "")
    if not words or where[:1] not in ("/", "~"):
        return words
    if (
        words[0] == "rm"
        and "-mindepth" not in args
        and any(sign in ("!", "-not") and test in _BY_NAME for sign, test in pairwise(args))
    ):  # which the folder itself is not called either
        return tuple(where if word == "{}" else word for word in words)
    if words[0].rpartition("/")[2] not in _RIGHTS:
        return words
    return tuple(f"{where.rstrip('/')}/{(_named(args) or ['*'])[0]}" if word == "{}" else word for word in words)


_RIGHTS: Final = of_kind("sets-rights")
_ROTATED: Final = frozenset({"*.gz", "*.xz", "*.zst", "*.bz2", "*.old", "*.[0-9]", "*.[0-9].gz", "*.1", "*.log.*"})


def _named(args: Sequence[str]) -> list[str]:
    return [value for option, value in pairwise(args) if option in _BY_NAME]


def _keeps_logs(where: str) -> bool:
    """Whether a folder is the one in which a system keeps its logs, and not that of a program in it."""
    place = place_of(where) if where.startswith("/") else None
    return place is not None and place.resource == "log" and place.whole


_EXECS: Final = frozenset({"-exec", "-execdir"})


def _ends(words: tuple[str, ...]) -> bool:
    """Whether a command that `find` starts leaves nothing of a file, or nobody who may read it."""
    name, given = words[0].rsplit("/", 1)[-1] if words else "", words[1:4]
    if name == "chmod":
        return not _LOCKED.isdisjoint(given)
    if name == "truncate":
        return not {"0", "-s0", "--size=0"}.isdisjoint(given)
    return name in {"cp", "dd"} and any("/dev/" in word for word in given)


_TO_ALL: Final = frozenset(
    {"777", "0777", "666", "0666", "o+w", "a+w", "ugo+w", "o+rw", "a+rw", "o+rwx", "a+rwx", "+w"}
)


def _opens(words: Sequence[str]) -> bool:
    """Whether a command that is started with files lets everybody write them."""
    name = words[0].rsplit("/", 1)[-1] if words else ""
    return name == "chmod" and not _TO_ALL.isdisjoint(words[1:4])


def _deletes_wanted(where: str, args: tuple[str, ...]) -> bool:
    """Whether `find` is to delete all, or by name what no program makes again and what is not kept for days only."""
    named = _named(args)
    if not named:
        return not _NARROWING & set(args)
    kept = any(option in _AGES and value.startswith("+") for option, value in pairwise(args))
    return not all(_CLUTTER.match(value) for value in named) and (not kept or where.rstrip("/") == "")


def feeds_deleter(stages: Sequence[Command]) -> bool:
    """Whether what lies below the root or a home is listed into a command that deletes what it reads."""
    for before, command in pairwise(stages):
        words = _starts_deleter(command)
        whole = before.name == "find" or any(map(_recurses, words))
        if words and whole and before.name in _LISTERS and _lists_root(before.args):
            return True
        if before.name == "find" and command.name in FED and any(map(_is_root, before.args)):
            at = next((at for at, arg in enumerate(command.args) if arg.rsplit("/", 1)[-1] == "chmod"), None)
            if at is not None and _opens(command.args[at:]) and not _BY_NAME & set(before.args):
                return True
    return False


def _lists_root(args: tuple[str, ...]) -> bool:
    return any(map(_is_root, args)) and not _NARROWING & set(args)


def _starts_deleter(command: Command) -> tuple[str, ...]:
    """The words of the command that `command` starts with what it reads, where that one deletes."""
    if command.name not in FED:
        return ()
    return next((command.args[at:] for at, arg in enumerate(command.args) if arg.rsplit("/", 1)[-1] in DELETERS), ())


def _recurses(word: str) -> bool:
    return word == "--recursive" or (word.startswith("-") and not word.startswith("--") and "r" in word.lower())


def sets_permissions(command: Command) -> list[str]:
    """A whole system locked or opened, or a program given its owner's rights."""
    name, args = command.name, command.args
    if name == "setcap":
        if args[:1] in (("-v",), ("-qv",)) or args[:2] == ("-q", "-v"):  # only compares
            return []
        powers = ("cap_set", "cap_dac", "cap_sys_admin", "cap_sys_ptrace", "cap_sys_module", "cap_fowner", "cap_chown")
        return ["shell.privilege"] if any(power in arg for arg in args for power in powers) else []
    if name == "install":
        given = [second for first, second in pairwise(args) if first in {"-m", "--mode"}]
        return ["shell.privilege"] if any(map(_sets_uid, given)) else []
    operands = [arg for arg in args if not arg.startswith("-")]
    targets = operands[1:]
    recursive = any((arg.startswith("-") and "R" in arg) or arg == "--recursive" for arg in args)
    if recursive and any(map(_is_root, operands)):  # options stand anywhere, and one may say the mode
        return ["shell.destroy"]
    if name == "chmod" and any(map(_sets_uid, args[:-1])) and any(map(_is_program, targets)):
        return ["shell.privilege"]
    if name == "chmod" and any(map(_gives_owner, args[:-1])):  # folders take their group's, never their owner's
        return ["shell.privilege"]
    return []


_MOST_OPENED: Final = 16  # operands of one command that are looked at


def opened(command: Command) -> Iterator[Did]:
    """What a command lets others write that a system needs, or read that is secret: `chmod -R 777 /etc/ssl`."""
    mode, *targets = [arg for arg in command.args if arg[:1] != "-"] or [""]
    kinds = opened_by(command.name, mode)
    whole = any(_recurses(arg) for arg in command.args)
    for target in targets[:_MOST_OPENED] if kinds else ():
        place = place_of(target)
        if place is not None and (place.resource in kinds or is_system_secret(target)):
            yield Did("expose", place.resource, "all" if whole else "one", (target,))
        elif place is not None and place.resource == "public-place" and whole and opens_to_all(mode):
            yield Did("expose", place.resource, "all", (target,))


def _widened(arg: str) -> str:
    """An operand with all of a folder but something as all of it, where others stand for both."""
    return str(_BUT.sub(r"\1*", arg)) if "/" in arg else arg


def _delete(args: tuple[str, ...]) -> str:
    flags = "".join(arg for arg in args if arg.startswith("-")).lower()
    recursive = "r" in flags.replace("--preserve-root", "").replace("--no-preserve-root", "")
    unguarded = "--no-preserve-root" in args
    for arg in args:
        if arg.startswith("-"):
            continue
        if (_is_root(arg) and (recursive or arg.endswith("*"))) or unguarded or writes_device(arg):
            return "shell.destroy"
        if recursive and (arg in _WHOLE or _ALL_BUT.match(arg)):
            return "shell.delete-all"
    return ""


def _is_root(arg: str) -> bool:
    lowered = arg.lower()
    if lowered in SYSTEM_ROOTS or (lowered.rstrip("/") or "/") in SYSTEM_ROOTS:
        return True
    return lowered.startswith("/") and any(matched(lowered, SYSTEM_ROOTS))


def _is_program(target: str) -> bool:
    """A file that is run: an interpreter, a program of the system, or one without an ending in a loose place."""
    name = target.rsplit("/", 1)[-1]
    if name in INTERPRETERS or target.startswith(("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/")):
        return True
    return target.startswith(("/tmp/", "/dev/shm/", "/var/tmp/", "./"))  # noqa: S108 - names to look for


def _gives_owner(mode: str) -> bool:
    """Whether a mode makes a program run as its owner."""
    if len(mode) == 4 and mode.isdigit():
        return mode[0] in "4567"
    who, plus, what = mode.partition("+")
    return bool(plus) and "s" in what and (not who or "u" in who or "a" in who) and mode.isascii() and len(mode) < 8


def _sets_uid(mode: str) -> bool:
    if len(mode) == 4 and mode.isdigit():
        return mode[0] in "4567"
    return not mode.startswith(("-", "/", ".")) and "s" in mode and ("+" in mode or "=" in mode)
