"""Commands that change what others depend on: services destroyed for good, and software handed to the public.

What is gone from a cloud, a cluster or a registry does not come back by another command, so such a call is
irreversible; publishing is irreversible too, because others may have fetched it. From the programs' manuals.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aegis.facts.shell_tree import Command


class Deed(NamedTuple):
    """Words that must all stand in a command, in any order, and the words of which none may."""

    needs: frozenset[str]
    unless: frozenset[str] = frozenset()


def _deed(words: str, unless: str = "") -> Deed:
    return Deed(frozenset(words.split()), frozenset(unless.split()))


_DRY: Final = frozenset(
    {"--dry-run", "--dry-run=client", "--dry-run=server", "--dryrun", "--help", "-h", "--noop", "-n=true"}
)
_DESTROYS: Final[dict[str, tuple[Deed, ...]]] = {
    "kubectl": (
        _deed("delete namespace"), _deed("delete ns"), _deed("delete namespaces"), _deed("delete --all"),
        _deed("delete -A"), _deed("delete pv"), _deed("delete pvc"), _deed("delete crd"),
        _deed("delete --all-namespaces"),
    ),
    "oc": (_deed("delete project"), _deed("delete --all")),
    "terraform": (_deed("destroy -auto-approve"), _deed("destroy --auto-approve"),
                  _deed("apply -destroy -auto-approve")),
    "tofu": (_deed("destroy -auto-approve"),),
    "terragrunt": (_deed("destroy -auto-approve"), _deed("run-all destroy"), _deed("destroy-all")),
    "pulumi": (_deed("destroy --yes"), _deed("destroy -y"), _deed("stack rm --force")),
    "cdk": (_deed("destroy --force"), _deed("destroy -f")),
    "aws": (
        _deed("s3 rb --force"), _deed("s3 rm --recursive"), _deed("ec2 terminate-instances"),
        _deed("rds delete-db-instance"), _deed("rds delete-db-cluster"), _deed("dynamodb delete-table"),
        _deed("kms schedule-key-deletion"), _deed("s3api delete-bucket"), _deed("iam delete-user"),
        _deed("cloudtrail delete-trail"), _deed("cloudtrail stop-logging"), _deed("eks delete-cluster"),
        _deed("cloudformation delete-stack"), _deed("secretsmanager delete-secret"), _deed("ec2 delete-snapshot"),
        _deed("ec2 delete-volume"), _deed("guardduty delete-detector"), _deed("logs delete-log-group"),
    ),
    "gcloud": (
        _deed("projects delete"), _deed("instances delete"), _deed("clusters delete"), _deed("sql delete"),
        _deed("storage rm -r"), _deed("storage rm --recursive"), _deed("disks delete"), _deed("datasets delete"),
    ),
    "gsutil": (_deed("rm -r"), _deed("rb -f"), _deed("rm -rf")),
    "bq": (_deed("rm -r -f"), _deed("rm -rf"), _deed("rm -f -d")),
    "az": (
        _deed("group delete"), _deed("vm delete"), _deed("storage account delete"), _deed("keyvault purge"),
        _deed("sql db delete"), _deed("aks delete"), _deed("container delete"),
    ),
    "doctl": (_deed("droplet delete"), _deed("databases delete"), _deed("cluster delete")),
    "heroku": (_deed("apps:destroy"), _deed("pg:reset"), _deed("addons:destroy")),
    "fly": (_deed("apps destroy"), _deed("volumes destroy")), "flyctl": (_deed("apps destroy"),),
    "gh": (_deed("repo delete"), _deed("release delete"), _deed("repo edit --visibility public")),
    "glab": (_deed("repo delete"),),
    "docker": (_deed("system prune --volumes"), _deed("volume prune"), _deed("swarm leave --force")),
    "podman": (_deed("system prune --volumes"), _deed("volume prune"), _deed("system reset")),
    "dropdb": (_deed(""),),
    "dropuser": (_deed(""),),
    "mysqladmin": (_deed("drop"),),
    "redis-cli": (_deed("flushall"), _deed("flushdb")),
    "etcdctl": (_deed("del --prefix"),),
    "vault": (_deed("secrets disable"), _deed("kv destroy"), _deed("kv metadata delete"), _deed("operator rekey")),
    "zpool": (_deed("destroy"), _deed("labelclear")),
    "zfs": (_deed("destroy -r"), _deed("destroy -R")),
    "lvremove": (_deed("-f"), _deed("-y"), _deed("--force"), _deed("--yes")),
    "vgremove": (_deed(""),), "pvremove": (_deed(""),),
    "mdadm": (_deed("--zero-superblock"),),
    "cryptsetup": (_deed("lukserase"), _deed("erase"), _deed("lukskillslot"), _deed("luksformat")),
    "sgdisk": (_deed("--zap-all"), _deed("-z"), _deed("-Z")),
    "blkdiscard": (_deed(""),),
    "hdparm": (_deed("--security-erase"), _deed("--trim-sector-ranges")),
    "nvme": (_deed("format"), _deed("sanitize")),
    "diskutil": (_deed("erasedisk"), _deed("erasevolume"), _deed("zerodisk"), _deed("secureerase")),
    "tmutil": (_deed("delete"), _deed("deletelocalsnapshots"), _deed("disable")),
    "borg": (_deed("delete"),),
    "restic": (_deed("forget --prune"),),
    "rabbitmqctl": (_deed("reset"), _deed("force_reset")),
    "git": (
        _deed("push --mirror --force"), _deed("push --mirror -f"), _deed("filter-branch --all"),
        _deed("reflog expire --expire=now"), _deed("push --delete main"), _deed("push --delete master"),
    ),
}  # fmt: skip
_PUBLISHES: Final[dict[str, tuple[Deed, ...]]] = {
    "npm": (_deed("publish"), _deed("unpublish"), _deed("owner add"), _deed("dist-tag add"), _deed("deprecate")),
    "pnpm": (_deed("publish"),),
    "yarn": (_deed("publish"), _deed("npm publish")),
    "bun": (_deed("publish"),),
    "lerna": (_deed("publish"),),
    "twine": (_deed("upload"),),
    "poetry": (_deed("publish"),),
    "uv": (_deed("publish"),),
    "flit": (_deed("publish"),),
    "hatch": (_deed("publish"),),
    "cargo": (_deed("publish"), _deed("yank"), _deed("owner --add")),
    "gem": (_deed("push"), _deed("yank"), _deed("owner --add")),
    "dotnet": (_deed("nuget push"),), "nuget": (_deed("push"),),
    "vsce": (_deed("publish"),), "ovsx": (_deed("publish"),),
    "pod": (_deed("trunk push"),),
    "jsr": (_deed("publish"),), "deno": (_deed("publish"),),
    "goreleaser": (_deed("release", "--snapshot --skip=publish"),),
    "fastlane": (_deed("deliver"), _deed("supply"), _deed("release")),
}  # fmt: skip
_KNOWN: Final = frozenset({*_DESTROYS, *_PUBLISHES, "git"})
_MAIN: Final = frozenset({"main", "master", "trunk", "release", "production", "prod"})


def service_deed(command: Command) -> str:
    """`shell.infrastructure`, `shell.publishes`, `shell.rewrites-history`, or nothing."""
    name = command.name.lower()
    if name not in _KNOWN:
        return ""
    words = frozenset(word.lower() for word in command.args) | _split_flags(command.args)
    if words & _DRY:
        return ""
    if name == "git" and "push" in words:
        return _push(command, words)
    for table, signal in ((_DESTROYS, "shell.infrastructure"), (_PUBLISHES, "shell.publishes")):
        for deed in table.get(name, ()):
            if deed.needs <= words and not deed.unless & words and (deed.needs or command.args):
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
