"""Who is given which rights by the members of a policy, a binding or a rule of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from aegis.core.effects import EffectScope, Resource, ResourceEffect
from aegis.core.names import glob_match
from aegis.core.patterns import Lazy
from aegis.detect.endpoints import OFF, ON, plain
from aegis.detect.quick import remembered
from aegis.detect.resources import FileAttribute, builtin_resources
from aegis.detect.roles import words_of
from aegis.detect.tool_words import Vocabulary, effect_of, is_throwaway, vocabulary

CHANGES: Final = frozenset({"update", "edit", "patch", "set", "change", "modify", "put", "make"})
_POWERFUL: Final = frozenset({
    "cluster-admin", "system:masters", "administratoraccess", "roles/owner", "owner", "admin",
})  # fmt: skip
_EVERYBODY: Final = frozenset({
    "system:anonymous", "system:unauthenticated", "system:authenticated", "allusers", "allauthenticatedusers", "*",
    "public-read-write", "public-read", "publicreadwrite", "publicread",
})  # fmt: skip
TO_EVERYBODY: Final = "for everybody"
TRUST: Final = "trust in everybody of a shared issuer"
# Roles that a cluster gives by itself to whoever asks what it is, and to whom.
_SIGNED_IN: Final = ("system:authenticated",)
_DISCOVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "system:public-info-viewer": (*_SIGNED_IN, "system:unauthenticated"), "system:discovery": _SIGNED_IN,
    "system:basic-user": _SIGNED_IN,
}  # fmt: skip
_OPEN_NETS: Final = frozenset({"0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "::/0", "::/1"})
_NETWORKS: Final = ("authorizednetworks", "masterauthorizednetworks")  # from which a server of Google's is reached
_ALL_NAMES: Final = ("*", "*:*")


def given_rights(members: Mapping[str, Any], tool: str) -> Iterator[ResourceEffect]:
    """What the members of one object give to whom; `tool` says what is done."""
    yield from _rights(members)
    yield from _opened(members, tool)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def is_highest(role: str) -> bool:
    """Whether a role is the highest that there is, by its name."""
    return plain(role.rpartition("/")[2]) in vocabulary().values["admin"]


def _rights(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """Who is given which rights over a cluster or a cloud."""
    kind = str(members.get("kind", ""))
    bound = members.get("roleref")
    role = str(bound.get("name")) if isinstance(bound, dict) else ""
    if kind in ("ClusterRoleBinding", "RoleBinding") and role in _POWERFUL:
        yield ResourceEffect("permit", "cluster", "all", (role,), "", f"{kind} {role}")
    subjects = members.get("subjects")
    for subject in subjects if isinstance(subjects, list) else ():
        named = str(subject.get("name", "")) if isinstance(subject, dict) else ""
        if named.lower() in _EVERYBODY and named not in _DISCOVERS.get(role, ()):
            shown = f"{role} {TO_EVERYBODY}" if role in _POWERFUL else named
            yield ResourceEffect("expose", "cluster", "all", (named,), "", shown)
    verbs, resources = members.get("verbs"), members.get("resources")
    if isinstance(verbs, list) and isinstance(resources, list) and "*" in verbs and "*" in resources:
        yield ResourceEffect("permit", "cluster", "all", ("*",), "", "verbs * resources *")
    if (
        isinstance(verbs, list)
        and not vocabulary().values["raises"].isdisjoint(map(str, verbs))
        and not members.get("resourcenames")
    ):
        shown = f"verbs {' '.join(map(str, verbs))}"[:_LONGEST]
        yield ResourceEffect("permit", "cluster", "one", ("*",), "", shown)
    yield from _aggregated(members)
    reaches = [f"{sign} {one}" for one in ("action", "resource") for sign in _reach(members, one)]
    if members.get("effect") == "Allow" and len(reaches) == _BOTH:
        scope: EffectScope = "all" if reaches == ["* action", "* resource"] else "one"
        yield ResourceEffect("permit", "cloud-identity", scope, ("*",), "", f"Allow {' on '.join(reaches)}")
    if _trusts_everybody(members):
        yield ResourceEffect("permit", "cloud-identity", "one", (), "", TRUST)
    principal = members.get("principal")
    trusted = [principal, *(principal.values() if isinstance(principal, dict) else ())]
    if members.get("effect") == "Allow" and ("notprincipal" in members or any("*" in _listed(one) for one in trusted)):
        yield ResourceEffect("expose", "storage", "all", ("*",), "", "Allow for everyone")
    if members.get("approleid") in vocabulary().values["powerfulapplications"]:
        named = str(members["approleid"])
        yield ResourceEffect("permit", "cloud-identity", "all", (named,), "", f"appRoleId {named}")
    for given in [
        one for name in ("policyarn", "policy", "role", "managedpolicyarns") for one in _listed(members.get(name))
    ]:
        if isinstance(given, str) and (
            given.lower() == "roles/owner" or given.rpartition("/")[2].lower() in _POWERFUL - {"owner", "admin"}
        ):
            yield ResourceEffect("permit", "cloud-identity", "all", (given,), "", given)
    for name in _NETWORKS:
        for one in _listed(members.get(name)):
            for net in one.values() if isinstance(one, dict) else ():
                if str(net) in _OPEN_NETS:
                    yield ResourceEffect("expose", "cloud-resource", "all", (str(net),), "", f"{name}: {net}")
    if "*" in _listed(members.get("sourcerepos")) and any(
        isinstance(one, dict) and one.get("namespace") == "*" for one in _listed(members.get("destinations"))
    ):
        yield ResourceEffect("permit", "cluster", "one", ("*",), "", "every repository to every namespace")
    for name in sorted(vocabulary().values["reachedby"]):
        for one in _listed(members.get(name)):
            if isinstance(one, str) and (one.lower() in _EVERYBODY - {"*"} or (one in _OPEN_NETS and _admits(members))):
                resource: Resource = "storage" if name in ("acl", "member", "members") else "cloud-resource"
                yield ResourceEffect("expose", resource, "all", (one,), "", one)


_READS: Final = frozenset({"get", "list", "watch"})
_GRADE: Final = "rbac.authorization.k8s.io/aggregate-to-"
# What the roles that come with a cluster keep from those who have them.
_OF_ALL_GROUPS: Final = frozenset({"", "*"})


def _aggregated(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """What is added to a role that comes with a cluster, and that the role keeps from those who have it."""
    described, rules = members.get("metadata"), members.get("rules")
    labels = described.get("labels") if isinstance(described, dict) else None
    grades = {
        str(name).removeprefix(_GRADE)
        for name, value in (labels.items() if isinstance(labels, dict) else ())
        if str(name).startswith(_GRADE) and str(value).lower() == "true"
    }
    for rule in rules[:_MOST_RULES] if grades and isinstance(rules, list) else ():
        if isinstance(rule, dict) and any(_is_beyond(grade, rule) for grade in grades):
            shown = f"{rule.get('verbs')} {rule.get('resources')} for {' '.join(sorted(grades))}"[:_LONGEST]
            yield ResourceEffect("permit", "cluster", "one", tuple(sorted(grades)), "", shown)
            return
    gathered = members.get("aggregationrule")
    chosen = gathered.get("clusterRoleSelectors") if isinstance(gathered, dict) else None
    if any(one in ({}, {"matchLabels": {}}) for one in _listed(chosen)):
        yield ResourceEffect("permit", "cluster", "one", ("*",), "", "aggregationRule of every role")


def _is_beyond(grade: str, rule: Mapping[str, Any]) -> bool:
    verbs, resources, groups = ({str(one).lower() for one in _listed(rule.get(name))} for name in _OF_RULE)
    every = "*" in resources and not groups.isdisjoint(_OF_ALL_GROUPS)
    if grade == "view":
        return every or not verbs <= _READS or not resources.isdisjoint(vocabulary().values["keptfromreaders"])
    kept = vocabulary().values["keptfromowners"] | (set() if grade == "admin" else {"roles", "rolebindings"})
    return not verbs <= _READS and (every or not resources.isdisjoint(kept))


_OF_RULE: Final = ("verbs", "resources", "apiGroups")


def only_looks(policy: Any) -> bool:
    """Whether a policy lets somebody see what there is, and neither what it holds nor any secret."""
    stated = _listed(policy.get("Statement")) if isinstance(policy, dict) else []
    return bool(stated) and all(
        isinstance(one, dict)
        and one.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        and all(_LOOKS.match(str(deed)) is not None for deed in _listed(one.get("Action")))
        for one in stated
    )


_LOOKS: Final = Lazy(
    r"^[\w-]{1,40}:(?:(?:Describe|List)[\w*]*|GetCallerIdentity|Get\w*(?:Policy|Status|Metrics?\w*|Tags|Location))$"
)


def _reach(members: Mapping[str, Any], name: str) -> Iterator[str]:
    """How a statement of a policy reaches every action or every resource, or all but some that it names."""
    if members.get(f"not{name}"):
        yield "all but some of"
    elif any(one in _ALL_NAMES for one in _listed(members.get(name))):
        yield "*"
    elif name == "action" and any(str(one).lower() == "iam:*" for one in _listed(members.get(name))):
        yield "all of iam"


_BOTH: Final = 2


def _trusts_everybody(members: Mapping[str, Any]) -> bool:
    """Whether an account trusts every holder of a token of an issuer that strangers have accounts at, too."""
    condition = members.get("attributecondition")
    if isinstance(condition, str) and _is_always_true(condition):
        return True
    principal = members.get("principal")
    issuer = str(principal.get("Federated", "")).rpartition("oidc-provider/")[2] if isinstance(principal, dict) else ""
    if members.get("effect") != "Allow" or issuer.partition("/")[0] not in vocabulary().values["sharedissuers"]:
        return False
    asked = members.get("condition")
    tests = [one for one in (asked.values() if isinstance(asked, dict) else ()) if isinstance(one, dict)]
    subjects = [one for test in tests for name, one in test.items() if not str(name).endswith(":aud")]
    return all(_OF_ANYBODY.fullmatch(str(one)) is not None for named in subjects for one in _listed(named))


def _is_always_true(condition: str) -> bool:
    """Whether a condition in the Common Expression Language holds for every token that the issuer signs."""
    ways = [way.split("&&") for way in condition[:_LONGEST_CONDITION].split("||")]
    return any(all(_ALWAYS.fullmatch(part.strip(" ()")) is not None for part in way) for way in ways)


_LONGEST_CONDITION: Final = 2_000
_OF_ANYBODY: Final = Lazy(r"\*|[a-z_]+:\*(?:[/:].*)?")  # `repo:*/*`
_ALWAYS: Final = Lazy(
    r"(?:true|1\s*==\s*1)?|has\([\w.]{1,80}\)?|[\w.]{1,80}\s*!=\s*(?:''|\"\"|null)|size\([\w.]{1,80}\)\s*>=?\s*0|"
    r"[\w.]{1,80}\.(?:startsWith|contains|endsWith)\((?:''|\"\"|'[/:]'|\"[/:]\")|[\w.]{1,80}\.matches\(['\"]\^?\.[*+]\$?['\"]"
)


def _opened(members: Mapping[str, Any], tool: str) -> Iterator[ResourceEffect]:
    """What a member opens to everyone by being switched, or a repository by being made public."""
    for name in sorted(vocabulary().values["opens"]):
        if members.get(name) in ON:
            yield ResourceEffect("expose", "cloud-resource", "one", (name,), "", f"{name}: {members[name]}")
    for name in sorted(vocabulary().values["shuts"]):
        if members.get(name) in OFF and name in members:
            yield ResourceEffect("expose", "storage", "all", (name,), "", f"{name}: {members[name]}")
    added = members.get("valuestoadd")
    if added == "all" or (isinstance(added, list) and "all" in added):
        yield ResourceEffect("expose", "backup", "all", ("all",), "", "valuesToAdd: all")
    for name in sorted(vocabulary().values["answered"]):
        for one in _listed(members.get(name)):
            if isinstance(one, str) and one.strip() in vocabulary().values["anyhost"]:
                yield ResourceEffect("expose", "cloud-resource", "all", (one,), "", f"{name}: {one}")
    words = set(words_of(tool))
    made_public = str(members.get("visibility", "")).lower() == "public" or (
        any(name in members and members[name] in OFF for name in ("private", "isprivate"))
    )
    if made_public and words & CHANGES and words & vocabulary().values["houses"]:
        yield ResourceEffect("expose", "repository", "one", ("public",), "", "visibility: public")


def _admits(members: Mapping[str, Any]) -> bool:
    """Whether a rule of a network opens a port that administrators and databases use, or every port."""
    if "egress" in (members.get("type"), members.get("direction")) or members.get("ruleaction") == "deny":
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


# An open source and the ports that it may reach, in one rule or in what stands around it.
Members = tuple[tuple[str, Any], ...]
_MOST_RULES: Final = 600  # objects and lists of one call that are looked at
_DEEPEST: Final = 10
_INHERITED: Final = ("direction", "protocols")


def opened_networks(given: Mapping[str, Any], words: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The marks of rules that let everybody in, each with the source; `words` say what the call is about."""
    known = vocabulary()
    waiting: list[tuple[Any, Members, int]] = [(given, (), 0)]
    seen = 0
    while waiting and seen < _MOST_RULES:
        value, around, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST:
            continue
        if isinstance(value, list):
            waiting.extend((inner, around, depth + 1) for inner in value)
        elif isinstance(value, dict):
            here = tuple((plain(str(name)), inner) for name, inner in value.items())
            own = tuple(
                one for one in here if is_port(one[0]) or any(one[0] in known.members[kind] for kind in _INHERITED)
            )
            ports = any(is_port(name) for name, _ in own)
            above = (*own, *(one for one in around if not (ports and is_port(one[0]))))
            yield from _let_in(here, above, words, known)
            waiting.extend(
                (inner, above, depth + 1)
                for name, inner in here
                if isinstance(inner, (dict, list)) and name not in known.values["outward"]
            )


