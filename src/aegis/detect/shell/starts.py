"""What a program starts besides itself: the command behind a prefix, and the helpers that options name.

Which programs and options those are stands in `data/programs`. A helper is a command line like any other and is
analysed as one, so `rsync -e ssh` is daily work and `rsync -e 'sh -c ...'` is not.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.conditions import is_said
from aegis.detect.restated import of_orders
from aegis.detect.shell.catalogue import Prefix, builtin_programs, members, of_kind, options
from aegis.detect.shell.edits import substitutes
from aegis.detect.shell.tamper import RUNNERS, gives_power
from aegis.detect.shell.tree import Command
from aegis.detect.shell.words import FETCHERS, LOOSE_PLACES, NAMES_A_SHELL, SHELLS, STARTS

# Programs of a system replaced by others, shells under other names, and downloads that land in files of power.
#
# What is put in the place of `ls` or `passwd` runs with the rights of whoever calls it (ATT&CK T1554, T1036.003); a
# copy of a shell is made to keep rights that are lost otherwise (T1548.001).

_PLACES: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})
# Programs that everybody calls, or that run as root, and that packages alone replace.
_GUARDED: Final = of_kind("guarded")
_COPIES: Final = of_kind("copier")
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


# Whether a command ends in an interactive shell, or gives one to the network.
#
# A program that has no business with shells and is handed one starts it; a shell that is given nothing to run and
# reads from no pipe waits for whoever sits at the other end.

Signalled = tuple[str, str]
# A shell's path as a word of its own, with nothing after it that it would run: quotes and brackets close
# around it, redirections follow, or the command ends.
_HANDED_SHELL: Final = Lazy(
    r"(?:^|[^\w#./!]|[ '\"(=!]!)\s*/(?:usr/(?:local/)?)?bin/(?:ba|z|da|k|c|tc|a|fi)?sh"
    r"(?:\s+-[ilps]+)*\s*(?:\z|[\])'\"`;|&<>\n,#}\\]|[012][<>])"
)
# A shell started from a program in another language: `system("sh")`, `spawn sh`, `"sh" | getline`.
_STARTED_IN_CODE: Final = Lazy(
    r"(?:\bspawn\s+|\.shell\s+|:te(?:rm(?:inal)?)?\s+|\bdo\s+shell\s+script\s+['\"\\]*)"
    r"(?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh\b"
    r"|['\"](?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh(?:\s+-\w+)?['\"]\s*\|&?\s*getline"
    r"|\bprint[^|\n]{0,60}\|\s*\"(?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh\""
    r"|=\s*/(?:usr/)?bin/(?:ba|z|da|k)?sh\s*(?:\n|\z)"
)
_UNSAFE: Final = {name: frozenset(words) for name, words in options("unsafe").items()}
_CONTAINERS: Final = of_kind("container")
_HOST_MOUNT: Final = Lazy(
    r"(?:-v|--volume)[= ]\s*['\"]?(?:/|[A-Za-z]:[/\\]+|/etc|/root|/home|/var/run/docker\.sock|/proc|/boot):"
    r"|--mount[= ]\S*(?:source|src)=/,"
    r"|--device[= ]/dev/(?:sd|nvme|vd|xvd|mem|kmem|mapper)"
    r"|\bsource=/\s+path=|security\.privileged=true|/var/run/docker\.sock:"
)
_LISTENERS: Final = of_kind("listener")


def spawned(command: Command, depth: int) -> list[Signalled]:
    """The signals of one command; `depth` is above 0 where another program starts it."""
    name, text = command.name, command.text
    if name in _LISTENERS or name == "socat":
        return [("shell.reverse", text)] if _connects_shell(command) else []
    if name in _CONTAINERS:
        return [("shell.privilege", text)] if _leaves_container(command) else []
    if _UNSAFE.get(name, frozenset()) & set(command.args):
        return [("shell.spawn", text)]
    if name in {"xargs", "find", "parallel", "$"}:
        return []
    if name in SHELLS:
        return [("shell.spawn", text)] if _waits(command, depth) else []
    match = _STARTED_IN_CODE.search(text) if name not in _SHOWS and _may_start(text) else None
    if match is None and "bin/" in text and (name not in NAMES_A_SHELL or name in STARTS):
        match = _HANDED_SHELL.search(text)
    if match is not None and not is_said(text):
        return [("shell.spawn", match.group().strip())]
    if name in STARTS and command.args and command.args[-1].rsplit("/", 1)[-1] in SHELLS:
        return [("shell.spawn", text)]
    return []


def _may_start(text: str) -> bool:
    """Whether any of the signs stands in `text` that `_STARTED_IN_CODE` asks for: most commands have none."""
    return (
        "spawn" in text or "getline" in text or "bin/" in text or ".shell" in text or ":te" in text or "script" in text
    )


_SHOWS: Final = of_kind("shows")


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


# Programs that start the command behind them, with the number of operands that stand before it.
PREFIXED: Final = members("prefix", Prefix)
_ASSIGNMENT: Final = Lazy(r"^[A-Za-z_][A-Za-z0-9_]*=")
# Variables that name a program which others start for their user.
_HELPER_VARIABLE: Final = Lazy(
    r"^(?:\w*PAGER|\w*EDITOR|VISUAL|BROWSER|\w*_COMMAND|\w*_SSH|\w*ASKPASS|GIT_EXTERNAL_DIFF|LESSOPEN|LESSCLOSE|TERM|"
    r"BASH_ENV|ENV|PYTHONSTARTUP|CC|SHELL|DISPLAY_MANAGER|TEXEDIT|PERL5DB)$"
)
_PRELOAD: Final = frozenset({"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PERL5LIB"})
# Of these, folders that are searched: those of a project are named to start what it has built.
_SEARCHED: Final = frozenset({"LD_LIBRARY_PATH", "PERL5LIB"})
# Variables by which an interpreter loads more code before its own.
_LOADERS: Final = frozenset({
    "RUBYOPT", "RUBYLIB", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "PERL5OPT", "GCONV_PATH", "PYTHONHOME",
    "GIT_TEMPLATE_DIR", "GIT_EXEC_PATH", "GROFF_BIN_PATH", "FACTERLIB", "OPENSSL_CONF", "OPENSSL_ENGINES",
})  # fmt: skip
_PARTS: Final = Lazy(r"[\s=:]+|^-[rMI]|\s-[rMI]")
_LIBRARY: Final = Lazy(r"\.(?:so|dylib)\b|^/")
USUAL_PLACES: Final = (
    "/usr/", "/bin/", "/sbin/", "/etc/", "/opt/", "/snap/", "/nix/", "/lib/", "/lib64/", "/home/linuxbrew/",
)  # fmt: skip
# Options whose value is a command line. `=` joins are read too; a trailing `=` is a prefix of the value.
_OPTIONS: Final = options("command")
# Programs whose work is to start what they are given, wherever that lies.
STARTS_GIVEN: Final = of_kind("starts-given")
_SETTING: Final = Lazy(
    r"(?i)^(?:exec|proxycommand|localcommand|knownhostscommand|command|pager|core\.(?:pager|editor|sshcommand|fsmonitor|"
    r"askpass|hookspath)|hooks\.[\w.-]+|sequence\.editor|diff\.external|pager\.\w+|alias\.[\w-]+|credential\.helper|gpg\.program|"
    r"[\w:.-]*(?:pre|post)-invoke:*|merge\.\w+\.driver|filter\.\w+\.\w+)\s*=\s*"
)
_GIT_SETTING: Final = Lazy(r"(?i)^(?:core\.|sequence\.|diff\.|pager\.|alias\.|credential\.|gpg\.|merge\.|filter\.)")
# What starts a command inside the little languages of editors, clients and debuggers.
_LEADS: Final = Lazy(
    r"^(?:[:+]*(?:silent!?\s+)?(?:\d*,?[$%]?)?!|[:+]*(?:silent!?\s+)?(?:call\s+|echo\s+|let\s+\w+\s*=\s*)system(?:list)?\(|"
    r"[:+]*lua\s+(?:os\.execute|io\.popen|vim\.fn\.system)\(|:*te(?:rm(?:inal)?)?\s+|\\!\s*|\.(?:shell|system)\s+|shell\s+|system\s+|"
    r"spawn\s+|%\(|x:\s*-?@?|exec\s+)"
)
_SCRIPTED: Final = of_kind("scripted")
_TAKES_SETTINGS: Final = of_kind("takes-settings")
_JOINS_BY_COMMAS: Final = of_kind("joins-by-commas")


_MOST_PREFIXES: Final = 32  # commands that start one another on one line


def unwrapped(command: Command) -> Command:
    """The command that `sudo`, `env`, `nohup` and the like start."""
    for _ in range(_MOST_PREFIXES):
        prefix = PREFIXED.get(command.name)
        if prefix is None:
            return command
        rest = _behind(command, prefix)
        if not rest:
            return command
        if len(rest) == 1 and " " in rest[0]:  # a line, which a shell reads
            rest = ["sh", "-c", *rest]
        name = rest[0].rsplit("/", 1)[-1]
        if not name or (command.name in _TO_A_SHELL and name in SHELLS and len(rest) == 1):
            return command
        command = command._replace(name=name, args=tuple(rest[1:]), text=" ".join(rest), program=rest[0])
    return command


_TO_A_SHELL: Final = of_kind("to-shell")
_SPLITS: Final = Lazy(r"(?s)^(?:-[0iv]*S(.*)|--split-string(?:=(.*))?)$")


def split_words(line: str) -> list[str]:
    """The words of a line as a shell splits them, by blanks alone where its quotes do not close."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _behind(command: Command, prefix: Prefix) -> list[str]:
    """The words of a command behind a prefix's own options, variables and operands."""
    rest = list(command.args)
    operands = prefix.operands
    while rest:
        word = rest[0]
        if word == "--":
            rest.pop(0)
            break
        if word.startswith("-") or _ASSIGNMENT.match(word):
            rest.pop(0)
            if command.name == "env" and (match := _SPLITS.match(word)) is not None:
                line = match.group(1) or match.group(2) or (rest.pop(0) if rest else "")
                rest[:0] = line.split() if "'" not in line and '"' not in line else split_words(line)
            elif word in prefix.value and rest:
                rest.pop(0)
        elif operands:
            operands -= 1
            rest.pop(0)
        else:
            break
    return rest


