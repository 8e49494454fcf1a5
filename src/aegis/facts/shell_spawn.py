"""Whether a command ends in an interactive shell, or gives one to the network.

A program that has no business with shells and is handed one starts it; a shell that is given nothing to run
and reads from no pipe waits for whoever sits at the other end.
"""

from __future__ import annotations

from typing import Final

import re2

from aegis.facts.shell_tree import Command
from aegis.facts.shell_words import NAMES_A_SHELL, SHELLS, STARTS

Signalled = tuple[str, str]
# A shell's path as a word of its own, with nothing after it that it would run: quotes and brackets close
# around it, redirections follow, or the command ends.
_HANDED_SHELL: Final = re2.compile(
    r"(?:^|[^\w#./!]|[ '\"(=!]!)\s*/(?:usr/(?:local/)?)?bin/(?:ba|z|da|k|c|tc|a|fi)?sh"
    r"(?:\s+-[ilps]+)*\s*(?:\z|[\])'\"`;|&<>\n,#}\\]|[012][<>])"
)
# A shell started from a program in another language: `system("sh")`, `spawn sh`, `"sh" | getline`.
_STARTED_IN_CODE: Final = re2.compile(
    r"(?:\bspawn\s+|\.shell\s+|:te(?:rm(?:inal)?)?\s+|\bdo\s+shell\s+script\s+['\"\\]*)"
    r"(?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh\b"
    r"|['\"](?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh(?:\s+-\w+)?['\"]\s*\|&?\s*getline"
    r"|\bprint[^|\n]{0,60}\|\s*\"(?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh\""
    r"|=\s*/(?:usr/)?bin/(?:ba|z|da|k)?sh\s*(?:\n|\z)"
)
_UNSAFE_MODES: Final[dict[str, frozenset[str]]] = {
    # Options that switch off what keeps a document from running commands.
    "dvips": frozenset({"-R0"}), "pic": frozenset({"-U"}), "groff": frozenset({"-U"}), "troff": frozenset({"-U"}),
    "gs": frozenset({"-dNOSAFER"}), "ghostscript": frozenset({"-dNOSAFER"}),
    "latex": frozenset({"--shell-escape", "-shell-escape"}), "pdflatex": frozenset({"--shell-escape", "-shell-escape"}),
    "xelatex": frozenset({"--shell-escape", "-shell-escape"}),
    "lualatex": frozenset({"--shell-escape", "-shell-escape"}),
    "tex": frozenset({"--shell-escape", "-shell-escape"}),
}  # fmt: skip
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "lxc", "kubectl", "ctr", "crictl"})
_HOST_MOUNT: Final = re2.compile(
    r"(?:-v|--volume)[= ]\s*['\"]?(?:/|/etc|/root|/home|/var/run/docker\.sock|/proc|/boot):"
    r"|--mount[= ]\S*(?:source|src)=/,"
    r"|--device[= ]/dev/(?:sd|nvme|vd|xvd|mem|kmem|mapper)"
    r"|\bsource=/\s+path=|security\.privileged=true|/var/run/docker\.sock:"
)
_LISTENERS: Final = frozenset({"nc", "ncat", "netcat", "nc.traditional", "nc.openbsd"})


def spawned(command: Command, depth: int) -> list[Signalled]:
    """The signals of one command; `depth` is above 0 where another program starts it."""
    name, text = command.name, command.text
    if name in _LISTENERS or name == "socat":
        return [("shell.reverse", text)] if _connects_shell(command) else []
    if name in _CONTAINERS:
        return [("shell.privilege", text)] if _leaves_container(command) else []
    if _UNSAFE_MODES.get(name, frozenset()) & set(command.args):
        return [("shell.spawn", text)]
    if name in {"xargs", "find", "parallel", "$"}:
        return []
    if name in SHELLS:
        return [("shell.spawn", text)] if _waits(command, depth) else []
    match = _STARTED_IN_CODE.search(text) if name not in _SHOWS and _may_start(text) else None
    if match is None and "bin/" in text and (name not in NAMES_A_SHELL or name in STARTS):
        match = _HANDED_SHELL.search(text)
    if match is not None:
        return [("shell.spawn", match.group().strip())]
    if name in STARTS and command.args and command.args[-1].rsplit("/", 1)[-1] in SHELLS:
        return [("shell.spawn", text)]
    return []


def _may_start(text: str) -> bool:
    """Whether any of the signs stands in `text` that `_STARTED_IN_CODE` asks for: most commands have none."""
    return (
        "spawn" in text or "getline" in text or "bin/" in text or ".shell" in text or ":te" in text or "script" in text
    )


_SHOWS: Final = frozenset({"echo", "printf", "cat", "grep", "rg", "man", "which", "type"})


def inner_spawn(command: Command) -> bool:
    """Whether what `find` or `xargs` starts is a shell with nothing to run."""
    if command.name not in SHELLS:
        return False
    args = command.args
    given = any(word.startswith("-") and not word.startswith("--") and "c" in word for word in args)
    return not given and not any(not arg.startswith("-") for arg in args)


def _waits(command: Command, depth: int) -> bool:
    """A shell that nobody gives anything to run. Of a text of its own only what attackers add counts as such."""
    if command.stage or command.inside or command.fed:
        return False
    args = command.args
    # The grammar reads the descriptor of a redirection (`sh 0<&2`) as a word.
    plain = all(arg.startswith("-") or arg in {"0", "1", "2"} for arg in args)
    if not plain or any(arg in {"--version", "--help", "-s"} for arg in args):
        return False
    letters = "".join(arg[1:] for arg in args if not arg.startswith("--"))
    if "c" in letters or "s" in letters or "n" in letters:
        return False
    privileged = "p" in letters  # keeps the rights of the file's owner
    return depth > 0 or privileged or command.text.split(None, 1)[0].startswith("/")


def _connects_shell(command: Command) -> bool:
    args = command.args
    if command.name == "socat":
        return any(word in arg.lower() for arg in args for word in ("exec:", "system:", "shell:"))
    for at, arg in enumerate(args):
        if arg in {"-e", "-c", "--exec", "--sh-exec", "--lua-exec"}:
            given = args[at + 1].split(None, 1) if at + 1 < len(args) else []
            return not given or given[0] not in _SHOWS or _lets_run(given[-1])
        if arg.startswith("-") and not arg.startswith("--") and arg.endswith("e") and at + 1 < len(args):
            return True
    return False


def _lets_run(text: str) -> bool:
    """Whether what a listener answers with goes on to another program, and so to whoever connects."""
    return any(sign in text for sign in ("|", ";", "&&", "/bin/", "<"))


def _leaves_container(command: Command) -> bool:
    """A container with the host's root, its processes or its container service."""
    if _HOST_MOUNT.search(command.text):
        return True
    words = frozenset(command.args)
    host = any(word in words for word in ("--pid=host", "nsenter", "--ipc=host", "--userns=host"))
    if "--privileged" in words and (host or "--net=host" in words):
        return True
    return '"privileged":true' in command.text.replace(" ", "") and '"host' in command.text