@remembered
def is_source(name: str) -> bool:
    """Whether a member says where something may come from, by its name in small letters."""
    members = vocabulary().members
    if name in members["sources"] or name in members["lists"]:
        return True
    rest = next((name[len(word) :] for word in _FROM if name.startswith(word)), "")
    return rest.rstrip("s46") in vocabulary().values["netparts"]


_FROM: Final = ("source", "src", "remote", "from", "peer", "client", "inbound", "ingress")


@remembered
def is_port(name: str) -> bool:
    """Whether a member says which ports, by its name in small letters."""
    return name in vocabulary().members["ports"] or (
        name.startswith(("port", "destinationport", "destport", "dstport", "localport", "publicport", "externalport"))
        and "forward" not in name
    )


_HUGE: Final = Lazy(r"(?:\d{1,3}\.){3}\d{1,3}/[1-7]")  # a network that reaches far beyond what anybody owns


def _let_in(here: Members, above: Members, words: frozenset[str], known: Vocabulary) -> Iterator[tuple[str, str]]:
    sources = [
        one
        for name, value in here
        if is_source(name)
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str)
        and (
            one.lower() in known.values["networks"]
            or _HUGE.fullmatch(one) is not None
            or (one == "*" and name not in known.members["lists"])
        )
    ]
    if not sources and "0.0.0.0" in (edges := {value for _, value in here if isinstance(value, str)}):  # noqa: S104
        sources = [one for one in edges if one == "255.255.255.255"]
    if not sources or any(name == "denied" for name, _ in here):
        return
    said = {str(value)[:_LONGEST].lower() for name, value in above if name in known.members["direction"]}
    if said & known.values["outward"]:
        return
    source = sources[0]
    yield "open-net", source
    if any(name in known.members["allowed"] for name, _ in here):
        yield "every-port", source
    above = (*above, *_below(here))
    ports = [(name, value) for name, value in above if is_port(name)]
    said_ports = [str(one) for _, value in ports for one in (value if isinstance(value, list) else [value])]
    protocols = {str(value).lower() for name, value in above if name in known.members["protocols"]}
    numbers = [number for one in said_ports for number in _NUMBER.findall(one)]
    ends = [int(number) for number in numbers if len(number) <= 5]
    whole = any(one.strip().lower() in known.values["everyport"] for one in said_ports)
    is_wide = len(ends) == _EDGES and max(ends) - min(ends) > _WIDE and _is_range(ports)
    bare = not ports and (
        not protocols.isdisjoint(known.values["everyprotocol"])
        # A rule of a firewall that names no port is one for all of them.
        or (protocols <= _OF_PORTS and not words.isdisjoint(known.members["firewalls"]))
    )
    if bare or whole or is_wide:
        yield "every-port", source
    elif any(number in known.values["adminports"] for number in numbers):
        yield "admin-port", source