def _deed_of_git(args: tuple[str, ...]) -> str:
    """What git is told to do: its first word that is no option of git itself, nor the value of one."""
    words = iter(args)
    for word in words:
        if word in _VALUED:
            next(words, "")
        elif word[:1] != "-":
            return word
    return ""


_VALUED: Final = frozenset({"-c", "-C", "--config-env", "--exec-path", "--git-dir", "--namespace", "--work-tree"})


def helpers(command: Command) -> Iterator[str]:
    """The command lines that a command starts because an option, a variable or its script says so."""
    yield from _of_variables(command)
    name, args = command.name, command.args
    yield from of_orders(name, args)
    for at, word in enumerate(args):
        following = args[at + 1] if at + 1 < len(args) else ""
        for option in _OPTIONS.get(name, ()):
            if word == option:
                yield from _commands(name, following)
            elif word.startswith(option + "=") or (len(option) == 2 and word.startswith(option) and len(word) > 2):
                yield from _commands(name, word[len(option) :].lstrip("="))
            elif len(option) == 2 and word[:1] == "-" and word[-1] == option[1] and word[1:].isalpha():  # put together
                cleans = name == "git" and _deed_of_git(args) == "clean"  # whose `-x` takes no command
                yield from () if cleans else _commands(name, following)
        if name == "git" and (word in {"-c", "config"} or ("." in word and _GIT_SETTING.match(word))):
            yield from _git(word, following)
        if name in _SCRIPTED and _LEADS.match(word.lstrip("+")):
            yield from _commands(name, word.lstrip("+"))
        if name == "git" and "grep" in args[:8] and word[:2] == "-O" and len(word) > 2:
            yield word[2:]
        if name == "git" and word[:5] == "ext::":
            words = word[5:].replace("% ", "\0").replace("%S", "").split()
            yield shlex.join([one.strip("'\"").replace("\0", " ") for one in words])  # `% ` is a blank in a word
        left, joined, right = word.partition("=")
        if joined and (
            (name in _MAKES and ((left == "SHELL" and not right.startswith(USUAL_PLACES)) or " " in right))
            or (name == "alias" and right)
            or (left[:8] == "scripts." and name in _KEEPS_SCRIPTS)
        ):
            yield right
        if name == "socat" and word.lower().startswith(("exec:", "system:")):
            yield word.partition(":")[2].partition(",")[0]
    if name in {"alias", "abbr"} and len(args) > 1 and "=" not in args[0]:  # as fish has them
        yield args[-1]
    if name in _SEDS:
        yield from _of_sed(args)
    if name == "capsh" and "--" in args:
        yield shlex.join(("/bin/sh", *args[args.index("--") + 1 :]))


