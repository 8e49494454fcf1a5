"""The sets of programs that several analysers of commands ask for, and the places that they know.

Which programs they are stands in `data/programs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from aegis.detect.shell.catalogue import of_kind, options
from aegis.detect.shell.tree import Command

SHELLS: Final = of_kind("shell")
INTERPRETERS: Final = SHELLS | of_kind("interpreter")
FETCHERS: Final = of_kind("fetcher")
SENDERS: Final = FETCHERS | of_kind("sender")
NETWORK: Final = SENDERS | of_kind("network")
# Commands that name a shell without starting it, or whose work is to start one where a person wants it.
NAMES_A_SHELL: Final = SHELLS | of_kind("names-shell")
# Those of the above that start what they are given: a bare shell as the last word is a shell started.
STARTS: Final = of_kind("starts-shell")
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


_TAKES_TEXT: Final = of_kind("awk") | {"sed", "grep", "egrep"}
_GIVES_TEXT: Final = frozenset({"-e", "-f", "--expression", "--regexp", "--file"})


def place_of_text(name: str, args: Sequence[str]) -> int:
    """Return which word is a program or a pattern and no file, for those that take one first; -1 for others."""
    if name not in _TAKES_TEXT or not _GIVES_TEXT.isdisjoint(args):
        return -1
    return next((at for at, arg in enumerate(args) if arg[:1] != "-"), -1)


def statements(command: Command) -> list[str]:
    """Return the SQL statements that a command hands to a database; none for every other command."""
    given = _STATEMENTS.get(command.name)
    if given is not None:
        joined = [arg.partition("=")[2] for arg in command.args if arg.partition("=")[0] in given and "=" in arg]
        return joined + [following for option, following in pairwise(command.args) if option in given]
    if command.name == "sqlite3":
        plain = [arg for arg in command.args if not arg.startswith("-")]
        return [plain[1]] if len(plain) > 1 and not plain[1].startswith(".") else []
    return []
