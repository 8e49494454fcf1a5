"""Commands that break a running system: its programs, its settings, the data of its services, the way to start it.

What is named here is not the whole system, which `shell_destroy` reads, yet the machine or a service on it is gone
without the file. Places are those of the Filesystem Hierarchy Standard 3.0 and of the services' own packages.
"""

from __future__ import annotations

from typing import Final

import re2

from aegis.facts.remember import remembered
from aegis.facts.shell_tree import Command
from aegis.facts.shell_words import DELETERS

SIGNAL: Final = "shell.breaks"
# Files and folders that a machine does not start or run without; a file below a folder of settings is daily work.
_VITAL: Final = re2.compile(
    r"^/(?:boot(?:/(?:grub2?(?:/grub\.cfg)?|efi|(?:vmlinuz|initr|system\.map|config-)[^/]*|\*))?"
    r"|etc/(?:passwd|group|g?shadow|sudoers(?:\.d)?|fstab|crypttab|ssh|pam\.d|ssl|pki|security|network|netplan|systemd|"
    r"systemd/system|init\.d|kubernetes|docker|mysql|postgresql|nginx|apache2|httpd|ld\.so\.(?:conf|cache)|nsswitch\.conf)"
    r"|(?:usr/)?s?bin/(?:[\w.+-]{1,40}|\*)|(?:usr/)?lib(?:32|64)?/(?:systemd(?:/systemd)?|x86_64-linux-gnu|modules|python3[\w.]*|"
    r"ld-linux\S*|libc\.\S*|\*)|run|run/\*|var/run(?:/docker\.sock)?|run/docker\.sock|dev/(?:null|zero|u?random|shm)"
    r"|var/lib/(?:mysql|mariadb|postgresql|pgsql|mongodb?|redis|etcd|docker|containerd|kubelet|dpkg|rpm|elasticsearch|"
    r"cassandra|influxdb|rabbitmq|kafka|neo4j|clickhouse|jenkins|gitlab|libvirt|grafana|prometheus|vault|consul|minio)"
    r"(?:/\*|/data|/main)?|var/(?:spool/cron|backups|mail|spool/mail)|backups?|srv|mnt|media|exports?|home/[\w.-]{1,40})(?:/|/\*)?$"
)
_DATABASE: Final = re2.compile(r"(?i)\.(?:db|sqlite3?|mdb|accdb|ibd|frm|dbf|realm|kdbx)$")
_EMPTIES: Final = re2.compile(
    r"^\s*(?::|true|cat\s+/dev/null|echo\s+-n(?:\s+(?:''|\"\"))?|printf\s+(?:''|\"\"))?\s*(?:\d?>\|?)\s*\S+\s*$"
)
_IDENTITY: Final = re2.compile(r"^/etc/(?:g?shadow-?|passwd|sudoers(?:\.d/.*)?|group|pam\.d/.*|security/.*)$")
_LOCKED: Final = frozenset({"000", "0000", "0", "a-rwx", "a=", "ugo-rwx", "ugo="})
_SOCKETS: Final = frozenset({"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"})
_EDITORS: Final = frozenset({"sed", "gsed", "perl", "ruby"})


def breaks(command: Command) -> str:
    """`shell.breaks` or `shell.privilege` where one command breaks a system or its list of who may do what."""
    name, args = command.name.lower(), command.args
    if name in DELETERS:
        return SIGNAL if any(is_vital(arg) for arg in args) else ""
    if name == "mv":
        gone = args[-1:] == ("/dev/null",) or args[-1:] == ("/tmp",)  # noqa: S108 - a place to look for
        return SIGNAL if gone and any(is_vital(arg) for arg in args[:-1]) else ""
    if name == "truncate":
        return SIGNAL if any(is_vital(arg) or _DATABASE.search(arg) for arg in args) and "0" in args else ""
    if name == "chmod":
        return _modes(args)
    if name in _EDITORS and any(map(_edits, args)):
        return "shell.privilege" if any(map(_IDENTITY.match, args)) else ""
    return ""


def breaks_file(target: str, source: str) -> bool:
    """Whether the statement `source` leaves nothing of a file that a system or a service needs."""
    if not (is_vital(target) or _DATABASE.search(target)) or ">>" in source:
        return False
    return len(source) < 200 and _EMPTIES.match(source) is not None


@remembered
def is_vital(path: str) -> bool:
    """Whether a machine or a service of it does not work without the file or folder."""
    return path.startswith("/") and _VITAL.match(path) is not None


def _modes(args: tuple[str, ...]) -> str:
    modes = [arg for arg in args if not arg.startswith("-R")][:1]
    if any(mode in _LOCKED for mode in modes) and any("R" in arg for arg in args if arg.startswith("-")):
        return SIGNAL
    opened = any(mode[-1:] in "2367" for mode in modes if mode.isdigit()) or any("o+" in mode for mode in modes)
    return "shell.privilege" if opened and _SOCKETS & set(args) else ""


def _edits(arg: str) -> bool:
    """Whether an option edits files where they stand: `-i`, `-i.bak`, `-ri`, `-pi`."""
    return arg.startswith("--in-place") or (arg.startswith("-") and not arg.startswith("--") and "i" in arg[1:4])
