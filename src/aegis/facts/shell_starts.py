"""What a program starts besides itself: the command behind a prefix, and the helpers that options name.

Closed tables from the programs' manuals. A helper is a command line like any other and is analysed as one,
so `rsync -e ssh` is daily work and `rsync -e 'sh -c ...'` is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import re2

from aegis.facts.shell_tree import Command
from aegis.facts.shell_words import LOOSE_PLACES, SHELLS

# Programs that start the command behind them, with the number of operands that stand before it.
PREFIXES: Final[dict[str, int]] = {
    "sudo": 0, "doas": 0, "nohup": 0, "time": 0, "nice": 0, "ionice": 0, "env": 0, "command": 0, "exec": 0,
    "builtin": 0, "stdbuf": 0, "setsid": 0, "timeout": 1, "gtimeout": 1, "taskset": 1, "chrt": 1, "flock": 1,
    "setarch": 1, "linux32": 0, "linux64": 0, "unshare": 0, "pkexec": 0, "catchsegv": 0, "rlwrap": 0, "torsocks": 0,
    "proxychains": 0, "proxychains4": 0, "unbuffer": 0, "systemd-run": 0, "systemd-inhibit": 0, "dbus-run-session": 0,
    "faketime": 1, "fakeroot": 0, "prlimit": 0, "cpulimit": 0, "choom": 0, "numactl": 0, "busybox": 0, "toybox": 0,
    "strace": 0, "ltrace": 0, "valgrind": 0, "aa-exec": 0, "cgexec": 0, "eatmydata": 0, "watch": 0,
}  # fmt: skip
_TAKES_VALUE: Final[dict[str, frozenset[str]]] = {
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D"}),
    "doas": frozenset({"-u", "-C"}),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n", "-t"}),
    "env": frozenset({"-u", "-C", "-S"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "timeout": frozenset({"-s", "-k"}),
    "watch": frozenset({"-n", "-d"}),
    "strace": frozenset({"-o", "-e", "-p", "-s", "-u", "-E"}),
    "ltrace": frozenset({"-o", "-e", "-p", "-s", "-u", "-l", "-n", "-D"}),
    "flock": frozenset({"-w", "-E"}),
    "exec": frozenset({"-a"}),
    "time": frozenset({"-f", "-o"}),
    "chrt": frozenset(),
}
_ASSIGNMENT: Final = re2.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
# Variables that name a program which others start for their user.
_HELPER_VARIABLE: Final = re2.compile(
    r"^(?:\w*PAGER|\w*EDITOR|VISUAL|BROWSER|\w*_COMMAND|\w*_SSH|\w*ASKPASS|GIT_EXTERNAL_DIFF|LESSOPEN|LESSCLOSE|TERM|"
    r"BASH_ENV|ENV|PYTHONSTARTUP|CC|SHELL|DISPLAY_MANAGER|TEXEDIT|PERL5DB)$"
)
_PRELOAD: Final = frozenset({"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PERL5LIB"})
# Variables by which an interpreter loads more code before its own.
_LOADERS: Final = frozenset({
    "RUBYOPT", "RUBYLIB", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "PERL5OPT", "GCONV_PATH", "PYTHONHOME",
    "GIT_TEMPLATE_DIR", "GIT_EXEC_PATH", "GROFF_BIN_PATH", "FACTERLIB", "OPENSSL_CONF", "OPENSSL_ENGINES",
})  # fmt: skip
_PARTS: Final = re2.compile(r"[\s=:]+|^-[rMI]|\s-[rMI]")
USUAL_PLACES: Final = (
    "/usr/",
    "/bin/",
    "/sbin/",
    "/etc/",
    "/opt/",
    "/snap/",
    "/nix/",
    "/lib/",
    "/lib64/",
    "/home/linuxbrew/",
)
# Options whose value is a command line. `=` joins are read too; a trailing `=` is a prefix of the value.
_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "tar": ("--checkpoint-action", "--to-command", "--use-compress-program", "-I", "--info-script", "-F",
            "--new-volume-script", "--rmt-command", "--rsh-command"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "zip": ("-TT", "--unzip-command"),
    "make": ("--eval", "-E"),
    "gmake": ("--eval", "-E"),
    "split": ("--filter",),
    "tcpdump": ("-z",),
    "script": ("-c", "--command"),
    "flock": ("-c", "--command"),
    "sg": ("-c",),
    "expect": ("-c",),
    "dmsetup": ("--exec",),
    "man": ("-P", "--pager", "-H", "--html"),
    "bat": ("--pager",),
    "delta": ("--pager",),
    "git": ("--upload-pack", "--receive-pack", "--exec", "-x", "--tree-filter", "--index-filter", "--msg-filter",
            "--env-filter", "--commit-filter", "foreach"),
    "hg": ("--config",), "cvs": ("-e",), "svn": ("--diff-cmd", "--diff3-cmd", "--editor-cmd"),
    "ssh": ("-o",),
    "scp": ("-o", "-S"),
    "sftp": ("-o", "-S", "-D"),
    "gcc": ("-wrapper",), "g++": ("-wrapper",), "cc": ("-wrapper",),
    "start-stop-daemon": ("-x", "--exec", "-a", "--startas", "-S"),
    "ncat": ("-e", "-c", "--exec", "--sh-exec"),
    "restic": ("--password-command", "--key-hint"),
    "rclone": ("--password-command",),
    "borg": ("--rsh",),
    "fzf": ("--preview",),
    "openvpn": ("--up", "--down", "--route-up", "--tls-verify", "--ipchange"),
    "pip": ("--editor",), "pip3": ("--editor",),
    "yum": ("-e",),
    "cpio": ("--rsh-command",),
    "ansible": ("-a", "--args"),
    "gdb": ("-ex", "--eval-command", "-iex"), "bpftrace": ("-c",),
    "vim": ("-c", "--cmd"), "vi": ("-c",), "view": ("-c",), "nvim": ("-c", "--cmd"), "rvim": ("-c", "--cmd"),
    "ex": ("-c",), "gvim": ("-c", "--cmd"), "vimdiff": ("-c",),
    "psql": ("-c", "--command"), "mysql": ("-e", "--execute"), "mariadb": ("-e", "--execute"),
    "sqlite3": ("-cmd",),
    "rpm": ("--eval", "-E"), "rpmbuild": ("--eval", "-E"),
    "npm": ("-c", "--call", "--script-shell", "--shell"), "npx": ("-c", "--call"),
    "watch": ("-x",),
    "mosh": ("--server", "--ssh"),
    "apt": ("-o",), "apt-get": ("-o",), "aptitude": ("-o",),
}  # fmt: skip
# Programs whose work is to start what they are given, wherever that lies.
STARTS_GIVEN: Final = frozenset(
    {"start-stop-daemon", "watch", "script", "flock", "sg", "expect", "make", "gmake", "fzf"}
)
_SETTING: Final = re2.compile(
    r"(?i)^(?:exec|proxycommand|localcommand|knownhostscommand|command|pager|core\.(?:pager|editor|sshcommand|fsmonitor|"
    r"askpass|hookspath)|hooks\.[\w.-]+|sequence\.editor|diff\.external|pager\.\w+|alias\.[\w-]+|credential\.helper|gpg\.program|"
    r"[\w:.-]*(?:pre|post)-invoke:*|merge\.\w+\.driver|filter\.\w+\.\w+)\s*=\s*"
)
_GIT_SETTING: Final = re2.compile(
    r"(?i)^(?:core\.|sequence\.|diff\.|pager\.|alias\.|credential\.|gpg\.|merge\.|filter\.)"
)
# What starts a command inside the little languages of editors, clients and debuggers.
_APPLE_SCRIPT: Final = 'do shell script "'
_LEADS: Final = re2.compile(
    r"^(?:[:+]*(?:silent!?\s+)?(?:\d*,?[$%]?)?!|:*te(?:rm(?:inal)?)?\s+|\\!\s*|\.(?:shell|system)\s+|shell\s+|system\s+|"
    r"spawn\s+|%\(|x:\s*-?@?|exec\s+)"
)
_SCRIPTED: Final = frozenset({
    "vim", "vi", "view", "nvim", "rvim", "ex", "gvim", "vimdiff", "gdb", "sqlite3", "psql", "mysql", "mariadb",
    "expect", "rpm", "rpmbuild", "make", "gmake", "ed", "ftp", "sftp", "lftp", "less", "more",
})  # fmt: skip


_MOST_PREFIXES: Final = 32  # commands that start one another on one line


def unwrapped(command: Command) -> Command:
    """The command that `sudo`, `env`, `nohup` and the like start."""
    for _ in range(_MOST_PREFIXES):
        operands = PREFIXES.get(command.name)
        if operands is None:
            return command
        rest = _behind(command, operands)
        if not rest:
            return command
        name = rest[0].rsplit("/", 1)[-1]
        if not name or (command.name in _TO_A_SHELL and name in SHELLS and len(rest) == 1):
            return command
        command = command._replace(name=name, args=tuple(rest[1:]), text=" ".join(rest), program=rest[0])
    return command


_TO_A_SHELL: Final = frozenset({"env", "nohup", "time", "watch"})


def _behind(command: Command, operands: int) -> list[str]:
    """The words of a command behind a prefix's own options, variables and operands."""
    rest = list(command.args)
    valued = _TAKES_VALUE.get(command.name, frozenset({"-n"}))
    while rest:
        word = rest[0]
        if word == "--":
            rest.pop(0)
            break
        if word.startswith("-") or _ASSIGNMENT.match(word):
            rest.pop(0)
            if word in valued and word != "-S" and rest:
                rest.pop(0)
        elif operands:
            operands -= 1
            rest.pop(0)
        else:
            break
    return rest


