"""Programs of a system replaced by others, shells under other names, and downloads that land in files of power.

What is put in the place of `ls` or `passwd` runs with the rights of whoever calls it (ATT&CK T1554, T1036.003); a
copy of a shell is made to keep rights that are lost otherwise (T1548.001).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from aegis.facts.shell_persist import gives_power
from aegis.facts.shell_tree import Command
from aegis.facts.shell_words import FETCHERS, SHELLS

_PLACES: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})
# Programs that everybody calls, or that run as root, and that packages alone replace.
_GUARDED: Final = frozenset({
    "passwd", "su", "sudo", "doas", "pkexec", "login", "sshd", "ssh", "ls", "cat", "id", "ps", "ss", "netstat", "top",
    "lsof", "mount", "umount", "ping", "crontab", "cron", "chsh", "chfn", "newgrp", "gpasswd", "who", "w", "last",
    "find", "init", "systemd", "agetty", "getty", "ifconfig", "iptables", "kill", "systemctl", "service",
})  # fmt: skip
_COPIES: Final = frozenset({"cp", "mv", "ln", "install", "rsync"})
_TAKE_VALUE: Final = frozenset({"-m", "-o", "-g", "-S", "-e", "--mode", "--owner", "--group"})
_OUTPUTS: Final = frozenset({"-o", "-O", "-out", "--output", "--output-document", "-OutFile"})


def replaces(command: Command) -> str:
    """What a command puts where a program or a file of power stands, as evidence; or nothing."""
    name, args = command.name.lower(), command.args
    if name in _COPIES and len(args) > 1:
        operands = [
            arg for before, arg in pairwise(("", *args)) if not arg.startswith("-") and before not in _TAKE_VALUE
        ]
        if len(operands) > 1 and any(_takes_place(source, operands[-1], name) for source in operands[:-1]):
            return command.text
    if name == "dd":
        given = dict(arg.split("=", 1) for arg in args if arg.startswith(("if=", "of=")))
        if _takes_place(given.get("if", ""), given.get("of", ""), name):
            return command.text
    if name == "update-alternatives" and "--install" in args:
        target = args[args.index("--install") + 1 :][:1]
        return command.text if any(map(_is_guarded, target)) else ""
    if name in FETCHERS or name in {"openssl", "dd"}:
        return next((target for target in _outputs(args) if gives_power(target)), "")
    return ""


def _takes_place(source: str, target: str, name: str) -> bool:
    """Whether `source` becomes a guarded program under another name, or a shell gets another name."""
    kept = source.rsplit("/", 1)[-1]
    taken = target.rsplit("/", 1)[-1]
    if _is_guarded(target):
        return kept != taken
    folder = source.rpartition("/")[0]
    copies_shell = kept in SHELLS and folder in _PLACES and name != "ln"
    return copies_shell and taken not in {"", ".", "..", "bin", "sbin", "*"} | SHELLS and "/bin/" not in target


def _is_guarded(target: str) -> bool:
    folder, _, name = target.rpartition("/")
    return folder in _PLACES and name in _GUARDED


def _outputs(args: tuple[str, ...]) -> Iterator[str]:
    for option, value in pairwise(args):
        if option in _OUTPUTS:
            yield value
    for arg in args:
        if arg.startswith(("of=", "--output=", "-o/", "-O/")):
            yield arg[arg.index("/") :] if "/" in arg else arg
