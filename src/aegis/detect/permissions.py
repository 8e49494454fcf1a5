"""Who is given which rights by the members of a policy, a binding or a rule of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aegis.core.effects import Resource, ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.endpoints import OFF, ON, plain
from aegis.detect.roles import words_of
from aegis.detect.tool_words import vocabulary

CHANGES: Final = frozenset({"update", "edit", "patch", "set", "change", "modify", "put", "make"})
_POWERFUL: Final = frozenset({
    "cluster-admin", "system:masters", "administratoraccess", "roles/owner", "owner", "admin",
})  # fmt: skip
_EVERYBODY: Final = frozenset({
    "system:anonymous", "system:unauthenticated", "system:authenticated", "allusers", "allauthenticatedusers", "*",
    "public-read-write", "public-read",
})  # fmt: skip
_OPEN_NETS: Final = frozenset({"0.0.0.0/0", "::/0"})
_REACHED_BY: Final = (
    "acl", "member", "members", "cidrip", "cidr", "cidrblocks", "sourceranges", "cidripv6", "cidrblock",
    "sourceaddressprefix",
)  # fmt: skip
# Members that say that everybody may reach something, and members that keep everybody from it.
_OPENS: Final = (
    "publiclyaccessible", "publicaccess", "ispublic", "makepublic", "publicnetworkaccess", "endpointpublicaccess",
)  # fmt: skip
_SHUTS: Final = ("blockpublicacls", "blockpublicpolicy", "ignorepublicacls", "restrictpublicbuckets")
_HOUSES: Final = frozenset({"repo", "repository", "project", "gist"})


def given_rights(members: Mapping[str, Any], tool: str) -> Iterator[ResourceEffect]:
    """What the members of one object give to whom; `tool` says what is done."""
    yield from _rights(members)
    yield from _opened(members, tool)


def is_highest(role: str) -> bool:
    """Whether a role is the highest that there is, by its name."""
    return plain(role.rpartition("/")[2]) in vocabulary().values["admin"]


def _rights(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """Who is given which rights over a cluster or a cloud."""
    kind = str(members.get("kind", ""))
    role = members.get("roleref")
    if kind in ("ClusterRoleBinding", "RoleBinding") and isinstance(role, dict) and str(role.get("name")) in _POWERFUL:
        yield ResourceEffect("permit", "cluster", "all", (str(role.get("name")),), "", f"{kind} {role.get('name')}")
    subjects = members.get("subjects")
    for subject in subjects if isinstance(subjects, list) else ():
        if isinstance(subject, dict) and str(subject.get("name", "")).lower() in _EVERYBODY:
            yield ResourceEffect("expose", "cluster", "all", (str(subject.get("name")),), "", str(subject.get("name")))
    verbs, resources = members.get("verbs"), members.get("resources")
    if isinstance(verbs, list) and isinstance(resources, list) and "*" in verbs and "*" in resources:
        yield ResourceEffect("permit", "cluster", "all", ("*",), "", "verbs * resources *")
    effect, action, target = (str(members.get(name, "")) for name in ("effect", "action", "resource"))
    everything = action in ("*", "['*']") and target in ("*", "['*']")
    if effect == "Allow" and everything:
        yield ResourceEffect("permit", "cloud-identity", "all", ("*",), "", "Allow * on *")
    principal = members.get("principal")
    if effect == "Allow" and (
        principal == "*" or (isinstance(principal, dict) and "*" in map(str, principal.values()))
    ):
        yield ResourceEffect("expose", "storage", "all", ("*",), "", "Allow for everyone")
    for name in ("policyarn", "policy", "role"):
        given = members.get(name)
        if isinstance(given, str) and (
            given.lower() == "roles/owner" or given.rpartition("/")[2].lower() in _POWERFUL - {"owner", "admin"}
        ):
            yield ResourceEffect("permit", "cloud-identity", "all", (given,), "", given)
    for name in _REACHED_BY:
        given = members.get(name)
        for one in given if isinstance(given, list) else [given]:
            if isinstance(one, str) and (one.lower() in _EVERYBODY - {"*"} or (one in _OPEN_NETS and _admits(members))):
                resource: Resource = "storage" if name in ("acl", "member", "members") else "cloud-resource"
                yield ResourceEffect("expose", resource, "all", (one,), "", one)


def _opened(members: Mapping[str, Any], tool: str) -> Iterator[ResourceEffect]:
    """What a member opens to everyone by being switched, or a repository by being made public."""
    for name in _OPENS:
        if members.get(name) in ON:
            yield ResourceEffect("expose", "cloud-resource", "one", (name,), "", f"{name}: {members[name]}")
    for name in _SHUTS:
        if members.get(name) in OFF and name in members:
            yield ResourceEffect("expose", "storage", "all", (name,), "", f"{name}: {members[name]}")
    words = set(words_of(tool))
    made_public = str(members.get("visibility", "")).lower() == "public" or (
        members.get("private") in OFF and "private" in members
    )
    if made_public and words & CHANGES and words & _HOUSES:
        yield ResourceEffect("expose", "repository", "one", ("public",), "", "visibility: public")


def _admits(members: Mapping[str, Any]) -> bool:
    """Whether a rule of a network opens a port that administrators and databases use, or every port."""
    if "egress" in (members.get("type"), members.get("direction")):
        return False
    inner = [one for name in ("allowed", "allow", "rules") for one in members.get(name) or () if isinstance(one, dict)]
    if any(_admits({plain(str(name)): value for name, value in one.items()}) for one in inner):
        return True
    ports = [members.get(name) for name in ("fromport", "port", "toport", "ports", "portrange", "destinationportrange")]
    protocol = str(members.get("ipprotocol", members.get("protocol", "")))
    return protocol == "-1" or any(_SENSITIVE_PORT.search(str(port)) is not None for port in ports if port is not None)


_SENSITIVE_PORT: Final = Lazy(
    r"(?:^|\D)(?:22|23|135|445|1433|1521|2375|2376|2379|3306|3389|5432|5900|5984|6379|6443|9200|10250|11211|27017|0-65535)(?:\D|$)|^\*$"
)
