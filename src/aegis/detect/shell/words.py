"""What command names mean: closed lists that the shell analyser reads."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from aegis.detect.shell.tree import Command

# SQL on the command line of a database's client.

_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "psql": frozenset({"-c", "--command"}), "mysql": frozenset({"-e", "--execute"}),
    "mariadb": frozenset({"-e", "--execute"}), "cockroach": frozenset({"-e", "--execute"}),
    "sqlcmd": frozenset({"-Q", "-q"}), "clickhouse-client": frozenset({"-q", "--query"}),
    "duckdb": frozenset({"-c"}), "bq": frozenset({"query"}), "snowsql": frozenset({"-q", "--query"}),
}  # fmt: skip


def statements(command: Command) -> list[str]:
    """The statements that a command hands to a database; empty for every other command."""
    options = _OPTIONS.get(command.name)
    if options is not None:
        joined = [arg.partition("=")[2] for arg in command.args if arg.partition("=")[0] in options and "=" in arg]
        return joined + [following for option, following in pairwise(command.args) if option in options]
    if command.name == "sqlite3":
        plain = [arg for arg in command.args if not arg.startswith("-")]
        return [plain[1]] if len(plain) > 1 and not plain[1].startswith(".") else []
    return []


SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "ash", "fish", "rbash", "pwsh", "cmd.exe"}
)
INTERPRETERS: Final = SHELLS | {
    "python", "python2", "python3", "perl", "ruby", "node", "nodejs", "php", "lua", "osascript", "powershell",
    "powershell.exe", "pwsh.exe", "tclsh", "iex", "invoke-expression",
}  # fmt: skip
FETCHERS: Final = frozenset({
    "curl", "wget", "fetch", "lwp-request", "aria2c", "iwr", "invoke-webrequest", "irm", "invoke-restmethod", "lynx",
})  # fmt: skip
SENDERS: Final = FETCHERS | {
    "nc",
    "ncat",
    "netcat",
    "telnet",
    "socat",
    "ftp",
    "tftp",
    "sftp",
    "openssl",
    "ssh",
    "mail",
    "sendmail",
}
NETWORK: Final = SENDERS | {
    "scp", "rsync", "ping", "dig", "nslookup", "host", "git", "pip", "pip3", "npm", "apt", "apt-get",
    "traceroute", "whois",
}  # fmt: skip
# Commands that name a shell without starting it, or whose work is to start one where a person wants it.
NAMES_A_SHELL: Final = frozenset({
    "which", "whereis", "type", "command", "hash", "man", "apropos", "whatis", "info", "help", "ls", "ll", "dir",
    "file",
    "stat", "readlink", "realpath", "basename", "dirname", "ln", "cp", "mv", "rm", "touch", "cat", "less", "more",
    "head",
    "tail", "md5sum", "sha1sum", "sha256sum", "cmp", "diff", "strings", "ldd", "objdump", "readelf", "nm", "echo",
    "printf", "grep", "egrep", "fgrep", "rg", "ag", "ack", "awk", "gawk", "sed", "cut", "sort", "uniq", "wc",
    "tr", "tee",
    "test", "[", "[[", "dpkg", "apt", "apt-get", "apt-cache", "yum", "dnf", "brew", "rpm", "pacman", "apk", "port",
    "chsh", "usermod", "useradd", "adduser", "su", "sudo", "doas", "ssh", "docker", "podman", "kubectl", "vagrant",
    "lxc", "chmod", "chown", "chgrp", "ps", "pgrep", "pidof", "pkill", "killall", "kill", "top", "lsof", "fuser",
    "export", "set", "declare", "local", "alias", "unalias", "unset", "read", "exec", "source", ".", "screen", "tmux",
    "git", "make", "tar", "zip", "unzip", "gzip", "find", "locate", "mlocate", "updatedb", "case",
    "update-alternatives",
    "join", "paste", "column", "rev", "tac", "xargs", "parallel", "cd", "pushd", "getent", "id", "groups",
    "finger", "w",
    "who", "last", "history", "time", "watch", "env", "nohup", "compgen", "complete", "mount", "du", "df", "install",
    "yes", "seq", "bc", "date", "expr", "dd", "od", "xxd", "hexdump", "rename", "perl", "python", "python3", "ruby",
    *SHELLS,
})  # fmt: skip
# Those of the above that start what they are given: a bare shell as the last word is a shell started.
STARTS: Final = frozenset({"env", "nohup", "time", "watch", "find", "xargs", "parallel", "rlwrap", "pkexec"})
DELETERS: Final = frozenset({"rm", "shred", "unlink", "srm", "rmdir", "del", "rd", "remove-item"})
WRITERS: Final = frozenset({
    "cp", "mv", "tee", "install", "touch", "mkdir", "ln", "truncate", "rsync", "tar", "unzip", "sed", "git", "dd",
    "chmod", "chown", "mkfs", "fdisk", "parted", "wipefs", "shutdown", "reboot", "halt", "poweroff",
})  # fmt: skip
READERS: Final = frozenset({
    "cat", "less", "more", "head", "tail", "strings", "xxd", "od", "hexdump", "base64", "cp", "scp", "rsync", "tar",
    "zip", "curl", "wget", "nl", "tac", "rev", "awk", "sed", "grep", "cut", "sort", "dd", "mv", "tee", "vi",
    "vim", "nano",
    "type", "get-content", "gpg", "openssl", "nc", "sqlite3", "jq", "bat", "zcat", "xz", "gzip", "7z", "split", "paste",
    "diff", "comm", "fold", "fmt", "pr", "join", "iconv", "column", "expand",
})  # fmt: skip
# Commands that name a file without giving away what is in it.
NAMERS: Final = frozenset({
    "ls", "ll", "dir", "stat", "file", "test", "[", "[[", "chmod", "chown", "chgrp", "chattr", "lsattr", "getfacl",
    "setfacl", "touch", "find", "rm", "shred", "echo", "printf", "which", "whereis", "realpath", "readlink", "dirname",
    "basename", "du", "wc", "md5sum", "sha1sum", "sha256sum", "lsof", "fuser", "auditctl", "inotifywait", "cd", "man",
    "namei", "chcon", "restorecon", "locate", "cut", "passwd", "chage", "useradd", "usermod", "pwck", "sudo",
})  # fmt: skip
# Places that every user can write, where programs have no business.
LOOSE_PLACES: Final = ("/tmp/", "/dev/shm/", "/var/tmp/", "%temp%", "$env:temp", "/run/user/")  # noqa: S108 - looked for
SYSTEM_ROOTS: Final = frozenset({
    "/", "/*", "~", "~/", "~/*", "$home", "$home/", "$home/*", "${home}", "${home}/*", "/etc", "/usr", "/bin",
    "/sbin",
    "/lib", "/lib64", "/boot", "/var", "/home", "/root", "/sys", "/proc", "/dev", "/opt", "/etc/*", "/usr/*",
    "/bin/*",
    "/boot/*", "/var/*", "/home/*", "/root/*", "/lib/*", "c:\\", "c:\\*", "c:/", "/.", "/..", "/**", "//", "$home/.",
    "c:\\windows", "%userprofile%", "/system", "/library", "/users",
})  # fmt: skip
