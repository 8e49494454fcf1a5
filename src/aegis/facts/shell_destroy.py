"""Commands that destroy: what they delete, overwrite or lock away, and whether that is a system or a build folder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import re2

from aegis.facts.paths import is_account_file, is_system_secret, matched
from aegis.facts.shell_tree import Command
from aegis.facts.shell_words import DELETERS, INTERPRETERS, SYSTEM_ROOTS

_DEVICE: Final = re2.compile(r"^(?:of=)?/dev/(?:sd|hd|nvme|vd|xvd|mmcblk|disk|mapper/|md|dm-|k?mem$|port$)\w*")
_PARTITIONERS: Final = frozenset({"mkfs", "wipefs", "fdisk", "parted", "mke2fs", "sfdisk", "mkswap", "gdisk"})
_LISTS: Final = frozenset({"-l", "--list", "print", "-s", "-d", "--dump", "-n", "--no-act", "-J"})
_WHOLE: Final = frozenset({"*", ".", "./", "./*", ".*", ".git", "./.git", "..", "../*"})
_NARROWING: Final = frozenset({
    "-name", "-iname", "-path", "-user", "-mtime", "-mmin", "-size", "-empty", "-newer", "-regex", "-inum", "-atime",
    "-ctime", "-perm", "-ipath", "-group", "-nouser", "-links",
})  # fmt: skip
_FED: Final = frozenset({"xargs", "parallel"})
_LISTERS: Final = frozenset({"ls", "find", "fd", "echo", "printf", "du", "tree"})
_ROOT_LOOP: Final = re2.compile(r"\bfor\s+\w+\s+in\s+(?:/\*|/ |~/\*|\$HOME/\*|\"\$HOME\"/\*|/home/\*)")


def destroys(command: Command) -> list[str]:
    """`shell.destroy` for a system, a disk or a home, `shell.delete-all` for the whole folder it stands in."""
    name, args = command.name.lower(), command.args
    if name in DELETERS:
        signal = _delete(args)
        return [signal] if signal else []
    if name in _PARTITIONERS or name.startswith("mkfs."):
        harmless = bool(_LISTS & set(args)) or not any(writes_device(arg) for arg in args)
        return [] if harmless else ["shell.destroy"]
    if name == "dd":
        return ["shell.destroy"] if any(arg.startswith("of=") and writes_device(arg) for arg in args) else []
    if name == "kill":
        return ["shell.destroy"] if args[-1:] == ("-1",) and len(args) > 1 else []
    if name == "truncate":
        return ["shell.destroy"] if any(is_account_file(arg) or is_system_secret(arg) for arg in args) else []
    if name == "mv" and len(args) > 1 and any(_is_root(arg) for arg in args[:-1]):
        return ["shell.destroy"] if args[-1] == "/dev/null" or args[0] in {"/*", "/"} else []
    return []


def writes_device(target: str) -> bool:
    """Whether a redirection overwrites a disk."""
    return "/dev/" in target and _DEVICE.match(target) is not None


def loops_over_root(text: str, commands: list[Command]) -> bool:
    """Whether a loop over everything below the root or a home deletes what it counts."""
    return (
        "for" in text
        and _ROOT_LOOP.search(text) is not None
        and any(
            command.name in DELETERS and any(arg.startswith(("$", "-rf $")) for arg in command.args)
            for command in commands
        )
    )


def finds(command: Command) -> list[str]:
    """What `find` destroys with what it finds: all of a system or home, or files after encrypting them."""
    args = command.args
    where = next((arg for arg in args if not arg.startswith("-")), ".")
    started = {args[at + 1].rsplit("/", 1)[-1] for at, arg in enumerate(args[:-1]) if arg in {"-exec", "-execdir"}}
    removes = "-delete" in args or bool(started & DELETERS)
    if removes and started & {"openssl", "gpg", "age", "7z"}:
        return ["shell.destroy"]
    if removes and _is_root(where) and not _NARROWING & set(args):
        return ["shell.destroy"]
    return []


def feeds_deleter(stages: Sequence[Command]) -> bool:
    """Whether what lies below the root or a home is listed into a command that deletes what it reads."""
    for before, command in pairwise(stages):
        words = next(
            (command.args[at:] for at, arg in enumerate(command.args) if arg.rsplit("/", 1)[-1] in DELETERS), ()
        )
        if command.name not in _FED or not words:
            continue
        whole = before.name == "find" or any(map(_recurses, words))
        if whole and before.name in _LISTERS and any(map(_is_root, before.args)) and not _NARROWING & set(before.args):
            return True
    return False


def _recurses(word: str) -> bool:
    return word == "--recursive" or (word.startswith("-") and not word.startswith("--") and "r" in word.lower())


def sets_permissions(command: Command) -> list[str]:
    """A whole system locked or opened, or a program given its owner's rights."""
    name, args = command.name, command.args
    if name == "setcap":
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


def _delete(args: tuple[str, ...]) -> str:
    flags = "".join(arg for arg in args if arg.startswith("-")).lower()
    recursive = "r" in flags.replace("--preserve-root", "").replace("--no-preserve-root", "")
    unguarded = "--no-preserve-root" in args
    for arg in args:
        if arg.startswith("-"):
            continue
        if (_is_root(arg) and (recursive or arg.endswith("*"))) or unguarded or writes_device(arg):
            return "shell.destroy"
        if recursive and arg in _WHOLE:
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
