"""The words of a command in one spelling: long options in full, paths without detours.

GNU programs take every prefix of a long option that no other option begins with (`rm --recurs`); a kernel takes every
path that leads to a file (`/etc/./shadow`). Analysers compare words, so both are written out before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.facts import RanCommand
from aegis.detect.paths import LONGEST, plain_path
from aegis.detect.shell.tree import Command

_OWNERSHIP: Final = (
    "changes", "dereference", "from", "no-dereference", "no-preserve-root", "preserve-root", "quiet", "recursive",
    "reference", "silent", "verbose",
)  # fmt: skip
_COPYING: Final = (
    "archive", "attributes-only", "backup", "context", "dereference", "force", "interactive", "link", "no-clobber",
    "no-dereference", "no-target-directory", "one-file-system", "parents", "preserve", "recursive", "reflink",
    "remove-destination", "sparse", "strip-trailing-slashes", "suffix", "symbolic-link", "target-directory", "update",
    "verbose",
)  # fmt: skip
# Long options by program, from its manual: of the programs whose options decide what a command destroys or starts.
_LONG: Final[dict[str, tuple[str, ...]]] = {
    "rm": ("dir", "force", "interactive", "no-preserve-root", "one-file-system", "preserve-root", "recursive",
           "verbose"),
    "chmod": _OWNERSHIP, "chown": _OWNERSHIP, "chgrp": _OWNERSHIP, "cp": _COPYING, "mv": _COPYING,
    "ln": (*_COPYING, "logical", "physical", "relative", "symbolic"),
    "install": ("compare", "directory", "group", "mode", "owner", "strip", "target-directory", "verbose"),
    "shred": ("exact", "force", "iterations", "random-source", "remove", "size", "verbose", "zero"),
    "truncate": ("io-blocks", "no-create", "reference", "size"),
    "grep": ("dereference-recursive", "recursive", "regexp", "include", "invert-match", "ignore-case", "exclude",
             "file"),
    "sed": ("expression", "file", "in-place", "null-data", "quiet", "regexp-extended", "sandbox", "separate", "silent"),
    "base64": ("decode", "ignore-garbage", "wrap"), "base32": ("decode", "ignore-garbage", "wrap"),
    "tar": ("append", "checkpoint-action", "create", "directory", "extract", "file", "info-script",
            "new-volume-script", "rmt-command", "rsh-command", "remove-files", "to-command", "use-compress-program"),
    "env": ("argv0", "block-signal", "chdir", "debug", "default-signal", "ignore-environment", "ignore-signal",
            "list-signal-handling", "null", "split-string", "unset"),
    "wget": ("body-file", "execute", "input-file", "output-document", "output-file", "post-data", "post-file"),
    "split": ("additional-suffix", "bytes", "filter", "lines", "number"),
    "sort": ("compress-program", "files0-from", "output"),
    "useradd": ("gid", "groups", "non-unique", "password", "root", "shell", "uid"),
    "usermod": ("append", "gid", "groups", "non-unique", "password", "root", "shell", "uid"),
    "pkill": ("euid", "exact", "full", "group", "newest", "oldest", "older", "parent", "pgroup", "signal", "terminal"),
    "find": (), "xargs": ("arg-file", "delimiter", "max-args", "replace"),
    "mkfs": (), "wipefs": ("all", "force", "offset", "types"), "flock": ("command", "exclusive", "timeout", "wait"),
    "script": ("append", "command", "flush", "quiet", "return"),
    "chattr": (), "setfacl": ("modify", "recursive", "remove", "remove-all", "set"),
}  # fmt: skip
_ALIASES: Final = {
    "egrep": "grep",
    "fgrep": "grep",
    "gsed": "sed",
    "gbase64": "base64",
    "gtar": "tar",
    "adduser": "useradd",
}
# What may stand in front of a path in one word: `--file=`, `of=`, `@`, `-C`.
_LEAD: Final = Lazy(r"^(?:-{0,2}[A-Za-z][\w-]{0,40}=@?|[@<]|-[A-Za-z])(?:[/~.]|file:)")
STARTED: Final = "xargs "  # in front of a program that is given what a pipe brings as its operands
_BLANK: Final = Lazy(r"\s")


def plain(command: Command) -> Command:
    """The command with its long options in full and its paths in their plain spelling."""
    options = _LONG.get(_ALIASES.get(command.name, command.name), ())
    args = tuple([in_full(arg, options) if arg[:2] == "--" else plain_word(arg) for arg in command.args])
    return command if args == command.args else command._replace(args=args)


def runs(commands: Sequence[Command]) -> Iterator[RanCommand]:
    """The commands of one text as guards see them, each with the folder that the last `cd` before it named."""
    folder = ""
    feeds: dict[int, tuple[str, ...]] = {}
    for command in reversed(commands):
        if command.pipe:
            feeds[command.pipe] = (_fed(command), *feeds.get(command.pipe, ()))
    for command in commands:
        rest = feeds[command.pipe] = feeds.get(command.pipe, ())[1:] if command.pipe else ()
        settings = tuple([f"{name}={value}" for name, value in command.variables]) if command.variables else ()
        yield RanCommand("", folder, command.name, command.args, rest, settings)
        if command.name in _MOVERS and command.args[-1:]:
            folder = below(folder, command.args[-1])


def _fed(command: Command) -> str:
    """The program that takes what a pipe brings; the one that is started with it has a mark in front."""
    if command.name not in {"xargs", "parallel"}:
        return command.name
    started = next((at for at, arg in enumerate(command.args) if arg[:1].isalpha() or arg[:1] in "/."), None)
    return f"{STARTED}{command.args[started].rpartition('/')[2] if started is not None else 'echo'}"


def located(commands: Sequence[Command]) -> Iterator[Command]:
    """The commands behind a `cd` whose operands are files, with these named from the root: `cd /etc && cat shadow`."""
    if _MOVERS.isdisjoint([command.name for command in commands]):
        return
    for command, one in zip(commands, runs(commands), strict=True):
        if one.folder and command.name in _OF_FILES:
            args = tuple(arg if arg.startswith("-") else below(one.folder, arg) for arg in command.args)
            if args != command.args:
                yield command._replace(args=args)


def taken_away(commands: Sequence[Command]) -> Iterator[Command]:
    """The deletions that other programs do besides their work, as `rm` would: `tar --remove-files`, `git clean`."""
    if _TAKE_AWAY.isdisjoint([command.name for command in commands]):
        return
    yield from _emptied(commands)
    for command, one in zip(commands, runs(commands), strict=True):
        name, args = command.name, command.args
        letters = "".join(arg[1:] for arg in args if arg[:1] == "-" and arg[1:2] != "-")
        rest = [arg for before, arg in pairwise(("", *args)) if arg[:1] != "-" and before not in _TAKE_VALUE]
        bases = [arg.partition("=")[2] for arg in args if arg.startswith(("--work-tree=", "--directory="))]
        bases += [arg for before, arg in pairwise(args) if before in ("-C", "--work-tree", "--directory")]
        gone: list[str] = []
        if name == "git" and "clean" in rest and ("f" in letters or "--force" in args):
            gone = [] if "n" in letters or "--dry-run" in args else rest[rest.index("clean") + 1 :] or ["*"]
        elif name in ("tar", "gtar", "bsdtar") and "--remove-files" in args:
            gone = rest
        elif name == "zip" and ("m" in letters or "--move" in args):
            gone = rest[1:]
        elif name == "rsync" and "--remove-source-files" in args and not ("n" in letters or "--dry-run" in args):
            gone = [arg for arg in rest[:-1] if ":" not in arg]
        elif name == "find" and (f"{STARTED}rm" in one.feeds or "-delete" in args) and not any(map(_KEPT.match, args)):
            end = next((at for at, arg in enumerate(args) if arg[:1] in ("-", "(", "!")), len(args))
            named = [value for option, value in pairwise(args) if option in ("-name", "-iname")]
            found = [path.rstrip("/") for path in args[:end] if not path.startswith(_OF_SYSTEMS)]
            gone = [f"{path}/{pattern}" for path in found for pattern in named if pattern.startswith("*.")]
        folder = next((below(one.folder, base) for base in bases), one.folder)
        if gone and (name != "git" or _NO_PROJECT.match(folder)):
            yield command._replace(name="rm", args=("-rf", *(below(folder, path) for path in gone)))


def _emptied(commands: Sequence[Command]) -> Iterator[Command]:
    """The deletion of all that a copy of a folder leaves of its target, where that folder was made just before."""
    made: set[str] = set()
    for command in commands:
        name, args = command.name, command.args
        plain = [arg.rstrip("/") or "/" for arg in args if arg[:1] != "-"]
        deletes, words = _MIRRORS.get(name, (frozenset(), ()))
        if name == "mkdir":
            made.update(plain)
        elif name not in _LEAVES_EMPTY:
            made.clear()
        elif len(plain) > 1 and plain[-2] in made and (not deletes or not deletes.isdisjoint(args)):
            target = plain[-1] if words else f"{plain[-1].rpartition(':')[2]}/*"
            yield command._replace(name=name if words else "rm", args=(*(words or ("-rf",)), target))


_DELETES: Final = frozenset({"--del", "--delete", "--delete-before", "--delete-after", "--delete-excluded"})
# Programs that make a target like its source, by what makes them delete, with their own words for a deletion.
_MIRRORS: Final[dict[str, tuple[frozenset[str], tuple[str, ...]]]] = {
    "rsync": (_DELETES, ()), "aws": (_DELETES, ("s3", "rm", "--recursive")),
    "rclone": (frozenset({"sync"}), ("purge",)),
    "gsutil": (frozenset({"-d"}), ("-m", "rm", "-r")), "mc": (frozenset({"--remove"}), ("rb", "--force")),
    "azcopy": (frozenset({"--delete-destination=true"}), ("rm", "--recursive")),
}  # fmt: skip
_LEAVES_EMPTY: Final = frozenset({*_MIRRORS, "cd", "echo", "printf", "set", "sleep", "true"})
# Tests by which what is found is not all that a folder holds.
_KEPT: Final = Lazy(r"^(?:!|-not|-newer\w*|-i?path|-wholename|-i?regex|-perm|-size|-empty|-[acm](?:min|time))$")
_OF_SYSTEMS: Final = ("/etc", "/opt", "/tmp", "/usr", "/var")  # noqa: S108 - whose files of one kind are let go by the day
_TAKE_AWAY: Final = frozenset({"find", "git", "tar", "gtar", "bsdtar", "zip", *_MIRRORS})
_NO_PROJECT: Final = Lazy(
    r"^(?:~|\$\{?HOME\}?|/(?:home|root|Users|etc|usr|boot|var|srv|opt|mnt|media|(?:home|Users)/[\w.-]+|(?:etc|boot|var/lib)/.*)?)/?$"
)
_TAKE_VALUE: Final = frozenset({"-C", "--directory", "--work-tree", "--git-dir", "-c", "-f", "--file", "-e", "-x"})
_MOVERS: Final = frozenset({"cd", "pushd", "chdir"})
# Programs whose operands are all files, whatever stands among them.
_OF_FILES: Final = frozenset({
    "base64", "cat", "chmod", "chown", "cp", "head", "less", "more", "mv", "nl", "rm", "shred", "strings", "tac",
    "tail", "tee", "truncate", "unlink", "xxd", "zip",
})  # fmt: skip


def below(folder: str, path: str) -> str:
    """Where a path leads from a folder; as it stands where it is absolute or the folder is not known."""
    return path if not folder or path[:1] in ("/", "~", "$") else plain_path(f"{folder}/{path}")


def in_full(word: str, options: tuple[str, ...]) -> str:
    """A long option as it is written in full; one that begins several options, or none, as it stands."""
    name, joined, value = word[2:].partition("=")
    if name and name not in options:
        meant = [option for option in options if option.startswith(name)]
        if len(meant) == 1:
            name = meant[0]
    return f"--{name}{joined}{plain_word(value)}"


def plain_word(word: str) -> str:
    """A word with the path in it in its plain spelling: `/etc/./x`, `of=/dev//sda`, `@/etc/../x`."""
    if ("/" not in word and word[:1] != "~") or len(word) > LONGEST:
        return word
    if word[0] in "/~.$" or word.startswith("file:"):
        return word if _BLANK.search(word) else plain_path(word)
    if word[0] in "-@<" or "=" in word:
        lead = _LEAD.match(word)
        if lead is None or _BLANK.search(word):
            return word
        end = lead.end() - (5 if word[: lead.end()].endswith("file:") else 1)
        return word[:end] + plain_path(word[end:])
    # A word that begins with a letter may be a program of `sed`; only what ends in a detour is a path for certain.
    return plain_path(word) if word.endswith(("/..", "/.")) and not _BLANK.search(word) else word
