"""Commands that blind a system: traces removed, defences switched off, kernel and accounts changed.

From the programs' manuals, by what options and operands mean (ATT&CK T1070, T1562, T1136, T1547).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.quick import remembered
from aegis.detect.resources import place_of
from aegis.detect.shell.catalogue import Sign, builtin_programs, of_kind, pattern_of
from aegis.detect.shell.edits import left_by
from aegis.detect.shell.tree import Command

_STRONG_GROUPS: Final = frozenset({"root", "sudo", "wheel", "admin", "shadow", "disk"})
_IDENTITY_FILES: Final = Lazy(r"^/etc/(?:g?shadow-?|passwd|sudoers(?:\.d(?:/.*)?)?|group|pam\.d(?:/.*)?)$")
_OPEN_MODE: Final = Lazy(r"^(?:0?[0-7]?[0-7]{2}[2367]|[augo]*[ao]?[augo]*\+[rx]*w[rwx]*)$")


def grants(command: Command) -> str:
    """Return `shell.privilege` where a command gives rights over the system, or nothing."""
    name, args = command.name.lower(), command.args
    if name == "passwd":
        return "shell.privilege" if ("-d" in args or "--delete" in args) and args[-1] == "root" else ""
    if name == "chpasswd":
        return "shell.privilege" if "root:" in (command.pipeline or command.text) else ""
    if name in {"usermod", "gpasswd", "adduser"}:
        return _joins_group(name, args)
    if name == "chmod":
        opens = any(_OPEN_MODE.match(arg) for arg in args[:-1])
        return "shell.privilege" if opens and any(_IDENTITY_FILES.match(arg) for arg in args[1:]) else ""
    if name == "mount":
        binds = "--bind" in args or any("bind" in after for before, after in pairwise(args) if before == "-o")
        over = args[-1] if args else ""
        return "shell.privilege" if binds and over.startswith(("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/")) else ""
    return ""


def _joins_group(name: str, args: tuple[str, ...]) -> str:
    if name == "adduser":
        given = set(args[1:2]) if len(args) == 2 and not args[0].startswith("-") else set()
    elif name == "gpasswd":
        given = set(args[-1:]) if "-a" in args or "--add" in args else set()
    else:
        given = {
            group
            for before, after in pairwise(args)
            if before in {"-G", "-aG", "-Ga", "-g", "--groups", "--gid"}
            for group in after.split(",")
        }
    return "shell.privilege" if given & _STRONG_GROUPS else ""


# What is written where a system will run it later: start-up files, schedules, keys of those who may sign in.
#
# Files that decide who may do what are never written by the way. In files that users edit every day it is the
# written text that counts.

# Accounts, keys and loaders: writing them gives power, whatever is written. Where they lie is said by the places of
# `data/resources`; of some resources only these files do so.
_POWER: Final = frozenset({"account", "group", "library"})
_POWERFUL: Final = Lazy(
    r"(?:^|/)(?:authorized_keys2?|rc\.local|\.git/hooks/[^/]+|\.ssh/rc|\.rhosts|hosts\.equiv|"
    r"launchdaemons/[^/]+|library/startupitems/.+|emond\.d/rules/[^/]+)$"
)
# Places whose files run things, and that people edit every day.
_STARTING: Final = frozenset({"startup", "service", "task"})
# Text that has no business in them: what fetches, connects, decodes, or lies where anyone can write.
_RUNS: Final = Lazy(
    r"(?i)(?:curl|wget|fetch|lwp-request)\b[^\n]{0,300}(?:\||\$\(|`|-o\s|&&|;)|/dev/(?:tcp|udp)/|\b(?:nc|ncat|netcat|socat)\s|"
    r"base64\s+(?:-d|--decode)|/tmp/|/dev/shm/|/var/tmp/|\bsh\s+-i\b|\beval\b[^\n]{0,60}\$\(\s*(?:curl|wget|echo|base64)|"
    r"alias\s+(?:sudo|su|ssh|passwd|doas)=|LD_PRELOAD=|PROMPT_COMMAND=|NOPASSWD|python[23]?\s+-c|perl\s+-e"
)
_SCHEDULED: Final = Lazy(
    r"(?m)(?:^|['\"\n;])\s*(?:@(?:reboot|hourly|daily|weekly|monthly)|(?:[\d*/,-]+\s+){5})(?:root\s+)?([^\n'\"]{3,400})"
)


def written(target: str, source: str) -> tuple[str, list[str]]:
    """The signal of writing with the statement `source` to `target`, and the commands that it schedules."""
    if gives_power(target):
        return "shell.persists", []
    if target != "crontab" and not _starts_things(target):
        return "", []
    scripts = [match.group(1) for match in _SCHEDULED.finditer(source)]
    return ("shell.persists" if _RUNS.search(source) else ""), scripts


@remembered
def gives_power(target: str) -> bool:
    """Whether a file decides who may do what, so that writing it gives power whatever is written."""
    place = place_of(target)
    return place is not None and (place.resource in _POWER or _POWERFUL.search(place.path.lower()) is not None)


@remembered
def _starts_things(target: str) -> bool:
    place = place_of(target)
    return place is not None and place.resource in _STARTING


Signalled = tuple[str, str]
_HISTORY: Final = Lazy(r"(?:^|/)\.(?:\w+_history|history|lesshst|viminfo|wget-hsts)$")
_SYSTEM_LOG: Final = Lazy(
    r"^/var/log(?:/(?:\*|auth\.log|secure|messages|syslog|wtmp|btmp|utmp|lastlog|audit(?:/.*)?|kern\.log|cron|faillog|"
    r"system\.log|maillog|mail\.log|boot\.log|daemon\.log|user\.log|asl(?:/.*)?|"
    r"journal(?:/.*)?|\*\.log))?/?$|^/run/utmp$|^/var/run/utmp$"
)
_KERNEL_SWITCH: Final = Lazy(
    r"^/proc/(?:sysrq-trigger|sys/kernel/(?:core_pattern|modprobe|hotplug|randomize_va_space|kptr_restrict|dmesg_restrict|"
    r"yama/ptrace_scope)|sys/fs/(?:suid_dumpable|binfmt_misc/register))$|^/sys/kernel/(?:uevent_helper|security/.*)$"
)
_HARDENED: Final = ("randomize_va_space", "kptr_restrict")  # which are as they should be with the highest number
_HARDENS: Final = Lazy(r"^\s*(?:sudo\s+)?(?:echo|printf)\s+['\"]?2['\"]?\s*(?:>|\|\s*(?:sudo\s+)?tee\b)[^;&|\n]*$")
_DEFENCE_UNIT: Final = Lazy(rf"^(?:{pattern_of('defence')})(?:\.service|\.socket)?$")
_STOPS: Final = frozenset({"stop", "disable", "mask", "kill"})
# Signals by which a service reads its settings again or opens its files anew, as `systemctl kill` is told them.
_ASKS_AGAIN: Final = Lazy(r"^(?:-s|--signal)[ =]?(?:SIG)?(?:HUP|USR[12]|WINCH)$")
_SIGNAL: Final = ("-s", "--signal")
_HISTORY_OFF: Final = Lazy(r"^HIST(?:FILE|SIZE|FILESIZE|CONTROL)=(?:0|/dev/null|''|\"\")?$")
_MINER: Final = Lazy(rf"^(?:{pattern_of('miner')})$")
# What a miner is told, whatever it calls itself: the protocol of a pool, what its makers get, or a pool by its name.
_POOL: Final = Lazy(
    r"stratum\+(?:tcp|ssl|tls)://|^--(?:donate-level|randomx-\w+|coin=\w)|^(?:[\w-]+\.){0,3}pool\.[\w.-]+:\d+$"
)
_MINES: Final = ("stratum+", "pool.", "--donate-level", "--randomx-", "--coin=")
_ATTACK_TOOLS: Final = of_kind("tunnel") | of_kind("attack-tool")
_SIGNS: Final = {name: program.signs for name, program in builtin_programs().items() if program.signs}


def tampering(command: Command) -> list[Signalled]:
    """The signals of one command; empty for daily work."""
    name, args, shown = command.name.lower(), command.args, command.text[:80]
    found: list[Signalled] = []
    signs = _SIGNS.get(name)
    if signs is not None:
        found.extend((sign.signal, shown) for sign in signs if _shows(sign, args))
    judge = _JUDGES.get(name)
    if judge is not None:
        signal = judge(args)
        if signal:
            found.append((signal, shown))
    if name in _ERASERS and any(_is_trace(arg) for arg in args):
        found.append(("shell.hides-traces", shown))
    if _is_miner(name) or (any(sign in command.text for sign in _MINES) and any(map(_POOL.search, args))):
        found.append(("shell.miner", shown))
    elif (name in _ATTACK_TOOLS or attacks(command)) and not _only_asks(args):
        found.append(("shell.attack-tool", shown))
    return found


_ASKS_ONLY: Final = frozenset({"-Version", "--help", "-h", "-help", "help", "--version", "-version", "-V", "version"})


def _only_asks(args: tuple[str, ...]) -> bool:
    """Whether a tool, or a part of it, is asked for its help or its version and for nothing else."""
    return bool(args) and (_ASKS_ONLY.issuperset(args) or (args[-1] == "--help" and all(map(str.isalpha, args[:-1]))))


def attacks(command: Command) -> bool:
    """Whether a command is an attack by the tool that it starts, or by what it gives to one that nobody knows.

    Nobody but an attacker signs in with the hashes of a password, or tells a script of his own where to find the
    controller of a domain.
    """
    for arg in command.args:
        if (len(arg) in _LONG_AS_HASHES and _HASHES.match(arg)) or arg.lower() in _OF_DOMAINS:
            return True
    return started_tool(command)


_LONG_AS_HASHES: Final = (33, 65)
_HASHES: Final = Lazy(r"(?i)^(?:[0-9a-f]{32})?:[0-9a-f]{32}$")  # of LM and NT, as good as the password
_OF_DOMAINS: Final = frozenset({"-dc-ip", "--dc-ip", "-dc-host", "--dc-host"})
RUNNERS: Final = frozenset({
    "python", "python2", "python3", "py", "ruby", "perl", "proxychains", "proxychains4", "wine", "mono", "uv", "pipx",
})  # fmt: skip
_ENDINGS: Final = (".py", ".exe", ".ps1", ".rb", ".pl", ".sh")
# What a tool calls itself that is made for nothing else, and words of what looks for such tools or mends a hole.
_DISARMS: Final = ("test", "detect", "find", "check", "scan", "remove", "block", "patch", "mitigat", "verif", "audit")
ARMS: Final = (
    r"kerberoast|asrep(?:roast|catch)|mimi(?:katz|dog)|privesc|ransomware|meterpreter|dcsync|dcshadow|dnscat|maldoc|"
    r"infostealer|(?:tokens?|passwords?|cred(?:s|entials?)?|hash(?:es)?|cookies?|keychains?|wcm|sam|lsa(?:ss)?|ntds)"
    r"(?:steal|theft|dump|spray|harvest|grab|impersonat|loot)|dump(?:cred|hash|secret|lsa|sam|ntds)|"
    r"steal(?:token|cred|cookie)|(?:uac|amsi|applocker|edr|etw)bypass|bypass(?:uac|amsi|applocker|edr|etw)|"
    r"(?:golden|silver)ticket|passthe(?:hash|ticket|cert|key)|(?:ntlm|smb|ldap|multi)relay|"
    r"(?:smart|password|login|ssh|rdp|smb|ike|wifi|kerberos)brut|(?:arp|dns|adfs|llmnr|print)spoof|zerologon|"
    r"printnightmare|eternalblue|log4shell|dirty(?:cow|pipe)|pwnkit|proxy(?:logon|shell)$|certifried|smbghost|"
    r"(?:exploit|poc)cve\d|cve\d{8,11}(?:exploit|poc)|^(?:cve20\d{6,9}|ms\d{5})$"
)  # of a name without dots and dashes
_ARMED: Final = Lazy(ARMS)
_ARMS: Final = Lazy(
    r"(?:^|[_-])(?:backdoors?|key[_-]?logger|rootkit|(?:reverse|rev)[_-]?shell|shell[_-]?code|"
    r"(?:brute[_-]?force|password[_-]?spray)(?:er)?)(?:$|[_-])"
)


def started_tool(command: Command) -> bool:
    """Whether a command starts a tool of attack, by the name of its program or of the script that it runs."""
    if command.name.lower() in RUNNERS:
        program = next((arg for arg in command.args if not arg.startswith("-") and arg != "run"), "")
    else:
        program = command.program or command.name
    base = program.replace("\\", "/").rpartition("/")[2].lower()
    ending = next((ending for ending in _ENDINGS if base.endswith(ending)), "")
    name = base[: -len(ending)] if ending else base
    if not ending and base == program.lower():
        return False
    if base in _ATTACK_TOOLS or name in _ATTACK_TOOLS:
        return True
    armed = _ARMS.search(name) or _ARMED.search(name.replace("-", "").replace("_", ""))
    return armed is not None and not any(word in name for word in _DISARMS)


def _shows(sign: Sign, args: tuple[str, ...]) -> bool:
    """Tell whether the words of a sign stand in a command."""
    words = tuple(arg.lower() for arg in args) if sign.ignore_case else args
    if sign.requires and not any(word in sign.requires for word in words):
        return False
    return (
        any(word in sign.any for word in words)
        or any(words[: len(first.split())] == tuple(first.split()) for first in sign.first)
        or any(f"{one} {other}" in sign.pair for one, other in pairwise(words))
        or any(word.endswith(sign.ends) for word in words)
        or any(part in word for word in words for part in sign.contains)
    )


def tampering_write(target: str, source: str) -> Signalled | None:
    """The signal of writing to `target`, where that alone blinds or changes the system; adding to a log does not."""
    if (_is_system_log(target) and ">>" not in source) or _is_history(target):
        return "shell.hides-traces", target[:80]
    if target.endswith("sshd_config") and _SSHD_WEAK.search(source):
        return "shell.weakens", target[:80]
    if _is_kernel_switch(target) and not (target.endswith(_HARDENED) and _HARDENS.match(source)):
        return "shell.kernel", target[:80]
    return None


def _is_trace(arg: str) -> bool:
    return _is_history(arg) or _is_system_log(arg)


def _is_history(arg: str) -> bool:
    return ("hist" in arg or "hst" in arg or "viminfo" in arg) and _HISTORY.search(arg) is not None


def _is_system_log(arg: str) -> bool:
    return arg.startswith(("/var/", "/run/")) and _SYSTEM_LOG.match(arg) is not None


def _is_kernel_switch(target: str) -> bool:
    return target.startswith(("/proc/", "/sys/")) and _KERNEL_SWITCH.match(target) is not None


@remembered
def _is_miner(name: str) -> bool:
    return _MINER.match(name) is not None


def _variables(args: tuple[str, ...]) -> str:
    return "shell.hides-traces" if any(_HISTORY_OFF.match(arg) or arg == "HISTFILE" for arg in args) else ""


def _link(args: tuple[str, ...]) -> str:
    return "shell.hides-traces" if "/dev/null" in args and any(map(_is_trace, args)) else ""


def _units(args: tuple[str, ...]) -> str:
    deed = next((arg for arg in args if arg in _STOPS), "")
    if deed == "kill":
        places = (at for at, arg in enumerate(args) if arg.startswith(_SIGNAL))
        sent = [" ".join(args[at : at + 1 + (args[at] in _SIGNAL)]) for at in places]
        if sent and all(map(_ASKS_AGAIN.match, sent)):
            return ""
    return "shell.weakens" if deed and any(_DEFENCE_UNIT.match(arg) for arg in args) else ""


def _packet_filter(args: tuple[str, ...]) -> str:
    opened = any(first == "-P" and "ACCEPT" in args[at + 1 : at + 3] for at, first in enumerate(args))
    return "shell.weakens" if opened else ""


def _sysctl(args: tuple[str, ...]) -> str:
    weak = any(
        arg.replace(" ", "").startswith(
            ("kernel.randomize_va_space=0", "kernel.core_pattern=|", "kernel.yama.ptrace_scope=0")
        )
        for arg in args
    )
    return "shell.kernel" if weak else ""


def _locks_key(args: tuple[str, ...]) -> str:
    locked = any(arg.startswith("+") and "i" in arg for arg in args)
    return "shell.persists" if locked and any(arg.endswith("authorized_keys") for arg in args) else ""


def _edits_sshd(args: tuple[str, ...]) -> str:
    edits = any(arg.startswith("-") and "i" in arg for arg in args)
    if not edits or not any(arg.endswith("sshd_config") and (arg[:5] != "/tmp/" or ".." in arg) for arg in args):  # noqa: S108
        return ""
    return "shell.weakens" if any(_SSHD_WEAK.search(left_by(arg)) for arg in args) else ""


_SSHD_WEAK: Final = Lazy(r"(?:PermitRootLogin|PermitEmptyPasswords|PermitUserEnvironment)\s+yes\b|StrictModes\s+no\b")
_ERASERS: Final = of_kind("eraser")
_JUDGES: Final[dict[str, Callable[[tuple[str, ...]], str]]] = {
    "export": _variables, "unset": _variables, "set": _variables,
    "ln": _link,
    "sysctl": _sysctl,
    "chattr": _locks_key,
    "sed": _edits_sshd,
    **dict.fromkeys(of_kind("service-manager"), _units),
    **dict.fromkeys(of_kind("packet-filter"), _packet_filter),
}  # fmt: skip
