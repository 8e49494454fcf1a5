"""What command lines of clouds and clusters do beyond daily work: backups destroyed, watching ended, doors opened.

Techniques of the cloud matrix of ATT&CK (T1485, T1490, T1531, T1537, T1562.008, T1578), by the commands' manuals. What
only reads, lists, creates or updates is not named.
"""

from __future__ import annotations

from typing import Final

import re2

from aegis.facts.shell_services import Deed, deed, is_dry
from aegis.facts.shell_tree import Command


def _deeds(text: str) -> tuple[Deed, ...]:
    return tuple(deed(words) for words in text.split(";"))


_DESTROYS: Final[dict[str, tuple[Deed, ...]]] = {
    "aws": _deeds(
        "s3api delete-objects;rds delete-db-snapshot;rds delete-db-cluster-snapshot;backup delete-backup-vault;"
        "backup delete-recovery-point;ec2 deregister-image;efs delete-file-system;fsx delete-file-system;"
        "ecr delete-repository --force;route53 delete-hosted-zone;redshift delete-cluster;opensearch delete-domain;"
        "es delete-elasticsearch-domain;organizations leave-organization;organizations close-account;"
        "organizations remove-account-from-organization;cognito-idp delete-user-pool;glacier delete-vault;"
        "docdb delete-db-cluster;neptune delete-db-cluster;elasticache delete-cache-cluster;"
        "elasticache delete-replication-group;kinesis delete-stream;sqs purge-queue;ec2 delete-vpc;kms disable-key"
    ),
    "gcloud": _deeds(
        "storage buckets delete;secrets delete;keys versions destroy;snapshots delete;backups delete;"
        "managed-zones delete;databases delete;topics delete;images delete;services disable --force"
    ),
    "az": _deeds(
        "disk delete;snapshot delete;keyvault delete;keyvault secret delete;storage blob delete-batch;"
        "storage container delete;sql server delete;cosmosdb delete;lock delete;backup vault delete;"
        "backup protection disable;acr delete;ad user delete;ad app delete;network vnet delete;mysql server delete;"
        "postgres server delete;postgres flexible-server delete"
    ),
    "kubectl": _deeds("delete storageclass;delete apiservice;delete node;scale --all --replicas=0"),
    "helm": _deeds("uninstall --no-hooks;delete --purge"),
    "rabbitmqctl": _deeds("purge_queue;delete_queue;delete_vhost;delete_user"),
    "kafka-topics.sh": _deeds("--delete"), "kafka-topics": _deeds("--delete"),
    "velero": _deeds("backup delete --confirm;schedule delete --confirm"),
    "vssadmin": _deeds("delete shadows"),
    "terraform": _deeds("workspace delete -force"),
    "linode-cli": _deeds("linodes delete;volumes delete"),
    "hcloud": _deeds("server delete;volume delete"),
    "wrangler": _deeds("d1 delete;r2 bucket delete"),
    "supabase": _deeds("projects delete;db reset --linked"),
    "vercel": _deeds("remove --yes;rm --yes"),
    "firebase": _deeds("firestore:delete --all-collections;database:remove"),
}  # fmt: skip
# What watches and guards an account.
_WEAKENS: Final[dict[str, tuple[Deed, ...]]] = {
    "aws": _deeds(
        "cloudtrail update-trail --no-is-multi-region-trail;"
        "cloudtrail update-trail --no-include-global-service-events;ec2 delete-flow-logs;"
        "guardduty update-detector --no-enable;guardduty disassociate-from-master-account;"
        "guardduty disassociate-from-administrator-account;configservice stop-configuration-recorder;"
        "configservice delete-configuration-recorder;configservice delete-delivery-channel;"
        "securityhub disable-security-hub;logs delete-log-stream;wafv2 delete-web-acl;wafv2 disassociate-web-acl;"
        "cloudwatch delete-alarms;cloudwatch disable-alarm-actions;iam deactivate-mfa-device;"
        "iam delete-virtual-mfa-device;iam delete-account-password-policy;macie2 disable-macie;inspector2 disable;"
        "accessanalyzer delete-analyzer;s3api delete-bucket-encryption;"
        "route53resolver delete-resolver-query-log-config;"
        "route53resolver disassociate-resolver-query-log-config;events disable-rule;shield delete-protection"
    ),
    "gcloud": _deeds(
        "logging sinks delete;logging buckets delete;logging logs delete;access-context-manager perimeters delete;"
        "compute firewall-rules delete;alpha monitoring policies delete;monitoring policies delete;org-policies delete"
    ),
    "az": _deeds(
        "monitor diagnostic-settings delete;monitor activity-log alert delete;monitor log-profiles delete;"
        "network watcher flow-log delete;network ddos-protection delete;policy assignment delete;"
        "sentinel alert-rule delete;monitor log-analytics workspace delete;network firewall delete"
    ),
    "kubectl": _deeds(
        "delete networkpolicy;delete networkpolicies;delete validatingwebhookconfiguration;"
        "delete validatingwebhookconfigurations;delete mutatingwebhookconfiguration;delete psp;delete podsecuritypolicy"
    ),
    "vault": _deeds("audit disable"),
    "okta": _deeds("policy delete;mfa disable;factor reset"),
    "gh": _deeds("api --method delete protection;api -x delete protection"),
    "journalctl": _deeds("--vacuum-time=0;--vacuum-time=1s;--vacuum-size=0;--vacuum-size=1"),
}  # fmt: skip
# Doors for others: images and copies shared, policies rewritten, keys given out.
_GRANTS: Final[dict[str, tuple[Deed, ...]]] = {
    "aws": _deeds(
        "iam create-policy-version --set-as-default;iam set-default-policy-version;kms put-key-policy;"
        "ecr set-repository-policy;sns add-permission;sqs add-permission;rds modify-db-cluster-snapshot-attribute;"
        "rolesanywhere create-trust-anchor;lambda create-function-url-config none;"
        "secretsmanager put-resource-policy;redshift authorize-snapshot-access"
    ),
    "gcloud": _deeds("add-metadata ssh-keys;add-iam-policy-binding"),
    "az": _deeds(
        "ad group member add;storage container set-permission;storage account update true --allow-blob-public-access;"
        "role definition create;ad app permission admin-consent"
    ),
    "kubectl": _deeds("auth reconcile;set subject"),
    "gh": _deeds("repo collaborator add;api -x put collaborators;api --method put collaborators"),
    "fly": _deeds("tokens create"), "flyctl": _deeds("tokens create"),
}  # fmt: skip
_TABLES: Final = ((_DESTROYS, "shell.infrastructure"), (_WEAKENS, "shell.weakens"), (_GRANTS, "shell.grants"))
_KNOWN: Final = frozenset({*_DESTROYS, *_WEAKENS, *_GRANTS})
# What only the values of options tell: the whole world let in, or an account's copy handed to another.
_OPENED: Final = re2.compile(
    r"(?is)\b(?:create-volume-permission|launch-permission)\s+['\"]?Add=|\boperation-type\s+add\b|"
    r"\bBlockPublic(?:Acls|Policy)=false|\bRestrictPublicBuckets=false|\ballUsers\b|\ballAuthenticatedUsers\b|"
    r"['\"]Principal['\"]\s*:\s*(?:['\"]\*['\"]|\{\s*['\"]AWS['\"]\s*:\s*\[?\s*['\"]\*)|--publicly-accessible\b|"
    r"(?:authorize-security-group-ingress|firewall-rules\s+(?:create|update)|nsg\s+rule\s+create)\b.{0,400}"
    r"(?:0\.0\.0\.0/0|::/0|prefix(?:es)?\s+['\"]?\*)"
)
_WEB_ALONE: Final = re2.compile(r"(?i)(?:--port|tcp:|ports?=?\s*|ranges?\s+)['\"]?(?:80|443|8080|8443)\b")
# A trail that leaves out what is done to the account itself.
_UNWATCHED: Final = re2.compile(r"(?s)put-event-selectors\b.{0,900}IncludeManagementEvents['\"\\]*\s*[:=]\s*false")
_HOST_POD: Final = re2.compile(
    r"['\"]?(?:privileged|hostPID|hostNetwork)['\"]?\s*:\s*true|enforce=privileged|['\"]path['\"]\s*:\s*['\"]/['\"]"
)
_CLOUDS: Final = frozenset({"aws", "gcloud", "gsutil", "az", "kubectl", "oc"})


def cloud_deed(command: Command) -> str:
    """The signal of what a cloud's command line destroys, weakens or opens; nothing for daily work."""
    name = command.name.lower()
    if name not in _KNOWN and name not in _CLOUDS:
        return ""
    words = frozenset(part for word in command.args for part in _parts(word.lower()))
    if is_dry(words):
        return ""
    for table, signal in _TABLES:
        if any(one.needs <= words for one in table.get(name, ())):
            return signal
    if name in {"kubectl", "oc"}:
        return "shell.privilege" if {"run", "label", "debug"} & words and _HOST_POD.search(command.text) else ""
    if name == "aws" and _UNWATCHED.search(command.text):
        return "shell.weakens"
    if name in _CLOUDS and _OPENED.search(command.text) and not _WEB_ALONE.search(command.text):
        return "shell.grants"
    return ""


def _parts(word: str) -> tuple[str, ...]:
    """A word, and the last name of a path of an API, so that `repos/a/b/collaborators/eve` names collaborators."""
    return (word, *word.split("/")) if "/" in word and len(word) < 400 else (word,)
