"""What a shell text does: its commands after parsing, not the words that it is written with."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import re2

from aegis.facts.paths import is_secret_file
from aegis.facts.shell_tree import MAX_SHELL, Command, parse_shell
from aegis.facts.shell_words import (
    DELETERS,
    FETCHERS,
    INTERPRETERS,
    NAMES_A_SHELL,
    NETWORK,
    READERS,
    SENDERS,
    SHELLS,
    STARTS,
    SYSTEM_ROOTS,
)

_PREFIXES: Final = frozenset(
    {"sudo", "doas", "nohup", "time", "nice", "ionice", "env", "command", "exec", "builtin", "stdbuf", "setsid"}
)
_ASSIGNMENT: Final = re2.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_FORK_BOMB: Final = re2.compile(r"(\w|:)\(\)\s*\{\s*(\w|:)\s*\|\s*(\w|:)\s*&\s*\}\s*;")
_DEVICE: Final = re2.compile(r"^(?:of=)?/dev/(?:sd|hd|nvme|vd|xvd|mmcblk|disk|mapper/|md|dm-)\w*")
_STARTUP: Final = re2.compile(
    r"(?:^|/)(?:\.(?:bashrc|bash_profile|profile|zshrc|zprofile|bash_login|login|cshrc)|authorized_keys|crontab|rc\.local|"
    r"ld\.so\.preload|sudoers(?:\.d/[^/]+)?|shadow|passwd|pam\.d/[^/]+|cron(?:\.\w+)?/[^/]+|\.git/hooks/[^/]+)$"
)
# A shell's path as a word of its own, with nothing after it that it would run: quotes and brackets close
# around it, redirections follow, or the command ends.
_HANDED_SHELL: Final = re2.compile(
    r"(?:^|[^\w#./!]|[ '\"(=!]!)\s*/(?:usr/(?:local/)?)?bin/(?:ba|z|da|k|c|tc|a|fi)?sh"
    r"(?:\s+-[ilps]+)*\s*(?:\z|[\])'\"`;|&<>\n,#}\\]|[012][<>])"
)
MAX_DEPTH: Final = 3  # scripts inside `-c` arguments that are parsed in turn


@dataclass(kw_only=True, slots=True)
class ShellFacts:
    """What one shell text does; `signals` are stable names with the piece that shows them."""

    too_long: bool = False
    network: bool = False
    writes: bool = False
    irreversible: bool = False
    signals: list[tuple[str, str]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)


def analyse_shell(text: str, depth: int = 0) -> ShellFacts:
    """The facts of one shell text; never raises, and reads at most `MAX_SHELL` characters."""
    facts = ShellFacts()
    if len(text) > MAX_SHELL:
        facts.too_long = True
        return facts
    shell = parse_shell(text)
    pipes: dict[int, list[Command]] = defaultdict(list)
    for command in shell.commands:
        command = _unwrapped(command)
        if command.pipe:
            pipes[command.pipe].append(command)
        _command(command, facts)
    for stages in pipes.values():
        _pipeline(stages, facts)
    _substitutions([_unwrapped(command) for command in shell.commands], facts)
    for target in shell.writes:
        facts.writes = facts.writes or not target.startswith("/dev/")
        _written(target, facts)
    if _FORK_BOMB.search(text):
        facts.signals.append(("shell.destroy", text[:80]))
    if depth < MAX_DEPTH:
        for script in facts.scripts[:8]:
            if script != text:
                inner = analyse_shell(script, depth + 1)
                facts.signals.extend(inner.signals)
                facts.network |= inner.network
                facts.writes |= inner.writes
                facts.irreversible |= inner.irreversible
                facts.too_long |= inner.too_long
    return facts


def _unwrapped(command: Command) -> Command:
    """The command that `sudo`, `env`, `nohup` and the like start."""
    for _ in range(4):
        if command.name not in _PREFIXES:
            return command
        rest = list(command.args)
        while rest and (rest[0].startswith("-") or _ASSIGNMENT.match(rest[0])):
            option = rest.pop(0)
            if (
                option in {"-u", "-g", "-n", "-i", "-o", "-e", "-S"}
                and rest
                and not rest[0].startswith("-")
                and option != "-i"
            ):
                if option == "-S":
                    break
                rest.pop(0)
        if not rest:
            return command
        name = rest[0].rsplit("/", 1)[-1]
        if command.name in STARTS and name in SHELLS and len(rest) == 1:
            return command
        command = command._replace(name=name, args=tuple(rest[1:]), text=" ".join(rest))
    return command


def _command(command: Command, facts: ShellFacts) -> None:
    name, args = command.name, command.args
    lowered = name.lower()
    if lowered in NETWORK:
        facts.network = True
    if lowered in DELETERS:
        facts.writes = True
        _delete(command, facts)
    elif lowered == "find" or lowered == "xargs":
        _starts_others(command, facts)
    elif lowered in {"mkfs", "wipefs", "fdisk", "parted", "mke2fs"} or lowered.startswith("mkfs."):
        facts.writes = facts.irreversible = True
        if any(_DEVICE.match(arg) for arg in args):
            facts.signals.append(("shell.destroy", command.text[:80]))
    elif lowered == "dd":
        facts.writes = True
        if any(arg.startswith("of=") and _DEVICE.match(arg) for arg in args):
            facts.signals.append(("shell.destroy", command.text[:80]))
    elif lowered in {"chmod", "chown"}:
        facts.writes = True
        _permissions(command, facts)
    elif (
        lowered in {"nc", "ncat", "netcat"}
        and any(
            arg in {"-e", "-c", "--exec", "--sh-exec"}
            or (arg.endswith("e") and arg.startswith("-") and not arg.startswith("--"))
            for arg in args
        )
    ) or (lowered == "socat" and any("exec:" in arg.lower() or "system:" in arg.lower() for arg in args)):
        facts.signals.append(("shell.reverse", command.text[:80]))
    elif lowered in {
        "cp",
        "mv",
        "tee",
        "install",
        "touch",
        "mkdir",
        "ln",
        "truncate",
        "rsync",
        "tar",
        "unzip",
        "sed",
        "git",
    }:
        facts.writes = True
        if lowered in {"tee", "cp", "mv", "install"} and args:
            for target in args if lowered == "tee" else args[-1:]:
                _written(target, facts)
    elif lowered in {"setcap"} and any("cap_set" in arg or "cap_dac" in arg or "cap_sys_admin" in arg for arg in args):
        facts.signals.append(("shell.privilege", command.text[:80]))
    elif lowered in {"shutdown", "reboot", "halt", "poweroff"}:
        facts.writes = True
    if lowered in SHELLS or lowered in {"eval", "su"}:
        _script(command, facts)
    _spawn(command, facts)
    _reads(command, facts)


def _script(command: Command, facts: ShellFacts) -> None:
    """Scripts given as arguments: `sh -c ...`, `eval ...`."""
    args = command.args
    if command.name == "eval":
        facts.scripts.append(" ".join(args))
        return
    for at, arg in enumerate(args):
        if arg.startswith("-") and not arg.startswith("--") and "c" in arg and at + 1 < len(args):
            facts.scripts.append(args[at + 1])
            return


def _delete(command: Command, facts: ShellFacts) -> None:
    flags = "".join(arg for arg in command.args if arg.startswith("-")).lower()
    recursive = "r" in flags.replace("--preserve-root", "").replace("--no-preserve-root", "") or "/s" in command.args
    for arg in command.args:
        if arg.startswith("-"):
            continue
        target = arg.rstrip("/") or "/"
        is_root = arg.lower() in SYSTEM_ROOTS or target.lower() in SYSTEM_ROOTS
        if (is_root and (recursive or arg.endswith("*"))) or "--no-preserve-root" in command.args or _DEVICE.match(arg):
            facts.irreversible = True
            facts.signals.append(("shell.destroy", command.text[:80]))
            return
        if recursive and arg in {"*", ".", "./", "./*", ".*", ".git", "./.git"}:
            facts.irreversible = True
            facts.signals.append(("shell.delete-all", command.text[:80]))
            return


def _starts_others(command: Command, facts: ShellFacts) -> None:
    """`find ... -exec` and `xargs` start another command with what they find."""
    args = command.args
    if command.name == "find":
        where = next((arg for arg in args if not arg.startswith("-")), ".")
        if "-delete" in args:
            facts.writes = True
            if where.lower() in SYSTEM_ROOTS and not any(arg in _NARROWING for arg in args):
                facts.irreversible = True
                facts.signals.append(("shell.destroy", command.text[:80]))
        for at, arg in enumerate(args):
            if arg in {"-exec", "-execdir", "-ok", "-okdir"} and at + 1 < len(args):
                inner = args[at + 1 :]
                stop = next((end for end, item in enumerate(inner) if item in {";", "+", "\\;"}), len(inner))
                _inner(command, inner[:stop], facts)
    else:
        rest = list(args)
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option in {"-I", "-n", "-L", "-P", "-d", "-s", "-E"} and rest and not rest[0].startswith("-"):
                rest.pop(0)
        _inner(command, tuple(rest), facts)


_NARROWING: Final = frozenset(
    {
        "-name",
        "-iname",
        "-path",
        "-user",
        "-mtime",
        "-mmin",
        "-size",
        "-empty",
        "-newer",
        "-regex",
        "-inum",
        "-atime",
        "-ctime",
        "-perm",
    }
)


def _inner(command: Command, words: tuple[str, ...], facts: ShellFacts) -> None:
    if not words:
        return
    name = words[0].rsplit("/", 1)[-1]
    inner = Command(name, tuple(words[1:]), command.text, 0, 0, True)
    if (
        name in SHELLS
        and not any(word.startswith("-") and "c" in word for word in words[1:])
        and not _runs_file(words[1:])
    ):
        facts.signals.append(("shell.spawn", command.text[:80]))
    elif name not in {"find", "xargs"}:
        _command(inner, facts)


def _runs_file(args: tuple[str, ...]) -> bool:
    return any(not arg.startswith("-") for arg in args)


def _permissions(command: Command, facts: ShellFacts) -> None:
    args = command.args
    targets = [arg for arg in args if not arg.startswith("-")][1:]
    recursive = any((arg.startswith("-") and "R" in arg) or arg == "--recursive" for arg in args)
    if recursive and any(target.lower() in SYSTEM_ROOTS for target in targets):
        facts.irreversible = True
        facts.signals.append(("shell.destroy", command.text[:80]))
    if command.name == "chmod" and any(_is_program(target) for target in targets) and any(map(_sets_uid, args)):
        facts.signals.append(("shell.privilege", command.text[:80]))


def _is_program(target: str) -> bool:
    return target.rsplit("/", 1)[-1] in INTERPRETERS or target.startswith(("/bin/", "/usr/bin/"))


def _sets_uid(mode: str) -> bool:
    if len(mode) == 4 and mode.isdigit():
        return mode[0] in "4567"
    return "s" in mode and ("+" in mode or "=" in mode)


def _spawn(command: Command, facts: ShellFacts) -> None:
    """A program that has no business with shells and is handed one, interactive: it starts that."""
    name = command.name
    if name in {"find", "xargs", "parallel", "$"} or (
        name in NAMES_A_SHELL and name not in STARTS and name not in SHELLS
    ):
        return
    if name in SHELLS:
        # A shell by its full path that is given nothing to run and reads from no pipe is interactive.
        words = command.text.split()
        alone = all(word.startswith("-") for word in words[1:]) and words[0].startswith("/") and command.stage == 0
        if alone and not any("c" in word or "s" in word for word in words[1:]):
            facts.signals.append(("shell.spawn", command.text[:80]))
        return
    match = _HANDED_SHELL.search(command.text)
    if match is not None:
        facts.signals.append(("shell.spawn", match.group().strip()[:80]))
        return
    if name in STARTS and command.args and command.args[-1].rsplit("/", 1)[-1] in SHELLS:
        facts.signals.append(("shell.spawn", command.text[:80]))


def _reads(command: Command, facts: ShellFacts) -> None:
    if command.name not in READERS:
        return
    for arg in command.args:
        value = arg.lstrip("@<").rsplit("=@", 1)[-1]
        if value and not value.startswith("-") and is_secret_file(value):
            facts.signals.append(("shell.reads-secret", command.text[:80]))
            if command.name in SENDERS:
                facts.signals.append(("shell.sends-secret", command.text[:80]))
            return


def _pipeline(stages: list[Command], facts: ShellFacts) -> None:
    stages.sort(key=lambda command: command.stage)
    fetched = decoded = secret = False
    for command in stages:
        name = command.name.lower()
        if name in INTERPRETERS and not _has_script(command):
            if fetched:
                facts.signals.append(("shell.network-to-interpreter", command.text[:80]))
            if decoded:
                facts.signals.append(("shell.encoded", command.text[:80]))
        if secret and name in SENDERS - {"ssh"}:
            facts.signals.append(("shell.sends-secret", command.text[:80]))
        fetched = fetched or name in FETCHERS or name in {"nc", "ncat", "telnet"} or "s_client" in command.args
        decoded = decoded or _decodes(command)
        secret = (
            secret
            or (name in {"env", "printenv"} and not command.args)
            or any(is_secret_file(arg) for arg in command.args)
        )


def _has_script(command: Command) -> bool:
    """Whether an interpreter in a pipeline has its program already and reads data from the pipe."""
    args = command.args
    if any(
        arg in {"-c", "-e", "-m", "-n", "-pe", "-ne", "-r", "-E", "-lne", "-i"} or arg.startswith(("-c", "-e"))
        for arg in args
    ):
        return True
    plain = [arg for arg in args if not arg.startswith("-")]
    return bool(plain) and plain[0] not in {"/dev/stdin", "-"} and "-s" not in args


def _decodes(command: Command) -> bool:
    name, args = command.name, command.args
    if name in {"base64", "base32", "gbase64"}:
        return any(arg in {"-d", "-D", "--decode", "-di"} for arg in args)
    if name == "xxd":
        return any(arg.startswith("-") and "r" in arg for arg in args)
    if name == "openssl":
        return "-d" in args
    return name in {"rev", "uudecode"} or (name == "printf" and "\\x" in command.text)


def _substitutions(commands: list[Command], facts: ShellFacts) -> None:
    """`bash <(curl ...)`, `sh -c "$(curl ...)"`, `eval "$(... | base64 -d)"`."""
    fetches = any(command.inside and command.name.lower() in FETCHERS for command in commands)
    decodes = any(command.inside and _decodes(command) for command in commands)
    if not fetches and not decodes:
        return
    for command in commands:
        if command.name in INTERPRETERS or command.name in {"eval", "source", "."}:
            given = [arg for arg in command.args if arg.startswith(("<(", "$(", "`", '"$('))]
            if given:
                name = "shell.network-to-interpreter" if fetches else "shell.encoded"
                facts.signals.append((name, command.text[:80]))
                return


def _written(target: str, facts: ShellFacts) -> None:
    if _DEVICE.match(target):
        facts.irreversible = True
        facts.signals.append(("shell.destroy", target[:80]))
    elif _STARTUP.search(target):
        facts.signals.append(("shell.persists", target[:80]))