def helpers(command: Command) -> Iterator[str]:
    """The command lines that a command starts because an option, a variable or its script says so."""
    yield from _of_variables(command)
    name, args = command.name, command.args
    for at, word in enumerate(args):
        following = args[at + 1] if at + 1 < len(args) else ""
        for option in _OPTIONS.get(name, ()):
            if word == option:
                yield from _commands(name, following)
            elif word.startswith(option + "=") or (len(option) == 2 and word.startswith(option) and len(word) > 2):
                yield from _commands(name, word[len(option) :].lstrip("="))
        if name == "git" and (word in {"-c", "config"} or ("." in word and _GIT_SETTING.match(word))):
            yield from _git(word, following)
        if name in _SCRIPTED and _LEADS.match(word.lstrip("+")):
            yield from _commands(name, word.lstrip("+"))
        if name == "socat" and word.lower().startswith(("exec:", "system:")):
            yield word.partition(":")[2].partition(",")[0]
        if name == "osascript" and _APPLE_SCRIPT in word:
            yield word.partition(_APPLE_SCRIPT)[2].partition('"')[0]
    if name == "capsh" and args[-1:] == ("--",):
        yield "/bin/sh"


def _git(word: str, following: str) -> Iterator[str]:
    value = following if word in {"-c", "config"} else word
    if _SETTING.match(value):
        yield from _commands("git", value)
    elif _GIT_SETTING.match(word) and _SETTING.match(f"{word}={following}"):
        yield from _commands("git", f"{word}={following}")


