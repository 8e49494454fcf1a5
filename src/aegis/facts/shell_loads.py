"""Code that a program loads because an option names it: scripts, plug-ins and settings that run things.

Where the option names a place that every user can write, somebody else may have written what runs (CWE-426).
"""

from __future__ import annotations

from typing import Final

import re2

from aegis.facts.shell_starts import in_odd_place
from aegis.facts.shell_tree import Command
from aegis.facts.shell_words import LOOSE_PLACES

_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "aria2c": ("--on-download-start", "--on-download-stop", "--on-download-complete", "--on-download-error",
               "--on-bt-download-complete", "--on-download-pause"),
    "tshark": ("-X",), "wireshark": ("-X",),
    "nmap": ("--script", "--datadir"),
    "facter": ("--custom-dir", "--external-dir"),
    "puppet": ("--modulepath",),
    "pandoc": ("-L", "--lua-filter", "-F", "--filter"),
    "cowsay": ("-f",), "cowthink": ("-f",),
    "tmux": ("-f",), "screen": ("-c",),
    "neofetch": ("--config",),
    "vim": ("-S", "-u"), "nvim": ("-S", "-u"), "vi": ("-S", "-u"),
    "emacs": ("-l", "--load"),
    "gdb": ("-x", "--command"), "lldb": ("-s", "--source"),
    "nginx": ("-c",), "apache2": ("-f",), "httpd": ("-f",), "haproxy": ("-f",),
    "logrotate": ("-f", "--force"), "ldconfig": ("-f",),
    "ssh": ("-F",), "ssh-keygen": ("-D",), "ssh-add": ("-s",),
    "node": ("-r", "--require", "--import", "--loader"), "deno": ("--preload",),
    "java": ("-javaagent", "-agentpath"),
    "ruby": ("-r",), "perl": ("-I",),
    "git": ("--template", "--exec-path"),
    "wget": ("--use-askpass", "--config"), "curl": ("-K", "--config"),
    "run-mailcap": ("--run",), "mutt": ("-F",),
    "systemctl": ("link", "enable", "--now"), "launchctl": ("load", "bootstrap", "-w"),
    "virsh": ("create", "define"),
    "openssl": ("-engine", "-provider-path"),
    "sqlite3": ("-init",), "psql": ("-f",), "mysql": ("--plugin-dir",),
    "ansible-playbook": ("-i",), "terraform": ("-plugin-dir",),
    "sudo": ("--askpass",),
    "mosquitto": ("-c",), "at": ("-f",), "rsyslogd": ("-f",), "named": ("-c",), "sshd": ("-f",),
    "php": ("-c", "auto_prepend_file", "auto_append_file"), "redis-server": ("--loadmodule", "--include"),
    "gst-launch-1.0": ("--gst-plugin-path",), "mysqld": ("--init-file",), "dosbox": ("-conf",), "snort": ("-c",),
    "bconsole": ("-c",),
}  # fmt: skip
# Options that load a library or a script itself, which has no business outside the places of a system.
_LIBRARIES: Final[dict[str, tuple[str, ...]]] = {
    "openssl": ("-engine", "-provider-path", "engine"), "mysql": ("--plugin-dir",), "mariadb": ("--plugin-dir",),
    "ssh-keygen": ("-D",), "ssh-add": ("-s",), "curl": ("--engine",), "tcpdump": ("-z",),
    "tshark": ("-X",), "wireshark": ("-X",), "sshfs": ("-o",), "procmail": ("-m",), "sqlite3": (".load", "-cmd"),
    "mysqld": ("--plugin-load", "--plugin-load-add", "--plugin-dir"), "ffmpeg": ("-af", "-vf", "-filter_complex"),
    "postgres": ("shared_preload_libraries", "session_preload_libraries"),
    "hg": ("extensions.",), "php": ("-dextension", "extension", "zend_extension"),
}  # fmt: skip
# Programs whose operand is a list of commands to run.
_GIVEN_A_LIST: Final = frozenset({"crontab", "logrotate", "batch"})
# What stands between an option and the file that it loads.
_LEADS: Final = re2.compile(
    r"^(?:.*\blua_script:|ssh_command=|\.load\s+|.*\b(?:ladspa|frei0r)=(?:file=|filter_name=)?|[\w.-]+=)"
)
_STARTED_FROM: Final = frozenset({"/bin", "/usr/bin", "/sbin", "/usr/sbin"})


def loads(command: Command) -> str:
    """The option and value by which a command runs code from a place that everybody can write, or nothing."""
    name, args = command.name.lower(), command.args
    for option in {*_OPTIONS.get(name, ()), *_LIBRARIES.get(name, ())}:
        for at, word in enumerate(args):
            value = ""
            if word == option:
                value = args[at + 1] if at + 1 < len(args) else ""
            elif word.startswith(option):
                value = word[len(option) :].lstrip("=: ")
            value = _LEADS.sub("", value)
            odd = option in _LIBRARIES.get(name, ()) and (value.startswith(("./", "../")) or in_odd_place(value))
            if odd or value.startswith(LOOSE_PLACES):
                return f"{option} {value}"
    if name in _GIVEN_A_LIST and any(word.startswith(LOOSE_PLACES) for word in args):
        return f"{name} {args[0]}"
    if name == "service" and args and ".." in args[0]:
        return f"service {args[0]}"
    if name == "run-parts" and args and args[-1].rstrip("/") in _STARTED_FROM:
        return f"run-parts {args[-1]}"
    return ""
