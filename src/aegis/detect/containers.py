"""What manifests and the APIs of engines give to containers: the host, its folders and disks, the data of others.

The members of one object are looked at by themselves, and those of what it holds where only both together tell.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Any, Final

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.endpoints import plain
from aegis.detect.resources import place_of
from aegis.detect.tool_words import is_throwaway, letters_in, vocabulary

_RIGHTS: Final = frozenset(
    {"ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "DAC_READ_SEARCH", "DAC_OVERRIDE", "SYS_RAWIO", "NET_ADMIN", "BPF"}
)


def of_container(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """What one object gives to a container of the machine that it runs on, by its members in plain names."""
    for name in ("privileged", "hostpid", "hostipc"):
        if members.get(name) in (True, "true"):
            yield _takes_over(name, f"{name}: true")
    if members.get("hostnetwork") in (True, "true"):
        yield ResourceEffect("expose", "container-host", "one", ("hostnetwork",), "", "hostnetwork: true")
    for name in ("pidmode", "ipcmode", "usernsmode", "pid"):
        if members.get(name) == "host":
            yield _takes_over(name, f"{name}: host")
    for name in ("capadd", "add"):
        rights = members.get(name)
        if isinstance(rights, list):
            given = [str(one).upper().removeprefix("CAP_") for one in rights]
            if _RIGHTS & set(given):
                yield ResourceEffect("escalate", "container-host", "all", tuple(given), "", f"capabilities {given[0]}")
    for option in members.get("securityopt", ()) if isinstance(members.get("securityopt"), list) else ():
        if str(option).endswith(("=unconfined", ":unconfined")):
            yield ResourceEffect("disable", "defence", "one", (str(option),), "", str(option))
    rules = members.get("devicecgrouprules")
    for rule in rules if isinstance(rules, list) else ():  # of every device, or of disks
        if str(rule).startswith(("a", "b")) and "w" in str(rule).rpartition(" ")[2]:
            yield _takes_over("devicecgrouprules", f"device rule {rule}")
    for path in _of_host(members):
        place = place_of(path) if path.startswith(("/", "~", "$")) or path[1:3] == ":\\" else None
        kept = vocabulary().values["hostplaces"]
        if place is not None and place.resource in kept and (place.whole or place.resource != "home"):
            yield _takes_over(place.path, f"mount {path}")


def _takes_over(name: str, shown: str) -> ResourceEffect:
    return ResourceEffect("escalate", "container-host", "all", (name,), "", shown)


def _of_host(members: Mapping[str, Any]) -> Iterator[str]:
    """The folders and devices of the host that a container or a volume is given."""
    for name in ("binds", "volumes", "mounts", "devices"):
        listed = members.get(name)
        if isinstance(listed, dict):
            yield from map(str, listed)
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, str):
                named = dict(part.partition("=")[::2] for part in one.split(","))  # `type=bind,source=/,target=/a`
                source = named.get("source", named.get("src", one))
                yield source[:3] if source[1:3] == ":\\" else source.split(":", 1)[0]
            elif isinstance(one, dict):
                held = {plain(str(key)): inner for key, inner in one.items()}
                if str(held.get("type", "bind")) == "bind":
                    yield from (str(held[key]) for key in _SOURCES if isinstance(held.get(key), str))
    host = members.get("hostpath")
    if isinstance(host, dict) and isinstance(host.get("path"), str):
        yield host["path"]
    if isinstance(members.get("device"), str) and "bind" in str(members.get("o")).split(","):  # a volume of Docker
        yield members["device"]


_SOURCES: Final = ("source", "src", "hostpath", "pathonhost")


def of_cluster(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """What one object of a cluster no longer keeps from its pods, lets in to them, or empties of their data."""
    if _ENFORCES in members and members[_ENFORCES] in ("privileged", None):
        shown = f"pod-security.kubernetes.io/enforce: {members[_ENFORCES]}"
        yield ResourceEffect("disable", "defence", "one", (shown,), "", shown)
    spec = members.get("spec")
    if members.get("kind") == "NetworkPolicy" and isinstance(spec, dict) and not spec.get("podSelector"):
        rules = spec.get("ingress")
        if any(map(_admits_all, rules if isinstance(rules, list) else ())):
            yield ResourceEffect("expose", "cluster", "one", (), "", "NetworkPolicy from everywhere to every pod")
    noted = members.get("metadata")
    if members.get("kind") in ("Service", None) and isinstance(spec, dict) and _opens_data(spec, noted):
        yield ResourceEffect("expose", "database", "one", (), "", "a LoadBalancer from everywhere to a database")
    if isinstance(members.get("containers"), list) and isinstance(members.get("volumes"), list):
        yield from _emptied(members["containers"], members["volumes"])


_ENFORCES: Final = "podsecuritykubernetesioenforce"  # a label by which a namespace says what its pods may do


def _opens_data(spec: Mapping[str, Any], described: Any) -> bool:
    """Whether a service gives the ports of databases an address of the Internet, and names nobody who may ask there."""
    noted = str(described.get("annotations")).lower() if isinstance(described, dict) else ""
    ranges = spec.get("loadBalancerSourceRanges") or ["0.0.0.0/0"]
    from_all = spec.get("type") == "LoadBalancer" and "internal" not in noted and "/0" in str(ranges)
    return from_all and _OF_DATA.search(str(spec.get("ports"))) is not None


_OF_DATA: Final = Lazy(r"[pP]ort': ['\"]?(?:1433|1521|2379|3306|5432|5984|6379|7687|8086|9042|9092|9200|11211|27017)\b")


def _admits_all(rule: Any) -> bool:
    """Whether a rule of a policy for a network lets everything in: an empty list of sources is every source."""
    return rule is None or (isinstance(rule, dict) and not rule.get("from") and not rule.get("ports"))


# What a container does to the volumes of a pod


_MOST: Final = 32  # containers, volumes, mounts and variables of a pod that are looked at
_LONGEST: Final = 4_096  # characters of a command
_LONGEST_VALUE: Final = 256  # of a variable
_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "/bin/sh", "/bin/bash"})
_EXPANDED: Final = Lazy(r"\$(?:\((\w{1,64})\)|\{(\w{1,64})\}|(\w{1,64}))")
_SEPARATED: Final = Lazy(r"&&|\|\||[;\n|&]")


def _emptied(containers: Sequence[Any], volumes: Sequence[Any]) -> Iterator[ResourceEffect]:
    """The claims of a pod whose whole data a command of one of its containers deletes."""
    claims = {
        str(one.get("name")): str(one["persistentVolumeClaim"].get("claimName"))
        for one in volumes[:_MOST]
        if isinstance(one, dict) and isinstance(one.get("persistentVolumeClaim"), dict)
    }
    for container in containers[:_MOST] if claims else ():
        if not isinstance(container, dict):
            continue
        gone = {path for line in _lines(container) for path in _deleted(line)}
        for name, path in _named(container.get("volumeMounts"), "mountPath"):
            claim = claims.get(name)
            if claim is None or normpath(path) not in gone or is_throwaway(claim) or "cache" in letters_in(claim):
                continue
            yield ResourceEffect("delete", "storage", "one", (claim,), "", f"everything in {path} of {claim}")


def _named(listed: Any, member: str) -> list[tuple[str, str]]:
    """The names in a list of objects, each with the text that one of its members is."""
    return [
        (str(one.get("name")), one[member])
        for one in (listed[:_MOST] if isinstance(listed, list) else ())
        if isinstance(one, dict) and isinstance(one.get(member), str)
    ]


def _lines(container: Mapping[str, Any]) -> Iterator[list[str]]:
    """The commands of a container in words, its variables put in as the cluster or a shell would."""
    known: dict[str, str] = {}
    for variable, value in _named(container.get("env"), "value"):  # each may name those before it
        known[variable] = _expanded(value[:_LONGEST_VALUE], known)[:_LONGEST_VALUE]
    words = [
        _expanded(str(word)[:_LONGEST], known)
        for name in ("command", "args")
        for word in (container[name][:_MOST] if isinstance(container.get(name), list) else ())
    ]
    if words and words[0] in _SHELLS and words[-1][:1] != "-":
        for part in _SEPARATED.split(words[-1])[:_MOST]:
            try:
                yield shlex.split(part)
            except ValueError:
                continue
    else:
        yield words


def client_commands(value: Mapping[str, Any]) -> Iterator[str]:
    """The commands of the containers of a pod that ask something of servers, as they are run."""
    for name in ("containers", "initContainers"):
        listed = value.get(name)
        for container in listed[:_MOST] if isinstance(listed, list) else ():
            for line in _lines(container) if isinstance(container, dict) else ():
                if line and line[0].rpartition("/")[2] in vocabulary().values["clients"]:
                    yield shlex.join(line)


def _expanded(text: str, known: Mapping[str, str]) -> str:
    return str(_EXPANDED.sub(lambda match: known.get(next(filter(None, match.groups())), match.group()), text))


def _deleted(words: Sequence[str]) -> list[str]:
    """The folders that a command deletes everything of."""
    name = words[0].rpartition("/")[2] if words else ""
    options = {word for word in words[1:] if word.startswith("-")}
    places = [normpath(word.removesuffix("*")) for word in words[1:] if word.startswith("/")]
    recursive = name == "rm" and any(
        "r" in word.lower() for word in options if word[:2] != "--" or word == "--recursive"
    )
    return places if recursive or (name == "find" and "-delete" in options and not options & _SELECT) else []


_SELECT: Final = frozenset(
    {"-name", "-iname", "-path", "-regex", "-mtime", "-mmin", "-atime", "-ctime", "-newer", "-empty"}
)
