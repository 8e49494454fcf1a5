"""Commands that blind a system: traces removed, defences switched off, kernel and accounts changed.

From the programs' manuals, by what options and operands mean (ATT&CK T1070, T1562, T1136, T1547).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import re2

from aegis.facts.remember import remembered
from aegis.facts.shell_tree import Command

Signalled = tuple[str, str]
_HISTORY: Final = re2.compile(r"(?:^|/)\.(?:\w+_history|history|lesshst|viminfo|wget-hsts)$")
_SYSTEM_LOG: Final = re2.compile(
    r"^/var/log(?:/(?:\*|auth\.log|secure|messages|syslog|wtmp|btmp|utmp|lastlog|audit(?:/.*)?|kern\.log|cron|faillog|"
    r"journal(?:/.*)?|\*\.log))?/?$|^/run/utmp$|^/var/run/utmp$"
)
_KERNEL_SWITCH: Final = re2.compile(
    r"^/proc/(?:sysrq-trigger|sys/kernel/(?:core_pattern|modprobe|hotplug|randomize_va_space|kptr_restrict|dmesg_restrict|"
    r"yama/ptrace_scope)|sys/fs/(?:suid_dumpable|binfmt_misc/register))$|^/sys/kernel/(?:uevent_helper|security/.*)$"
)
_DEFENCE_UNIT: Final = re2.compile(
    r"^(?:auditd|rsyslog|syslog(?:-ng)?|apparmor|selinux|firewalld|ufw|iptables|nftables|fail2ban|clamav\S*|falcon-sensor|"
    r"crowdstrike\S*|osqueryd|wazuh\S*|sysmon|falco|tetragon|carbonblack|cbagentd|mdatp|ds_agent|sentinel\S*|"
    r"systemd-journald|aide|tripwire|snort|suricata|ossec)(?:\.service|\.socket)?$"
)
_STOPS: Final = frozenset({"stop", "disable", "mask", "kill"})
_HISTORY_OFF: Final = re2.compile(r"^HIST(?:FILE|SIZE|FILESIZE|CONTROL)=(?:0|/dev/null|''|\"\")?$")
_MINER: Final = re2.compile(
    r"^(?:xmrig|xmr-stak\S*|minerd|cpuminer\S*|cgminer|bfgminer|ethminer|nbminer|t-rex|lolminer)$"
)
_POOL: Final = re2.compile(r"stratum\+(?:tcp|ssl|tls)://")
_TUNNELS: Final = frozenset({"chisel", "ligolo", "frpc", "gost", "iodine", "dnscat", "dnscat2", "ptunnel", "revsocks"})
_ATTACK_TOOLS: Final = frozenset({
    "mimikatz", "mimikatz.exe", "unshadow", "john", "hashcat", "responder", "responder.py", "secretsdump.py",
    "psexec.py", "wmiexec.py", "crackmapexec", "netexec", "msfvenom", "msfconsole", "hydra", "medusa", "sqlmap",
    "bloodhound-python", "kerbrute", "evil-winrm", "linpeas.sh", "winpeas.exe", "pspy64", "lazagne", "lazagne.exe",
})  # fmt: skip


def tampering(command: Command) -> list[Signalled]:
    """The signals of one command; empty for daily work."""
    name, args, shown = command.name.lower(), command.args, command.text[:80]
    found: list[Signalled] = []
    judge = _JUDGES.get(name)
    if judge is not None:
        signal = judge(args)
        if signal:
            found.append((signal, shown))
    if name in _REMOVES and any(_is_trace(arg) for arg in args):
        found.append(("shell.hides-traces", shown))
    if _is_miner(name) or any("stratum+" in arg and _POOL.search(arg) for arg in args):
        found.append(("shell.miner", shown))
    elif name in _TUNNELS or name in _ATTACK_TOOLS:
        found.append(("shell.attack-tool", shown))
    return found


def tampering_write(target: str, source: str) -> Signalled | None:
    """The signal of writing to `target`, where that alone blinds or changes the system; adding to a log does not."""
    if (_is_system_log(target) and ">>" not in source) or _is_history(target):
        return "shell.hides-traces", target[:80]
    if target.endswith("sshd_config") and _SSHD_WEAK.search(source):
        return "shell.weakens", target[:80]
    if _is_kernel_switch(target):
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


def _history(args: tuple[str, ...]) -> str:
    return "shell.hides-traces" if any(arg in {"-c", "-cw", "-cr"} for arg in args) else ""


def _variables(args: tuple[str, ...]) -> str:
    return "shell.hides-traces" if any(_HISTORY_OFF.match(arg) or arg == "HISTFILE" for arg in args) else ""


def _link(args: tuple[str, ...]) -> str:
    return "shell.hides-traces" if "/dev/null" in args and any(map(_is_trace, args)) else ""


def _units(args: tuple[str, ...]) -> str:
    stops = any(arg in _STOPS for arg in args)
    return "shell.weakens" if stops and any(_DEFENCE_UNIT.match(arg) for arg in args) else ""


def _setenforce(args: tuple[str, ...]) -> str:
    return "shell.weakens" if any(arg.lower() in {"0", "permissive"} for arg in args) else ""


def _auditctl(args: tuple[str, ...]) -> str:
    off = any(first == "-e" and second == "0" for first, second in pairwise(args))
    return "shell.weakens" if off or "-D" in args or "-e0" in args else ""


def _ufw(args: tuple[str, ...]) -> str:
    return "shell.weakens" if "disable" in args or args[:1] == ("reset",) else ""


def _packet_filter(args: tuple[str, ...]) -> str:
    opened = any(first == "-P" and "ACCEPT" in args[at + 1 : at + 3] for at, first in enumerate(args))
    return "shell.weakens" if opened else ""


def _nft(args: tuple[str, ...]) -> str:
    return "shell.weakens" if args[:2] == ("flush", "ruleset") else ""


def _module(args: tuple[str, ...]) -> str:
    return "shell.kernel" if any(arg.endswith((".ko", ".ko.xz")) for arg in args) else ""


def _account(args: tuple[str, ...]) -> str:
    root = any(first in {"-u", "-ou", "--uid"} and second == "0" for first, second in pairwise(args))
    return "shell.privilege" if root and {"-o", "-ou", "--non-unique"} & set(args) else ""


def _group(args: tuple[str, ...]) -> str:
    return "shell.destroy" if "root" in args else ""


def _sysctl(args: tuple[str, ...]) -> str:
    weak = any(
        arg.replace(" ", "").startswith(
            ("kernel.randomize_va_space=0", "kernel.core_pattern=|", "kernel.yama.ptrace_scope=0")
        )
        for arg in args
    )
    return "shell.kernel" if weak else ""


def _core(args: tuple[str, ...]) -> str:
    agents = ("ssh-agent", "gpg-agent", "sshd", "gnome-keyring", "keepass", "sudo", "lsass")
    return "shell.dumps-secret" if any(word in arg for arg in args for word in agents) else ""


def _keychain(args: tuple[str, ...]) -> str:
    return "shell.dumps-secret" if any(arg in _KEYCHAIN for arg in args) else ""


def _integrity(args: tuple[str, ...]) -> str:
    return "shell.weakens" if {"disable", "--master-disable", "--global-disable"} & set(args) else ""


def _locks_key(args: tuple[str, ...]) -> str:
    locked = any(arg.startswith("+") and "i" in arg for arg in args)
    return "shell.persists" if locked and any(arg.endswith("authorized_keys") for arg in args) else ""


def _edits_sshd(args: tuple[str, ...]) -> str:
    edits = any(arg.startswith("-") and "i" in arg for arg in args)
    weak = any(_SSHD_WEAK.search(arg) for arg in args)
    return "shell.weakens" if edits and weak and any(arg.endswith("sshd_config") for arg in args) else ""


def _login_hook(args: tuple[str, ...]) -> str:
    return "shell.persists" if "write" in args and {"LoginHook", "LogoutHook"} & set(args) else ""


_SSHD_WEAK: Final = re2.compile(
    r"(?:PermitRootLogin|PermitEmptyPasswords|PermitUserEnvironment)\s+yes\b|StrictModes\s+no\b"
)
_KEYCHAIN: Final = frozenset({"dump-keychain", "find-generic-password", "find-internet-password", "export"})
_REMOVES: Final = frozenset({"rm", "shred", "unlink", "srm", "truncate"})
_JUDGES: Final[dict[str, Callable[[tuple[str, ...]], str]]] = {
    "history": _history,
    "export": _variables, "unset": _variables, "set": _variables,
    "ln": _link,
    "systemctl": _units, "service": _units, "chkconfig": _units, "launchctl": _units, "rc-service": _units,
    "setenforce": _setenforce,
    "auditctl": _auditctl,
    "ufw": _ufw,
    "iptables": _packet_filter, "ip6tables": _packet_filter,
    "nft": _nft,
    "insmod": _module,
    "useradd": _account, "adduser": _account, "usermod": _account,
    "userdel": _group, "deluser": _group,
    "sysctl": _sysctl,
    "gcore": _core, "procdump": _core,
    "security": _keychain,
    "csrutil": _integrity, "spctl": _integrity,
    "chattr": _locks_key,
    "sed": _edits_sshd,
    "defaults": _login_hook,
}  # fmt: skip