def _commands(name: str, value: str) -> Iterator[str]:
    """The command line in an option's value: settings and the leads of little languages taken off."""
    setting = _SETTING.match(value)
    if name in {"ssh", "scp", "sftp", "apt", "apt-get", "aptitude"} and setting is None and "=" in value:
        return
    if setting is not None:
        value = value[setting.end() :]
        if setting.group().lower().startswith("alias.") and not value.startswith("!"):
            return
    value = value.strip()
    lead = _LEADS.match(value)
    if lead is not None:
        value = value[lead.end() :]
        if lead.group() == "%(":
            value = value.rstrip(")'\"")
    elif name in _SCRIPTED:
        return
    if name in {"gcc", "g++", "cc"}:
        value = value.replace(",", " ")
    value = value.strip().lstrip(";")
    if value:
        yield value


def _of_variables(command: Command) -> Iterator[str]:
    for name, value in command.variables:
        if _HELPER_VARIABLE.match(name):
            yield value


def interposed(command: Command) -> str:
    """A program or library that variables put between a command and its work, from an odd place; or nothing."""
    for name, value in command.variables:
        first = value.split(None, 1)[0] if value.split() else ""
        if name in _PRELOAD and (
            first.startswith((*LOOSE_PLACES, "./", "../")) or (name == "LD_PRELOAD" and command.elevated)
        ):
            return f"{name}={value}"
        if name in _LOADERS and any(part.startswith(LOOSE_PLACES) for part in _PARTS.split(value)):
            return f"{name}={value}"
        if _HELPER_VARIABLE.match(name) and (in_odd_place(first) or first.startswith(("./", "../"))):
            return f"{name}={value}"
    return ""


def in_odd_place(path: str) -> bool:
    """Whether a program or library lies where a system keeps none."""
    return path.startswith(LOOSE_PLACES) or (path.startswith("/") and not path.startswith(USUAL_PLACES))