def _below(here: Members) -> Iterator[tuple[str, Any]]:
    """The members of the objects that a rule holds, one level down: `allowed: [{ports: [443]}]`."""
    for _, value in here:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield from ((plain(str(name)), inner) for name, inner in one.items())


_LONGEST: Final = 160  # characters of a value that says in which direction a rule is
_OF_PORTS: Final = frozenset({"tcp", "udp", "6", "17"})
_NUMBER: Final = Lazy(r"\d+")
_WIDE: Final = 1_000
_EDGES: Final = 2


def _is_range(ports: Sequence[tuple[str, Any]]) -> bool:
    """Whether two numbers are the ends of a range, and no list of two ports."""
    return len(ports) > 1 or any(
        isinstance(value, dict) or (isinstance(value, str) and ("-" in value or ":" in value)) for _, value in ports
    )


# What objects of files do by their members


Test = tuple[str, str]  # the name of a member, and its value
_Known = tuple[FileAttribute, tuple[Test, ...], tuple[Test, ...], tuple[Test, ...]]


@cache
def _attributes() -> tuple[Mapping[str, list[_Known]], list[_Known]]:
    """What members say, by their names, and what those say whose names are patterns."""
    exact: dict[str, list[_Known]] = {}
    wild: list[_Known] = []
    for one in (one for file in builtin_resources() for one in file.attributes):
        says, beside, unless = map(_tests, (one.says, one.beside, one.unless))
        named = {name for name, _ in says}
        for name in named:
            own = tuple(test for test in says if test[0] == name)
            (wild if "*" in name else exact.setdefault(name, [])).append((one, own, beside, unless))
    return exact, wild