def relayed(command: Command) -> Iterator[str]:
    """Yield the lines that a program nobody knows is told to run: `./ctl --exec 'ls -l'`, `./ctl '{"cmd": "id"}'`."""
    args = command.args
    if command.name in RUNNERS:  # what is known is the interpreter, and not its script
        at = next((at for at, arg in enumerate(args) if arg[:1] != "-"), len(args))
        args = args[at + 1 :]
    elif command.name in _DESCRIBED:
        return
    for at, arg in enumerate(args):
        head, joined, value = arg.partition("=")
        if head.lstrip("-/").lower() in _TELLS and arg[:1] in "-/":
            line = value if joined else " ".join(args[at + 1 : at + 2])
            yield from [line] if " " in line.strip() else []  # one word names what it is, as `--shell bash` does
        elif arg[:1] == "{" and arg[-1:] == "}" and len(arg) < _LONGEST_ORDER:
            try:
                yield from _told_in(json.loads(arg))
            except (ValueError, RecursionError):  # is no order then, but a text in braces
                continue


def _told_in(order: object) -> Iterator[str]:
    """Yield the command lines of an order in members, one of which may hold another."""
    waiting = [order]
    while waiting:
        one = waiting.pop()
        for name, value in one.items() if isinstance(one, dict) else ():
            if isinstance(value, dict):
                waiting.append(value)
            elif name.lower() in _TELLS and isinstance(value, str | list):
                yield value if isinstance(value, str) else " ".join(word for word in value if isinstance(word, str))


