"""Commands that change what others depend on: services destroyed for good, and software handed to the public.

What is gone from a cloud, a cluster or a registry does not come back by another command, so such a call is
irreversible; publishing is irreversible too, because others may have fetched it. From the programs' manuals.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aegis.detect.shell.tree import Command


class Deed(NamedTuple):
    """Words that must all stand in a command, in any order, and the words of which none may."""

    needs: frozenset[str]
    unless: frozenset[str] = frozenset()


def deed(words: str, unless: str = "") -> Deed:
    """The deed of these words, parted by blanks."""
    return Deed(frozenset(words.split()), frozenset(unless.split()))


_DRY: Final = frozenset(
    {"--dry-run", "--dry-run=client", "--dry-run=server", "--dryrun", "--help", "--noop", "-n=true"}
)


def is_dry(words: frozenset[str]) -> bool:
    """Whether a command only says what it would do."""
    return bool(words & _DRY)


_HOST_BY_H: Final = frozenset({"redis-cli", "dropdb", "dropuser", "mysqladmin"})  # where `-h` names a host
_DESTROYS: Final[dict[str, tuple[Deed, ...]]] = {
    "kubectl": (
        deed("delete namespace"), deed("delete ns"), deed("delete namespaces"), deed("delete --all"),
        deed("delete -A"), deed("delete pv"), deed("delete pvc"), deed("delete crd"),
        deed("delete --all-namespaces"),
    ),
    "oc": (deed("delete project"), deed("delete --all")),
    "terraform": (deed("destroy -auto-approve"), deed("destroy --auto-approve"),
                  deed("apply -destroy -auto-approve")),
    "tofu": (deed("destroy -auto-approve"),),
    "terragrunt": (deed("destroy -auto-approve"), deed("run-all destroy"), deed("destroy-all")),
    "pulumi": (deed("destroy --yes"), deed("destroy -y"), deed("stack rm --force")),
    "cdk": (deed("destroy --force"), deed("destroy -f")),
    "aws": (
        deed("s3 rb --force"), deed("s3 rm --recursive"), deed("ec2 terminate-instances"),
        deed("rds delete-db-instance"), deed("rds delete-db-cluster"), deed("dynamodb delete-table"),
        deed("kms schedule-key-deletion"), deed("s3api delete-bucket"), deed("iam delete-user"),
        deed("cloudtrail delete-trail"), deed("cloudtrail stop-logging"), deed("eks delete-cluster"),
        deed("cloudformation delete-stack"), deed("secretsmanager delete-secret"), deed("ec2 delete-snapshot"),
        deed("ec2 delete-volume"), deed("guardduty delete-detector"), deed("logs delete-log-group"),
    ),
    "gcloud": (
        deed("projects delete"), deed("instances delete"), deed("clusters delete"), deed("sql delete"),
        deed("storage rm -r"), deed("storage rm --recursive"), deed("disks delete"), deed("datasets delete"),
    ),
    "gsutil": (deed("rm -r"), deed("rb -f"), deed("rm -rf")),
    "bq": (deed("rm -r -f"), deed("rm -rf"), deed("rm -f -d")),
    "az": (
        deed("group delete"), deed("vm delete"), deed("storage account delete"), deed("keyvault purge"),
        deed("sql db delete"), deed("aks delete"), deed("container delete"),
    ),
    "doctl": (deed("droplet delete"), deed("databases delete"), deed("cluster delete")),
    "heroku": (deed("apps:destroy"), deed("pg:reset"), deed("addons:destroy")),
    "fly": (deed("apps destroy"), deed("volumes destroy")), "flyctl": (deed("apps destroy"),),
    "gh": (deed("repo delete"), deed("release delete"), deed("repo edit --visibility public")),
    "glab": (deed("repo delete"),),
    "docker": (deed("system prune --volumes"), deed("volume prune"), deed("swarm leave --force")),
    "podman": (deed("system prune --volumes"), deed("volume prune"), deed("system reset")),
    "dropdb": (deed(""),),
    "dropuser": (deed(""),),
    "mysqladmin": (deed("drop"),),
    "redis-cli": (deed("flushall"), deed("flushdb")),
    "etcdctl": (deed("del --prefix"),),
    "vault": (deed("secrets disable"), deed("kv destroy"), deed("kv metadata delete"), deed("operator rekey")),
    "zpool": (deed("destroy"), deed("labelclear")),
    "zfs": (deed("destroy -r"), deed("destroy -R")),
    "lvremove": (deed("-f"), deed("-y"), deed("--force"), deed("--yes")),
    "vgremove": (deed(""),), "pvremove": (deed(""),),
    "mdadm": (deed("--zero-superblock"),),
    "cryptsetup": (deed("lukserase"), deed("erase"), deed("lukskillslot"), deed("luksformat")),
    "sgdisk": (deed("--zap-all"), deed("-z"), deed("-Z")),
    "blkdiscard": (deed(""),),
    "hdparm": (deed("--security-erase"), deed("--trim-sector-ranges")),
    "nvme": (deed("format"), deed("sanitize")),
    "diskutil": (deed("erasedisk"), deed("erasevolume"), deed("zerodisk"), deed("secureerase")),
    "tmutil": (deed("delete"), deed("deletelocalsnapshots"), deed("disable")),
    "borg": (deed("delete"),),
    "restic": (deed("forget --prune"),),
    "mongo": (deed("--eval db.dropdatabase()"),), "mongosh": (deed("--eval db.dropdatabase()"),),
    "rabbitmqctl": (deed("reset"), deed("force_reset")),
    "git": (
        deed("push --mirror --force"), deed("push --mirror -f"), deed("filter-branch --all"),
        deed("reflog expire --expire=now"), deed("push --delete main"), deed("push --delete master"),
    ),
}  # fmt: skip
_PUBLISHES: Final[dict[str, tuple[Deed, ...]]] = {
    "npm": (deed("publish"), deed("unpublish"), deed("owner add"), deed("dist-tag add"), deed("deprecate")),
    "pnpm": (deed("publish"),),
    "yarn": (deed("publish"), deed("npm publish")),
    "bun": (deed("publish"),),
    "lerna": (deed("publish"),),
    "twine": (deed("upload"),),
    "poetry": (deed("publish"),),
    "uv": (deed("publish"),),
    "flit": (deed("publish"),),
    "hatch": (deed("publish"),),
    "cargo": (deed("publish"), deed("yank"), deed("owner --add")),
    "gem": (deed("push"), deed("yank"), deed("owner --add")),
    "dotnet": (deed("nuget push"),), "nuget": (deed("push"),),
    "vsce": (deed("publish"),), "ovsx": (deed("publish"),),
    "pod": (deed("trunk push"),),
    "jsr": (deed("publish"),), "deno": (deed("publish"),),
    "goreleaser": (deed("release", "--snapshot --skip=publish"),),
    "fastlane": (deed("deliver"), deed("supply"), deed("release")),
}  # fmt: skip
_KNOWN: Final = frozenset({*_DESTROYS, *_PUBLISHES, "git"})
_MAIN: Final = frozenset({"main", "master", "trunk", "release", "production", "prod"})


def service_deed(command: Command) -> str:
    """`shell.infrastructure`, `shell.publishes`, `shell.rewrites-history`, or nothing."""
    name = command.name.lower()
    if name not in _KNOWN:
        return ""
    words = frozenset(word.lower() for word in command.args) | _split_flags(command.args)
    if is_dry(words) or ("-h" in words and name not in _HOST_BY_H):
        return ""
    if name == "git" and "push" in words:
        return _push(command, words)
    for table, signal in ((_DESTROYS, "shell.infrastructure"), (_PUBLISHES, "shell.publishes")):
        for one in table.get(name, ()):
            if one.needs <= words and not one.unless & words and (one.needs or command.args):
                return signal
    return ""


def _push(command: Command, words: frozenset[str]) -> str:
    """A push that overwrites what others work on: by force, to a shared branch, or all of a mirror."""
    forced = bool(words & {"--force", "-f"}) or any(arg.startswith("+") for arg in command.args)
    if "--mirror" in words and forced:
        return "shell.infrastructure"
    targets = {arg.lstrip("+").rpartition(":")[2].rpartition("/")[2].lower() for arg in command.args}
    if (forced or "--delete" in words or "-d" in words) and targets & _MAIN:
        return "shell.rewrites-history"
    return ""


def _split_flags(args: tuple[str, ...]) -> frozenset[str]:
    """The single letters of joined short options: `-rf` is `-r` and `-f`."""
    return frozenset(
        f"-{letter}"
        for arg in args
        if arg.startswith("-") and not arg.startswith("--") and len(arg) <= 5
        for letter in arg[1:]
    )