def _tests(texts: Sequence[str]) -> tuple[Test, ...]:
    """Conditions as names with one value each, where several values are given."""
    named = [text.partition("=")[::2] for text in texts]
    return tuple([(name, value) for name, values in named for value in values.split("|")])


def _holds(tests: Sequence[Test], said: Sequence[Test]) -> str:
    """The first member that passes one of some tests, as text; empty for none."""
    for name, wanted in tests:
        for member, value in said:
            if (value in _SWITCHED[wanted] if wanted in _SWITCHED else glob_match(wanted, value)) and glob_match(
                name, member
            ):
                return f"{member}={value}"
    return ""


_SWITCHED: Final = {
    "on": frozenset({"true", "on", "yes", "enabled", "enable", "1"}),
    "off": frozenset({"false", "off", "no", "disabled", "disable", "none", "0", "suspended"}),
}


def stated(path: str, document: Any) -> Iterator[ResourceEffect]:
    """What the objects of a file, or of what a tool is given, open, give away or no longer guard."""
    for mark, source in opened_networks({"file": document}, frozenset()):
        if mark != "open-net":
            yield ResourceEffect("expose", "cloud-resource", "one", (source,), "", source)
    exact, wild = _attributes()
    tried = _TRIED.search(path) is not None
    waiting: list[tuple[Any, str, tuple[Test, ...], tuple[Test, ...], int]] = [(document, path, (), (), 0)]
    seen = 0
    while waiting and seen < _MOST_RULES:
        value, above, around, beside_it, depth = waiting.pop()
        seen += 1
        if isinstance(value, list):
            waiting.extend((one, above, around, beside_it, depth) for one in value if isinstance(one, (dict, list)))
        elif isinstance(value, dict) and depth <= _DEEPEST:
            said = tuple(_said(value))
            kinds = [inner for name, inner in value.items() if name in _KINDS and isinstance(inner, str)]
            chain = " ".join((above, *kinds)).lower()[:_LONGEST_CHAIN]
            letters = _DIVIDES.sub("", chain)
            parts = _VERSION.sub("", chain).replace("/", " ").split()
            within = (*said, *around, *(one for inner in _below_of(value) for one in _said(inner)))
            near = tuple(one for inner in value.values() if isinstance(inner, dict) for one in _said(inner))
            known = [one for name in dict(said) for one in exact.get(name, ())]
            for one, says, beside, unless in (*known, *wild) if said else ():
                shown = _holds(says, said)
                if (
                    shown
                    and (not one.of or any(glob_match(kind, letters) for kind in one.of))
                    and (not beside or _holds(beside, within))
                    and not _holds(unless, (*within, *beside_it))
                    and not (one.spares and (tried or any(map(is_throwaway, parts))))
                ):
                    yield effect_of(one.does)._replace(evidence=shown)
            waiting.extend(
                (inner, f"{chain} {name}", (*said, *around)[:_MOST_AROUND], near[:_MOST_AROUND], depth + 1)
                for name, inner in value.items()
                if isinstance(inner, (dict, list)) and not name.startswith("x-")
            )