_DESCRIBED: Final = frozenset(builtin_programs())
_TELLS: Final = frozenset({
    "exec", "execute", "command", "commands", "commandline", "cmd", "cmdline", "shell", "run-command", "exec-command",
    "shell-command", "script",
})  # fmt: skip
_LONGEST_ORDER: Final = 4_096
_MAKES: Final = frozenset({"make", "gmake"})
_KEEPS_SCRIPTS: Final = frozenset({"npm", "pnpm", "yarn", "composer"})
_SEDS: Final = frozenset({"sed", "gsed"})
_SED_PLACE: Final = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/[IM]*)"
_SED_COMMAND: Final = Lazy(
    rf"(?:(?:^|[;{{}}\n])\s*(?:{_SED_PLACE}(?:\s*,\s*[+~]?{_SED_PLACE})?)?\s*!?|/[gpiI0-9]{{0,4}})\s*([erRwW])\s+([^\n]+)"
)
_MOST_OF_SED: Final = 32


def _of_sed(args: tuple[str, ...]) -> Iterator[str]:
    """What a script of `sed` starts, and what it reads and writes as the command that does so."""
    given = [value for option, value in pairwise(args) if option in {"-e", "--expression"}]
    scripts = given or [arg for arg in args if arg[:1] != "-"][:1]
    for script in scripts[:_MOST_OF_SED]:
        for match in islice(_SED_COMMAND.finditer(script), _MOST_OF_SED):
            file = f"{'cat' if match.group(1) in 'rR' else 'tee'} {shlex.quote(match.group(2).strip())}"
            yield match.group(2) if match.group(1) == "e" else file
    yield from (made for _, made, flags in islice(substitutes(scripts), _MOST_OF_SED) if "e" in flags)


def _git(word: str, following: str) -> Iterator[str]:
    value = following if word in {"-c", "config"} else word
    if _SETTING.match(value):
        yield from _commands("git", value)
    elif _GIT_SETTING.match(word) and _SETTING.match(f"{word}={following}"):
        yield from _commands("git", f"{word}={following}")


def _commands(name: str, value: str) -> Iterator[str]:
    """The command line in an option's value: settings and the leads of little languages taken off."""
    setting = _SETTING.match(value)
    if name in _TAKES_SETTINGS and setting is None and "=" in value:
        return
    if setting is not None:
        value = value[setting.end() :]
        if setting.group().lower().startswith("alias.") and not value.startswith("!"):
            return
    value = value.strip()
    lead = _LEADS.match(value)
    if lead is not None:
        value = value[lead.end() :]
        if lead.group()[-1:] == "(":
            value = value.strip(")'\"")
    elif name in _SCRIPTED:
        return
    if name in _JOINS_BY_COMMAS:
        value = value.replace(",", " ")
    value = value.strip().lstrip(";")
    if value and value not in {"true", "false"}:
        yield value


_LEADS_OF_LESS: Final = "|-@ "  # what LESSOPEN may have before its command


def _of_variables(command: Command) -> Iterator[str]:
    for name, value in command.variables:
        if _HELPER_VARIABLE.match(name):
            yield value.lstrip(_LEADS_OF_LESS)


def interposed(command: Command) -> str:
    """A program or library that variables put between a command and its work, from an odd place; or nothing."""
    for name, value in command.variables:
        first = "".join(value.lstrip(_LEADS_OF_LESS).split(None, 1)[:1])
        near = ("./", "../") if name not in _SEARCHED else ()
        if name in _PRELOAD and (
            first.startswith((*LOOSE_PLACES, *near))
            or (name == "LD_PRELOAD" and command.elevated)
            or (name not in _SEARCHED and any(map(_is_odd_library, value.replace(":", " ").split())))
        ):
            return f"{name}={value}"
        if name in _LOADERS and any(part.startswith(LOOSE_PLACES) for part in _PARTS.split(value)):
            return f"{name}={value}"
        if _HELPER_VARIABLE.match(name) and (in_odd_place(first) or first.startswith(("./", "../"))):
            return f"{name}={value}"
    return ""


def _is_odd_library(word: str) -> bool:
    """Whether a word names a library that no system keeps: those of a system have a usual place, or `lib...` alone."""
    usual = word.startswith(USUAL_PLACES) if "/" in word else word.startswith("lib")
    return _LIBRARY.search(word) is not None and (not usual or ".." in word)


def in_odd_place(path: str) -> bool:
    """Whether a program or library lies where a system keeps none."""
    return path.startswith(LOOSE_PLACES) or (path.startswith("/") and not path.startswith(USUAL_PLACES))
