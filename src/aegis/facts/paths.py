"""Paths: where they really lead, and which files hold secrets."""

from __future__ import annotations

from typing import Final

from aegis.facts.quick import one_of
from aegis.facts.remember import remembered

_SECRET: Final = one_of(
    r"(?i)(?:^|[/\\])(?:"
    r"\.ssh[/\\](?:id_[a-z0-9]+|identity|.*\.pem|.*_rsa|.*_ed25519)$"
    r"|\.aws[/\\](?:credentials|config)$|\.azure[/\\].*(?:token|profile)|\.config[/\\]gcloud[/\\].*(?:credential|\.db|token)"
    r"|\.kube[/\\]config$|\.docker[/\\]config\.json$|\.netrc$|_netrc$|\.pgpass$|\.my\.cnf$|\.npmrc$|\.pypirc$|\.git-credentials$"
    r"|\.gnupg[/\\](?:private|secring)|\.vault-token$|\.htpasswd$|\.bash_history$|\.zsh_history$|\.mysql_history$"
    r"|etc[/\\](?:g?shadow-?|sudoers|master\.passwd|security[/\\]passwd|krb5\.keytab)$|proc[/\\](?:self|\d+|\$[^/]+|\*)[/\\](?:environ|mem|maps)$"
    r"|windows[/\\](?:system32[/\\]config|repair)[/\\](?:sam|system|security)|ntds\.dit$"
    r"|Login Data$|cookies\.sqlite$|logins\.json$|key[34]\.db$|wallet\.dat$|service[_-]account.*\.json$"
    r"|\.env(?:\.(?:local|production|prod|staging|development))?$|id_(?:rsa|dsa|ecdsa|ed25519)$|[^/\\]*(?:key|priv|secret|ec2|aws|prod|root|server)[^/\\]*\.pem$|.*\.(?:p12|pfx|keystore|jks|ppk|kdbx)$"
    r"|secrets[/\\]kubernetes\.io[/\\]|\.terraform\.d[/\\]credentials|\.config[/\\](?:gh[/\\]hosts\.yml|op[/\\]|rclone[/\\]rclone\.conf)"
    r"|\.cargo[/\\]credentials|\.gem[/\\]credentials|\.composer[/\\]auth\.json|\.m2[/\\]settings-security\.xml|\.claude[/\\]\.credentials"
    r"|\.local[/\\]share[/\\]keyrings[/\\]|Library[/\\]Keychains[/\\]|ansible[_-]vault[_-]pass\w*$|\.vault_pass\w*$|\.s3cfg$|\.boto$"
    r"|passwords?\.(?:txt|csv|xlsx?|kdbx?)$|\.aws[/\\]sso[/\\]cache[/\\]|\.rhosts$|\.smbcredentials$|\.cifs-credentials$"
    r")"
)


_SECRET_PLACE: Final = one_of(
    r"(?i)(?:^|[/\\])(?:\.ssh|\.aws|\.gnupg|\.kube|\.azure|\.password-store|\.mozilla)[/\\]?\*?$"
)


_SYSTEM_SECRETS: Final = frozenset({
    "/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/master.passwd", "/etc/security/passwd",
})  # fmt: skip


def is_account_file(path: str) -> bool:
    """Whether the path names the list of a system's accounts."""
    return path in {"/etc/passwd", "/etc/group"}


def is_system_secret(path: str) -> bool:
    """Whether the path names the file in which a system keeps the passwords of its accounts."""
    return path in _SYSTEM_SECRETS


def is_secret_place(path: str) -> bool:
    """Whether the path names a folder that holds credentials or keys."""
    return "." in path and len(path) <= 4_096 and bool(_SECRET_PLACE(path))


@remembered
def is_secret_file(path: str) -> bool:
    """Whether the path names a file whose purpose is to hold credentials or keys."""
    return len(path) <= 4_096 and bool(_SECRET(path))


def climbs(path: str, folders: int) -> bool:
    """Whether a path leads at least so many folders above its start.

    Both slashes separate, and repeated ones count once. An absolute path that climbs above the root
    counts the climbs that have nothing to leave.
    """
    left = folders
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            left -= 1
            if not left:
                return True
        elif part and part != ".":
            left += 1
    return False
