"""Commands that give access: rights in a cloud or a cluster, storage opened to the public, accounts made stronger.

From the programs' manuals (ATT&CK T1098, T1136, T1531, T1537).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import re2

from aegis.facts.shell_services import Deed, deed
from aegis.facts.shell_tree import Command

# Rights given to others: daily work of few people, so a person looks at it.
_GRANTS: Final[dict[str, tuple[Deed, ...]]] = {
    "aws": (
        deed("iam create-access-key"), deed("iam create-login-profile"), deed("iam update-login-profile"),
        deed("iam attach-user-policy"), deed("iam attach-role-policy"), deed("iam attach-group-policy"),
        deed("iam put-user-policy"), deed("iam put-role-policy"), deed("iam add-user-to-group"),
        deed("iam update-assume-role-policy"), deed("s3api put-bucket-acl public-read"),
        deed("s3api put-bucket-acl public-read-write"), deed("s3api delete-public-access-block"),
        deed("ec2 modify-snapshot-attribute add"), deed("ec2 modify-image-attribute add"),
        deed("rds modify-db-snapshot-attribute"), deed("lambda add-permission"), deed("kms create-grant"),
    ),
    "gcloud": (
        deed("add-iam-policy-binding"), deed("set-iam-policy"), deed("service-accounts keys create"),
        deed("os-login ssh-keys add"),
    ),
    "gsutil": (deed("iam ch"), deed("acl ch")),
    "az": (
        deed("role assignment create"), deed("ad sp create-for-rbac"), deed("ad sp credential reset"),
        deed("ad app credential reset"), deed("keyvault set-policy"),
    ),
    "kubectl": (
        deed("create clusterrolebinding"), deed("create rolebinding"), deed("create token"),
        deed("certificate approve"),
    ),
    "oc": (deed("adm policy"),),
    "vault": (deed("policy write"), deed("token create")),
    "gh": (deed("repo deploy-key add"), deed("ssh-key add"), deed("secret set")),
    "heroku": (deed("access:add"), deed("authorizations:create")),
}  # fmt: skip
_STRONG_GROUPS: Final = frozenset({"root", "sudo", "wheel", "admin", "shadow", "disk"})
_IDENTITY_FILES: Final = re2.compile(r"^/etc/(?:g?shadow-?|passwd|sudoers(?:\.d(?:/.*)?)?|group|pam\.d(?:/.*)?)$")
_OPEN_MODE: Final = re2.compile(r"^(?:0?[0-7]?[0-7]{2}[2367]|[augo]*[ao]?[augo]*\+[rx]*w[rwx]*)$")


def grants(command: Command) -> str:
    """`shell.grants` for rights given in a service, `shell.privilege` for those of the system, or nothing."""
    name, args = command.name.lower(), command.args
    deeds = _GRANTS.get(name)
    if deeds is not None:
        words = frozenset(word.lower() for word in args)
        return "shell.grants" if "--dry-run" not in words and any(one.needs <= words for one in deeds) else ""
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
