"""What is written where a system will run it later: start-up files, schedules, keys of those who may sign in.

Files that decide who may do what are never written by the way. In files that users edit every day it is the
written text that counts.
"""

from __future__ import annotations

from typing import Final

import re2

from aegis.facts.remember import remembered

# Accounts, keys and loaders: writing them gives power, whatever is written.
_POWER: Final = re2.compile(
    r"(?:^|/)(?:authorized_keys2?|rc\.local|ld\.so\.preload|sudoers(?:\.d/[^/]+)?|shadow|passwd|pam\.d/[^/]+|\.git/hooks/[^/]+|"
    r"\.ssh/rc|\.rhosts|hosts\.equiv|ld\.so\.conf(?:\.d/[^/]+)?|modprobe\.d/[^/]+|udev/rules\.d/[^/]+|polkit-1/rules\.d/[^/]+|"
    r"LaunchDaemons/[^/]+|Library/StartupItems/.+|emond\.d/rules/[^/]+)$"
)
# Files that run things, and that people edit every day.
_STARTUP: Final = re2.compile(
    r"(?:^|/)(?:\.(?:bashrc|bash_profile|profile|zshrc|zshenv|zprofile|bash_login|bash_logout|login|cshrc|xinitrc|xprofile|"
    r"config/fish/config\.fish|config/autostart/[^/]+)|crontab|cron(?:\.\w+)?/[^/]+|cron/crontabs/[^/]+|"
    r"profile\.d/[^/]+|systemd/(?:system|user)/[^/]+|init\.d/[^/]+|environment|LaunchAgents/[^/]+|at\.allow)$"
)
# Text that has no business in them: what fetches, connects, decodes, or lies where anyone can write.
_RUNS: Final = re2.compile(
    r"(?i)(?:curl|wget|fetch|lwp-request)\b[^\n]{0,300}(?:\||\$\(|`|-o\s|&&|;)|/dev/(?:tcp|udp)/|\b(?:nc|ncat|netcat|socat)\s|"
    r"base64\s+(?:-d|--decode)|/tmp/|/dev/shm/|/var/tmp/|\bsh\s+-i\b|\beval\b[^\n]{0,60}\$\(\s*(?:curl|wget|echo|base64)|"
    r"alias\s+(?:sudo|su|ssh|passwd|doas)=|LD_PRELOAD=|PROMPT_COMMAND=|NOPASSWD|python[23]?\s+-c|perl\s+-e"
)
_SCHEDULED: Final = re2.compile(
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
    return _POWER.search(target) is not None


@remembered
def _starts_things(target: str) -> bool:
    return _STARTUP.search(target) is not None