_TRIED: Final = Lazy(r"(?:^|/)(?:examples?|fixtures|local|samples?|templates|wrappers|_?archived)/|vagrant|molecule")
_KINDS: Final = ("", "kind", "module", "type", "Type", "resource_type")
_DIVIDES: Final = Lazy(r"[-_:.@]")
_VERSION: Final = Lazy(r"@[\d-]+(?:preview|privatepreview|beta|alpha)\b")  # `vaults@2023-07-01-preview`
_LONGEST_CHAIN: Final = 400
_MOST_AROUND: Final = 60


def _said(value: Mapping[str, Any]) -> Iterator[Test]:
    """The members of an object by plain names, with values in small letters; `{}` is an object, `()` an empty one."""
    for name, inner in value.items():
        for one in _listed(inner)[:_MOST_AROUND]:
            if isinstance(one, str) and "=" in one and " " not in one and isinstance(inner, list):  # `--insecure=true`
                option, _, given = one.partition("=")
                yield plain(option), given.lower()
            if not isinstance(one, (dict, list)):
                said = "()" if one is None else str(one).lower().replace("*", "\\*")
                yield plain(str(name)), said
                if "." in name:  # a member of what a program made: `trail.isLogging`
                    yield plain(name.rpartition(".")[2]), said
                if _OF_ENUM.fullmatch(said) is not None:  # `FunctionUrlAuthType.NONE`
                    yield plain(str(name)), said.rpartition(".")[2]
            else:
                yield plain(str(name)), "{}" if len(one) > ("" in one) else "()"
    # A setting that an object names: `{name: rds.force_ssl, value: 0}`.
    named = next((value[one] for one in _NAMING if isinstance(value.get(one), str)), "")
    named = named if "op" not in value else str(value.get("path", "")).rpartition("/")[2]  # of a change in JSON
    holder = value.get("properties", value)
    for one in _GIVING if named and isinstance(holder, dict) else ():
        if one in holder and not isinstance(holder[one], (dict, list)):
            yield plain(named), str(holder[one]).lower()


_NAMING: Final = ("name", "key", "Name", "Key", "parameterName", "ParameterName", "parameter", "variable")
_GIVING: Final = ("value", "Value", "parameterValue", "ParameterValue", "state")
_OF_ENUM: Final = Lazy(r"[a-z_][\w]*(?:\.[a-z_]\w*){1,5}")


def _below_of(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (one for inner in value.values() for one in _listed(inner)[:_MOST_AROUND] if isinstance(one, dict))
