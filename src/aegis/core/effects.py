"""Effects: what a call does to which resource, and to how many of them.

The five effects of the wire (`core.outcome.Effect`) say what kind of thing a call does. An effect here refines one of
them: a verb, a resource of a closed set, a scope, the values that it was parsed from and the argument they stand in.
Analysers emit them, rules and policies name them as `verb resource` or `verb resource scope`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeVar, get_args

from aegis.core.outcome import Effect

Verb = Literal[
    "read", "write", "delete", "encrypt", "execute", "send", "receive", "permit", "start", "stop", "persist",
    "escalate", "hide", "disable", "impersonate", "mine", "scan", "expose",
]  # fmt: skip
Resource = Literal[
    "file", "workspace", "home", "public-place", "system-file", "setting", "program", "library", "startup", "log",
    "history", "defence", "trust", "name-resolution", "service", "task", "process", "registry-key", "account", "group",
    "credential", "browser-data", "environment", "clipboard", "screen", "kernel", "boot", "device", "backup",
    "container", "container-host", "cluster", "namespace", "cloud-identity", "cloud-log", "cloud-resource", "storage",
    "database", "table", "record", "repository", "pipeline", "hook", "editor-task", "package", "agent-settings", "host",
    "metadata", "collector", "tunnel", "address", "secret-store", "sensor", "traffic", "code", "self",
]  # fmt: skip
EffectScope = Literal["one", "many", "all"]

# What each word means; the reference is made of these, and people read them in approvals.
VERBS: Final[Mapping[Verb, str]] = {
    "read": "gives away what is in it",
    "write": "makes or changes it",
    "delete": "destroys it or what is in it",
    "encrypt": "makes it unreadable without a key",
    "execute": "runs it",
    "send": "carries data to it",
    "receive": "fetches data from it",
    "permit": "says who may do what with it",
    "start": "sets it going",
    "stop": "brings it to a halt",
    "persist": "makes something run there later, without being asked again",
    "escalate": "gains its rights",
    "hide": "removes the traces in it",
    "disable": "switches it off or weakens it",
    "impersonate": "acts in its name",
    "mine": "computes on it for somebody else",
    "scan": "looks for weaknesses of it",
    "expose": "opens it to everyone",
}
RESOURCES: Final[Mapping[Resource, str]] = {
    "file": "a file of no particular kind",
    "workspace": "the folder that the agent works in",
    "home": "the home folder of a user",
    "public-place": "a folder whose files a server shows to everyone",
    "system-file": "a file or folder that the system is made of",
    "setting": "a setting of the system that no other word names",
    "program": "a program that is started by its name",
    "library": "code that is loaded into programs",
    "startup": "a file whose commands run by themselves when a machine or a session starts",
    "log": "a record of what happened",
    "history": "a record of the commands that a user typed",
    "defence": "a program or a setting that guards a machine",
    "trust": "the certificates and keys that a machine believes",
    "name-resolution": "the file or setting that says which address a name has",
    "service": "a program that runs in the background",
    "task": "a command that runs on a schedule",
    "process": "a running program",
    "registry-key": "a key of the Windows registry",
    "account": "an account of a machine, or the list of them",
    "group": "a group of accounts, or the rights of one",
    "credential": "a password, a key or a token, or the file of one",
    "browser-data": "the passwords, cookies or history that a browser keeps",
    "environment": "the variables of a process",
    "clipboard": "what was copied last",
    "screen": "what a person sees or types",
    "kernel": "the kernel, its modules and switches",
    "boot": "what a machine starts from",
    "device": "a disk, or memory as a device",
    "backup": "a copy that is kept for the day something is lost",
    "container": "a container or a pod",
    "container-host": "the machine below containers",
    "cluster": "a cluster and its rights",
    "namespace": "a part of a cluster with everything in it",
    "cloud-identity": "a user, a role or a key of a cloud",
    "cloud-log": "what a cloud records of what was done in it",
    "cloud-resource": "a machine, a network or another thing that a cloud runs",
    "storage": "a bucket or a disk of a cloud",
    "database": "a database or its server",
    "table": "a table, an index or a collection",
    "record": "rows or documents",
    "repository": "the history of versions",
    "pipeline": "a file whose commands run on a build server",
    "hook": "a file whose commands run at an event of a repository",
    "editor-task": "a file whose commands an editor or a shell runs when a folder is opened",
    "package": "a file whose commands run when a package is built or installed",
    "agent-settings": "what an agent is told or allowed, and the servers that it starts",
    "host": "another machine",
    "metadata": "the service that hands a cloud machine its credentials",
    "collector": "a public place that keeps whatever anybody sends to it",
    "tunnel": "a service that leads into a private network from outside",
    "address": "a machine of the Internet that is known by its number alone",
    "secret-store": "a program or a service that hands out passwords, keys or tokens",
    "sensor": "a microphone or a camera",
    "traffic": "what other programs and machines say over a network",
    "code": "a program given as text",
    "self": "Aegis",
}
# The verbs in a sentence about a call, before what `RESOURCES` says.
_SENTENCES: Final[Mapping[Verb, str]] = {
    "read": "reads", "write": "writes", "delete": "deletes", "encrypt": "encrypts", "execute": "runs",
    "send": "sends data to", "receive": "fetches data from", "permit": "changes who may do what with",
    "start": "starts", "stop": "stops", "persist": "plants a start of its own in", "escalate": "gains the rights of",
    "hide": "removes traces in", "disable": "switches off or weakens", "impersonate": "acts in the name of",
    "mine": "computes for somebody else on", "scan": "looks for weaknesses of", "expose": "opens to everyone",
}  # fmt: skip
SCOPES: Final[tuple[EffectScope, ...]] = get_args(EffectScope)
# The effect of the wire that each verb refines, where the verb alone says it; `read` is said by whoever reads.
KIND_OF: Final[Mapping[Verb, Effect]] = {
    "write": "write", "delete": "write", "encrypt": "write", "permit": "write", "persist": "write", "hide": "write",
    "disable": "write", "expose": "write", "execute": "exec", "start": "exec", "stop": "exec", "escalate": "exec",
    "mine": "exec", "send": "network", "receive": "network", "scan": "network",
}  # fmt: skip
MAX_VALUES: Final = 16  # values of one effect that are kept: bounds what a list of paths makes every reader hold


class ResourceEffect(NamedTuple):
    """One effect of a call.

    `values` are the paths, hosts or names that it was parsed from, at most `MAX_VALUES`; `path` is the JSON pointer
    of the argument that they stand in, and `evidence` the piece that shows the effect.
    """

    verb: Verb
    resource: Resource
    scope: EffectScope = "one"
    values: tuple[str, ...] = ()
    path: str = ""
    evidence: str = ""

    @property
    def name(self) -> str:
        """The words that rules match on: `delete system-file all`."""
        return effect_name(self.verb, self.resource, self.scope)

    @property
    def sentence(self) -> str:
        """What the call does, for a person: `deletes the certificates and keys that a machine believes (/etc/ssl)`."""
        named = ", ".join(value for value in self.values if value)
        every = "all of " if self.scope == "all" else ""
        return f"{_SENTENCES[self.verb]} {every}{RESOURCES[self.resource]}{f' ({named})' if named else ''}"

    @property
    def words(self) -> tuple[str, str]:
        """The words that policies see: with the scope and without it."""
        return f"{self.verb} {self.resource}", self.name


@lru_cache(maxsize=4_096)
def effect_name(verb: Verb, resource: Resource, scope: EffectScope) -> str:
    """The name of an effect, as rules and signals spell it."""
    return f"{verb} {resource} {scope}"


def names_matched(pattern: str) -> frozenset[str]:
    """The names of every effect that a pattern of a rule stands for; raises `ValueError` where a word is unknown.

    A pattern is a verb, a resource and perhaps a scope, each of them `*` or words divided by `|`:
    `delete|encrypt backup|database all`. Without a scope it stands for all three.
    """
    parts = pattern.split()
    if len(parts) not in (2, 3):
        raise ValueError(f"`{pattern}` is not a verb, a resource and perhaps a scope")
    verbs = _chosen(parts[0], VERBS, "verb")
    resources = _chosen(parts[1], RESOURCES, "resource")
    scopes = _chosen(parts[2] if len(parts) == 3 else "*", SCOPES, "scope")
    return frozenset(effect_name(verb, resource, scope) for verb in verbs for resource in resources for scope in scopes)


_Word = TypeVar("_Word", bound=str)


def _chosen(words: str, known: Iterable[_Word], what: str) -> list[_Word]:
    if words == "*":
        return list(known)
    by_word = {str(one): one for one in known}
    for word in words.split("|"):
        if word not in by_word:
            raise ValueError(f"`{word}` is not a {what}")
    return [by_word[word] for word in words.split("|")]
