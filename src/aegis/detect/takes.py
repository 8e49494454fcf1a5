"""Which folders a command takes whole: copies, packs, searches, moves, deletes or hands to another place.

From the programs' manuals. A command that only names a folder, lists it or works in it takes nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from aegis.detect.facts import RanCommand
from aegis.detect.operands import STARTED, below


class Taken(NamedTuple):
    """A folder, whether more than reading is done with it, and what narrows the files that are found in it.

    `names` are patterns of which a file must match one; `depth` is how many folders deep files are looked for.
    """

    folder: str
    changes: bool
    names: tuple[str, ...] = ()
    depth: int | None = None


def taken(one: RanCommand) -> Iterator[Taken]:
    """The folders that a command takes whole, as it names them or below the folder that it runs in."""
    take = _TAKES.get(one.name.lower())
    if take is not None:
        for found in take(one):
            yield found._replace(folder=below(one.folder, found.folder))


def _operands(args: tuple[str, ...]) -> list[str]:
    return [arg for at, arg in enumerate(args) if not arg.startswith("-") or "--" in args[:at]]


def _has(args: tuple[str, ...], letters: str, *names: str) -> bool:
    """Whether a short option with one of the letters, or one of the long ones, is given."""
    return any(
        arg.partition("=")[0] in names if arg.startswith("--") else arg[:1] == "-" and not set(letters).isdisjoint(arg)
        for arg in args
    )


def _after(args: tuple[str, ...], *options: str) -> list[str]:
    """The values of options, joined or in the next word."""
    values = [following for option, following in pairwise(args) if option in options]
    for arg in args:
        for option in options:
            if option.startswith("--") and arg.startswith(f"{option}="):
                values.append(arg[len(option) + 1 :])
            elif len(option) == 2 and option != "--" and arg.startswith(option) and len(arg) > 2:
                values.append(arg[2:])
    return values


def _each(folders: list[str], *, changes: bool) -> Iterator[Taken]:
    return (Taken(folder, changes) for folder in folders)


def _deletes(one: RanCommand) -> Iterator[Taken]:
    recursive = _has(one.args, "rR", "--recursive") or one.name in _WHOLE or "/s" in map(str.lower, one.args)
    return _each(_operands(one.args), changes=True) if recursive else iter(())


def _moves(one: RanCommand) -> Iterator[Taken]:
    into = _has(one.args, "t", "--target-directory")
    return _each(_operands(one.args) if into else _operands(one.args)[:-1], changes=True)


def _links(one: RanCommand) -> Iterator[Taken]:
    operands = _operands(one.args)
    return _each(operands[:1] if len(operands) < 3 else operands[:-1], changes=True)


def _copies(one: RanCommand) -> Iterator[Taken]:
    into = _has(one.args, "t", "--target-directory")
    if not _has(one.args, "rRa", "--recursive", "--archive"):
        return iter(())
    return _each(_operands(one.args) if into else _operands(one.args)[:-1], changes=False)


def _synchronises(one: RanCommand) -> Iterator[Taken]:
    operands = _operands(one.args)
    if _has(one.args, "ra", "--recursive", "--archive"):
        yield from _each(operands[:-1], changes="--remove-source-files" in one.args)
    if any(arg.startswith("--del") for arg in one.args):
        yield from _each(operands[-1:], changes=True)


def _sets(one: RanCommand) -> Iterator[Taken]:
    return _each(_operands(one.args), changes=True) if _has(one.args, "R", "--recursive") else iter(())


def _packs(one: RanCommand) -> Iterator[Taken]:
    args = one.args
    modes = (
        {letter for arg in args[:1] for letter in arg.lstrip("-")} if args and not args[0].startswith("--") else set()
    )
    if not modes & set("cru") and not _has(args, "cru", "--create", "--append", "--update"):
        return
    changes = "--remove-files" in args
    bases = _after(args, "-C", "--directory")
    for folder in _operands(args[1:] if not args[0].startswith("-") else args):
        yield Taken(folder, changes)
        for base in bases:
            yield Taken(below(base, folder), changes)


def _zips(one: RanCommand) -> Iterator[Taken]:
    return (
        _each(_operands(one.args), changes=_has(one.args, "m")) if _has(one.args, "r", "--recurse-paths") else iter(())
    )


def _all(one: RanCommand) -> Iterator[Taken]:
    return _each(_operands(one.args), changes=False)


def _carries(one: RanCommand) -> Iterator[Taken]:
    return iter(()) if _CARRIES.isdisjoint(one.args) else _all(one)


def _compares(one: RanCommand) -> Iterator[Taken]:
    return _all(one) if _has(one.args, "r", "--recursive") else iter(())


def _greps(one: RanCommand) -> Iterator[Taken]:
    if _has(one.args, "rR", "--recursive", "--dereference-recursive") or "recurse" in one.args:
        yield from _searches(one)


def _searches(one: RanCommand) -> Iterator[Taken]:
    if "--files" in one.args:
        return
    names = tuple(_after(one.args, "--include", "-g", "--glob"))
    given = _has(one.args, "ef", "--regexp", "--file")
    for folder in _operands(one.args)[0 if given else 1 :]:
        yield Taken(folder, False, names)


def _finds(one: RanCommand) -> Iterator[Taken]:
    args = one.args
    end = next((at for at, arg in enumerate(args) if arg[:1] in ("-", "(", "!")), len(args))
    started = {args[at + 1].rpartition("/")[2] for at, arg in enumerate(args[:-1]) if arg in _EXECUTES}
    started |= {fed.removeprefix(STARTED) for fed in one.feeds if fed.startswith(STARTED)}
    changes = "-delete" in args or bool(started & _CHANGING)
    if not (changes or started - _LISTING or _FED.intersection(one.feeds)):
        return
    names = tuple(value for option, value in pairwise(args) if option in ("-name", "-iname"))
    deep = next((value for option, value in pairwise(args) if option == "-maxdepth"), "")
    depth = int(deep) if deep.isdigit() and len(deep) < 4 else None
    only_files = any(option == "-type" and value == "f" for option, value in pairwise(args))
    for folder in args[:end] or (".",):
        yield Taken(folder, changes, names, None if depth is None else depth - only_files)


def _contains(one: RanCommand) -> Iterator[Taken]:
    for value in _after(one.args, "-v", "--volume"):
        yield Taken(value.partition(":")[0], True)
    for value in _after(one.args, "--mount"):
        for part in value.split(","):
            name, _, folder = part.partition("=")
            if name in ("source", "src"):
                yield Taken(folder, True)
    if one.args[:1] == ("cp",):
        yield from _each(_operands(one.args)[1:-1], changes=False)


def _mounts(one: RanCommand) -> Iterator[Taken]:
    if one.name != "mount" or _has(one.args, "", "--bind", "--rbind") or "bind" in one.args:
        yield from _each(_operands(one.args)[:-1], changes=True)


def _serves(one: RanCommand) -> Iterator[Taken]:
    if "http.server" in one.args or not one.name.startswith("python"):
        folders = _after(one.args, "-d", "--directory", "--root", "--path", "-t")
        plain = [] if one.name.startswith(("python", "php")) else _operands(one.args)
        yield from _each([*folders, *plain], changes=False)


def _versions(one: RanCommand) -> Iterator[Taken]:
    bases = _after(one.args, "-C", "--work-tree")
    if "clean" in one.args:
        yield from _each(bases, changes=True)
    elif "add" in one.args or "stash" in one.args:
        yield from _each([*bases, *_operands(one.args)], changes=False)


_WHOLE: Final = frozenset({"trash", "rimraf"})
_CARRIES: Final = frozenset({
    "a", "archive", "backup", "copy", "cp", "create", "mirror", "move", "mv", "put", "rsync", "sync", "upload",
})  # fmt: skip
_EXECUTES: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_LISTING: Final = frozenset(
    {"echo", "ls", "printf", "stat", "file", "du", "basename", "dirname", "test", "readlink", "realpath"}
)
_CHANGING: Final = frozenset({"rm", "mv", "shred", "chmod", "chown", "chgrp", "unlink", "truncate", "sed", "rename"})
_FED: Final = frozenset({"cpio", "tar", "zip", "rsync", "read", "pax", "7z"})  # that read a list of files from a pipe
_TAKES: Final[dict[str, Callable[[RanCommand], Iterator[Taken]]]] = {
    **dict.fromkeys(("rm", "srm", "del", "rd", "rmdir", "remove-item", "trash", "rimraf", "chattr"), _deletes),
    **dict.fromkeys(("mv", "move", "move-item", "rename", "ren"), _moves),
    "ln": _links, "cp": _copies, "gcp": _copies, "scp": _copies, "copy-item": _copies, "rsync": _synchronises,
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chcon"), _sets),
    **dict.fromkeys(("tar", "gtar", "bsdtar", "pax"), _packs), "zip": _zips,
    **dict.fromkeys(("dar", "mksquashfs", "genisoimage", "duplicity", "robocopy", "xcopy", "compress-archive"), _all),
    **dict.fromkeys(("7z", "7za", "rar", "restic", "borg", "rclone", "kopia", "aws", "gsutil", "mc"), _carries),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _greps), "diff": _compares,
    **dict.fromkeys(("rg", "ag", "ack", "ugrep"), _searches), "find": _finds, "fd": _finds,
    **dict.fromkeys(("docker", "podman", "nerdctl"), _contains),
    **dict.fromkeys(("mount", "bindfs", "sshfs"), _mounts),
    **dict.fromkeys(("python", "python3", "php", "http-server", "serve", "live-server", "twistd", "caddy"), _serves),
    "git": _versions,
}  # fmt: skip
