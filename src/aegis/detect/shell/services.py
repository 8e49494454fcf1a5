"""Commands that change what others depend on: services destroyed, guards switched off, rights and software given out.

What is gone from a cloud, a cluster or a registry does not come back by another command, so such a call is
irreversible; publishing is irreversible too, because others may have fetched it. Which words mean that stands with the
programs in `data/programs` (ATT&CK T1098, T1136, T1485, T1490, T1531, T1537, T1562.008, T1578).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any, Final, Literal, NamedTuple

from aegis.core.effects import Resource
from aegis.core.patterns import Lazy
from aegis.detect.permissions import only_looks, stated
from aegis.detect.resources import place_of, words_of_resources
from aegis.detect.roles import words_of
from aegis.detect.self_running import parsed_json
from aegis.detect.shell.catalogue import Deed, builtin_programs, of_kind, uses
from aegis.detect.shell.tamper import ARMS
from aegis.detect.shell.tree import Command
from aegis.detect.shell.uses import DRY, TRIES, Did, service_resource, without_trials
from aegis.detect.shell.words import FED, NEAR_BY
from aegis.detect.tool_words import is_throwaway, vocabulary


class _Words(NamedTuple):
    """Words that must all stand in a command, in any order, and the words of which none may."""

    needs: frozenset[str]
    unless: frozenset[str]
    signal: str


def _by_name(read: Literal["letters", "parts", "plain"]) -> dict[str, tuple[_Words, ...]]:
    found = {name: tuple(_words(program.deeds, read)) for name, program in builtin_programs().items()}
    return {name: words for name, words in found.items() if words}


def _words(deeds: tuple[Deed, ...], read: str) -> list[_Words]:
    return [
        _Words(frozenset(words.split()), frozenset(deed.unless), deed.signal)
        for deed in deeds
        if deed.read == read
        for words in deed.words
    ]


_LETTERS: Final = _by_name("letters")
_PARTS: Final = _by_name("parts")
_PLAIN: Final = _by_name("plain")
_HOST_BY_H: Final = of_kind("host-option")
_CLOUDS: Final = of_kind("cloud")
_LAUNCHERS: Final = of_kind("launcher")
_MIGRATIONS: Final = of_kind("migration")
_FIRST: Final = 6  # words of a launcher among which the tool stands that it starts
_KNOWN: Final = frozenset({*_LETTERS, *_PARTS, *_PLAIN, *_CLOUDS})
_MAIN: Final = frozenset({"main", "master", "trunk", "release", "production", "prod"})
# What only the values of options tell: the whole world let in, or an account's copy handed to another.
_OPENED: Final = Lazy(
    r"(?is)\b(?:create-volume-permission|launch-permission)\s+['\"]?Add=|\boperation-type\s+add\b|"
    r"\bBlockPublic(?:Acls|Policy)=false|\bRestrictPublicBuckets=false|\ballUsers\b|\ballAuthenticatedUsers\b|"
    r"--publicly-accessible\b|"
    r"(?:authorize-security-group-ingress|firewall-rules\s+(?:create|update)|nsg\s+rule\s+create)\b.{0,400}"
    r"(?:(?:0|128)\.0\.0\.0/[01]\b|::/[01]\b|prefix(?:es)?\s+['\"]?\*)"
)
# Everybody in a policy, and that all that it says is who is refused.
_EVERYBODY: Final = Lazy(r"(?i)['\"]Principal['\"]\s*:\s*(?:['\"]\*['\"]|\{\s*['\"]AWS['\"]\s*:\s*\[?\s*['\"]\*)")
_REFUSES: Final = Lazy(r"(?i)['\"]?Effect['\"\\]*\s*:\s*['\"\\]*Deny")
_ALLOWS: Final = Lazy(r"(?i)['\"]?Effect['\"\\]*\s*:\s*['\"\\]*Allow")
_PASSES: Final = Lazy(  # the web alone, and a rule that keeps out whom it names
    r"(?i)(?:--port|tcp:|ports?=?\s*|ranges?\s+)['\"]?(?:80|443|8080|8443)\b|"
    r"\brules?\s+create\b[^'\";&|\n]*\s--(?:access|action)[\s=]deny\b(?:\s+(?:--[^a]|[^-\s]|-[^-])|\S)*\s*$"
)
# A trail that leaves out what is done to the account itself.
_UNWATCHED: Final = Lazy(
    r"(?s)put-event-selectors\b.{0,900}(?:IncludeManagementEvents['\"\\]*\s*[:=]\s*false|ReadWriteType['\"\\]*\s*[:=]\s*['\"\\]*ReadOnly)"
)
# Rights that are taken away from whoever is named, and nothing beside that.
_TAKES_RIGHTS: Final = Lazy(
    r"^\s*(?:gsutil\s+(?:-\w\s+)*(?:iam|acl)\s+ch\s+(?:-[rRf]\s+)*(?:-d\s+\S+\s+)+(?:['\"]?gs://\S+\s*)+|"
    r"gcloud(?:\s+[\w-]+)+\s+remove-iam-policy-binding\b[^;&|\n$`]*)$"
)
_HOST_POD: Final = Lazy(
    r"['\"]?(?:privileged|hostPID|hostNetwork)['\"]?\s*:\s*true|enforce=privileged|['\"]path['\"]\s*:\s*['\"]/['\"]"
)


def service_deed(command: Command) -> str:
    """Return the signal of what a command does to a service that others depend on; nothing for daily work.

    What joined options show comes first, then what paths and values show, then what plain words show.
    """
    name = command.name.lower()
    if name in _LAUNCHERS:
        tools = [(at, word.rpartition("/")[2].lower()) for at, word in enumerate(command.args[:_FIRST])]
        started = next(((at, tool) for at, tool in tools if tool in _MIGRATIONS), None)
        if started is not None:
            command, name = command._replace(name=started[1], args=command.args[started[0] + 1 :]), started[1]
    if name not in _KNOWN or (name in _MIGRATIONS and _is_of_tests(command)):
        return ""
    if _is_emulated(command) or _TAKES_RIGHTS.match(command.text):
        return ""
    command = command._replace(args=without_trials(command.args))
    words = frozenset(word.lower() for word in command.args)
    return _by_letters(name, words, command) or _by_parts(name, words, command) or _by_words(name, words, command.args)


def _by_letters(name: str, plain: frozenset[str], command: Command) -> str:
    deeds = _LETTERS.get(name)
    if deeds is None:
        return ""
    words = plain | _split_flags(command.args)
    if words & DRY or ("-h" in words and name not in _HOST_BY_H):
        return ""
    if name == "git" and "push" in words:
        return _push(command, words)
    for one in deeds:
        if one.needs <= words and not one.unless & words and (one.needs or command.args):
            return "" if _is_thrown_away(name, one, command) else one.signal
    return ""


def _is_of_tests(command: Command) -> bool:
    """Whether a command works on the database that tests are run with: `RAILS_ENV=test rails db:drop`.

    Where it is told an address, that of a database near by that was made to be thrown away.
    """
    given = [*command.variables, *((name, value) for name, _, value in (word.partition("=") for word in command.args))]
    named = [value.lower() for name, value in given if name.upper() in _ENVIRONMENTS]
    named += [value.rpartition(".")[2].lower() for name, value in given if name in _DJANGO]
    named += ["test" for name, value in given if name == "--database" and is_throwaway(value)]
    told = [NEAR_BY.match(value) for _, value in given if "://" in value]
    thrown = all(one is not None and is_throwaway(one.group(1)) for one in told)
    return thrown and bool(told or named) and _TESTS.issuperset(named)


def _is_emulated(command: Command) -> bool:
    """Whether a command for Amazon's cloud is sent to an emulator beside it: `--endpoint-url http://localhost:4566`."""
    pairs = [*command.variables, *pairwise(command.args), *(tuple(word.split("=", 1)) for word in command.args)]
    asked = [one[1] for one in pairs if one[0] in ("AWS_ENDPOINT_URL", "--endpoint-url") and len(one) > 1]
    return command.name == "aws" and bool(asked) and all(map(_EMULATOR.match, asked))


_EMULATOR: Final = Lazy(r"^https?://(?:localhost|127\.0\.0\.1|localstack)(?::\d{1,5})?/?$")
_ENVIRONMENTS: Final = frozenset(
    {"RAILS_ENV", "RACK_ENV", "MIX_ENV", "APP_ENV", "NODE_ENV", "FLASK_ENV", "--ENV", "-E"}
)
_DJANGO: Final = frozenset({"DJANGO_SETTINGS_MODULE", "--settings"})
_TESTS: Final = frozenset({"test", "testing", "tests"})
_NAMESPACES: Final = frozenset({"namespace", "namespaces", "ns", "project"})


def _is_thrown_away(name: str, deed: _Words, command: Command) -> bool:
    """Whether a cluster or server loses only what was made to be thrown away: `kubectl delete ns pr-4411`."""
    if name == "dropdb":
        names = [arg for arg in command.args if arg[:1] != "-"]
        return len(names) == 1 and _is_local(command.args) and is_throwaway(names[0])
    if "down" in deed.needs:  # of Compose
        return _is_composed_for_tests(command)
    if name not in {"kubectl", "oc"} or deed.needs.isdisjoint(_NAMESPACES):
        return False
    named = [word for word in command.args if not word.startswith("-") and word.lower() not in deed.needs]
    unasked = all(word.partition("=")[0] in _UNASKED for word in command.args if word.startswith("-"))
    return bool(named) and unasked and all(map(is_throwaway, named))


def _is_composed_for_tests(command: Command) -> bool:
    """Whether every file and project that Compose is told was made to be thrown away: `-f docker-compose.test.yml`."""
    named = [value for name, value in command.variables if name in _COMPOSED]
    for option, value in pairwise((*command.args, "")):
        joined, _, rest = option.partition("=")
        if joined in ("-H", "-c", "--host", "--context", "--project-directory", "--env-file"):
            return False
        named += [rest or value] if joined in _COMPOSED else []
    return bool(named) and all(map(is_throwaway, named)) and all(name in _COMPOSED for name, _ in command.variables)


_COMPOSED: Final = frozenset({"COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "-f", "--file", "-p", "--project-name"})


def _is_local(args: Sequence[str]) -> bool:
    return not any(arg in ("-h", "--host") or arg.startswith("--host=") or "://" in arg for arg in args)


_UNASKED: Final = frozenset({"--wait", "--ignore-not-found", "--now", "--timeout", "--grace-period"})


def _by_parts(name: str, plain: frozenset[str], command: Command) -> str:
    if name not in _PARTS and name not in _CLOUDS:
        return ""
    words = frozenset(part for word in plain for part in _parts(word))
    if words & DRY:
        return ""
    for one in _PARTS.get(name, ()):
        if one.needs <= words and not one.unless & words:
            return one.signal
    if name in {"kubectl", "oc"}:
        return "shell.privilege" if {"run", "label", "debug"} & words and _HOST_POD.search(command.text) else ""
    if name == "aws" and _UNWATCHED.search(command.text):
        return "shell.weakens"
    if name in _CLOUDS and _lets_everybody(command.text) and not _PASSES.search(command.text):
        return "shell.grants"
    return ""


def _lets_everybody(text: str) -> bool:
    """Whether what a command is given lets everybody in; a policy that only refuses him does not."""
    if _OPENED.search(text) is not None:
        return True
    return _EVERYBODY.search(text) is not None and (_ALLOWS.search(text) is not None or _REFUSES.search(text) is None)


def _by_words(name: str, words: frozenset[str], args: Sequence[str]) -> str:
    if words & DRY:
        return ""
    found = next((one.signal for one in _PLAIN.get(name, ()) if one.needs <= words and not one.unless & words), "")
    given = [after for word, after in pairwise(args) if word == "--policy-document"] if found and name == "aws" else []
    return "" if given and all(only_looks(parsed_json(one)) for one in given) else found


def _push(command: Command, words: frozenset[str]) -> str:
    """Return the signal of a push that overwrites what others work on: by force, a shared branch or a whole mirror."""
    forced = bool(words & {"--force", "-f"}) or any(arg.startswith("+") for arg in command.args)
    if "--mirror" in words and forced:
        return "shell.infrastructure"
    targets = {arg.lstrip("+").rpartition(":")[2].rpartition("/")[2].lower() for arg in command.args}
    if (forced or "--delete" in words or "-d" in words) and targets & _MAIN:
        return "shell.rewrites-history"
    return ""


def _split_flags(args: tuple[str, ...]) -> frozenset[str]:
    """Return the single letters of joined short options: `-rf` is `-r` and `-f`."""
    return frozenset(
        f"-{letter}"
        for arg in args
        if arg.startswith("-") and not arg.startswith("--") and len(arg) <= 5
        for letter in arg[1:]
    )


def _parts(word: str) -> tuple[str, ...]:
    """Return a word and the names in its path, so that `repos/a/b/collaborators/eve` names collaborators."""
    return (word, *word.split("/")) if "/" in word and len(word) < 400 else (word,)


# Commands that nothing is known of: a verb says what they do, and the words beside it to what.
_DESTROYS: Final = frozenset(
    {"delete", "destroy", "terminate", "purge", "wipe", "drop", "erase", "remove", "uninstall", "nuke", "deprovision"}
)
_ENDS: Final = frozenset({"disable", "stop", "deactivate", "suspend", "bypass", "mute"})
_GIVES: Final = frozenset({"add", "new", "grant", "set", "update", "register", "invoke"})
# What scripts for attackers say that they do, which no module of an administrator has in its names, and verbs that
# undo or look for it.
_ARMED: Final = Lazy(
    rf"(?i){ARMS}|backdoor|persistence$|shellcode|keylog|keystroke|exfil(?:trat|$)|bruteforce|"
    r"(?:reverse|bind|web)(?:shell|tcp|https?|udp)|(?:dll|process|code|pe|reflective)inject|hollowing|"
    r"(?:encrypted|encoded|obfuscated)payload|vault(?:dump|grab|steal)|kerberoshash|passwordhash(?:es)?$|privatekeys$|remotewmi$"
)
_GIVE_NOTHING: Final = ("Object", "OwnerNode")  # what is only put together in memory; the machines that a role runs on
_TAKEN_FROM: Final = "from"  # what stands behind it stays
_RIGHTS: Final = frozenset({
    "role", "permission", "consent", "credential", "federated", "federation", "owner", "oauth", "delegated", "password",
    "authentication",
})  # fmt: skip
_ADMINISTRATORS: Final = frozenset({"administrator", "owner", "cluster-admin", "administratoraccess", "superuser"})
_OF_CLOUD: Final[frozenset[Resource]] = frozenset(
    {"cloud-resource", "cloud-log", "storage", "cluster", "namespace", "database", "backup"}
)
_OUTPUTS: Final = frozenset(
    {"-o", "--output", "--out", "-out", "--outfile", "--output-file", "--dest", "--destination"}
)
# What a program that nobody knows has no business to write: a person looks at it first.
_NOT_WRITTEN: Final[frozenset[Resource]] = frozenset({
    "account", "group", "startup", "service", "task", "boot", "kernel", "library", "trust", "name-resolution",
    "defence", "system-file", "program",
})  # fmt: skip
_FIRST_NAMED: Final = 4  # words before the first option among which a deed stands


def named_effects(command: Command) -> Iterator[Did]:
    """Return what a command does that nothing is known of, by its own words and by the options that every program has.

    `tool instance terminate`, `tool DeleteInstance`, `tool policy create --role Administrator`, `tool --output PATH`.
    """
    name = command.name.lower()
    if name in _SPOKEN_FOR and (name not in _CLOUDS or command.args[:1] == ("config",)):
        return
    args = command.args
    for at, arg in enumerate(args[:_MOST_OPTIONS]):
        option, sign, value = arg.partition("=")
        if option in _OUTPUTS and name not in _SPOKEN_FOR:
            target = value if sign else args[at + 1] if at + 1 < len(args) else ""
            place = place_of(target) if target[:1] in ("/", "~", "$", "%") or target[1:3] == ":\\" else None
            if place is not None and place.resource in _NOT_WRITTEN:
                yield Did("write", place.resource, "one", (target,))
    options = {arg.lower() for arg in without_trials(args[:_MOST_OPTIONS])}
    if options & DRY or "-h" in options:
        return
    first = next((at for at, arg in enumerate(args) if arg[:1] == "-"), len(args))
    said = [words_of(arg) if len(arg) < _LONGEST_NAME else () for arg in args[: min(first, _FIRST_NAMED)]]
    words = frozenset(word for one in said for word in one)
    rights = _ADMINISTRATORS | {"admin"} if "role" in words or "--role" in options else _ADMINISTRATORS
    speaks_of_rights = not (_RIGHTS - _ADMINISTRATORS | {"policy", "policies"}).isdisjoint(words) or "--role" in options
    if speaks_of_rights and rights & options and not _LOOKS & words:
        yield Did("permit", "cloud-identity", "one", (command.name,))
    known = words_of_resources()
    watching = next((known[word] for word in words if known.get(word) in ("cloud-log", "defence")), None)
    for at, one in enumerate(said):
        verb = next(iter((_DESTROYS | _ENDS).intersection(one)), "")
        if not verb:
            continue
        # The noun is the last part of the word itself, or the word beside it.
        nouns = (
            [one[-1]] if len(one) > 1 else [near[-1] for near in (said[at - 1 : at] + said[at + 1 : at + 2]) if near]
        )
        resource = next((known[noun] for noun in nouns if known.get(noun) in _OF_CLOUD), None)
        if verb in _DESTROYS and resource is not None:
            yield Did("delete", resource, "one", args[:_FIRST_NAMED])
        elif any(known.get(noun) == "account" for noun in nouns):
            yield Did("disable", "account", "one", args[:_FIRST_NAMED])
        elif watching is not None and (verb in _ENDS or any(known.get(noun) == watching for noun in nouns)):
            yield Did("disable", watching, "one", args[:_FIRST_NAMED])


# Programs that look after what others depend on: whoever deletes with them all that they list deletes all of it.
_KEEPERS: Final = of_kind("cloud") | frozenset(
    name
    for name, program in builtin_programs().items()
    if any(deed.signal == "shell.infrastructure" for deed in program.deeds)
    and not {"container-engine", "names-shell", "launcher"} & set(program.kinds)
)
_CHOOSERS: Final = frozenset({"grep", "egrep", "fgrep", "rg", "fzf"})
_CHOOSES: Final = (
    "--merged", "--no-merged", "--contains", "--points-at", "-l", "--selector", "--filter", "--filters",
    "--field-selector", "--state", "--tag", "--prefix",
)  # fmt: skip
_ENGINES: Final = of_kind("container-engine") | {"crictl", "ctr", "virsh"}
_HALTS: Final = frozenset({"destroy", "kill", "stop"})
_SWEEPS: Final = _DESTROYS | {"rm", "rb", "rmi", "del", "clean"}


def sweeps(commands: Sequence[Command]) -> Iterator[Did]:
    """Yield the deletion of all that a program lists: `helm list -q | xargs helm uninstall`."""
    listed = {
        command.name
        for command in commands
        if (command.name in _KEEPERS or command.name in _ENGINES or command.name == "git")
        and (command.pipe or command.inside)
        and _says(command.args, _LISTS if command.name != "git" else _LISTS_OF_GIT)
        and not any(arg.startswith(_CHOOSES) for arg in command.args)
        and not (command.name in _ENGINES and "-f" in command.args)
    }
    choosing = [command.args for command in commands if command.name in _CHOOSERS]
    if not listed or not all(map(_leaves_out, choosing)):
        return
    if choosing and any(not _SHORT_LIVED.isdisjoint(command.args) for command in commands):
        return
    for command in commands:
        args = command.args
        at = next((at for at, arg in enumerate(args) if arg in listed), -1) if command.name in FED else -1
        fed = command.name in listed and any(arg[:1] == "$" or arg[:2] == '"$' for arg in args)
        if "git" in listed and (at >= 0 or fed) and "push" in args and not _DELETES_REFS.isdisjoint(args):
            yield Did("delete", "repository", "many", args[:_FIRST_NAMED])
        elif (
            (at >= 0 or fed)
            and "git" not in args[at : at + 1]
            and _says(args[at + 1 :], _SWEEPS if listed.isdisjoint(_ENGINES) else _HALTS)
            and not _says(args[at + 1 :], _LOOKS)
        ):
            yield Did("delete", "cloud-resource", "all", args[:_FIRST_NAMED])


def stops_found(commands: Sequence[Command]) -> Iterator[Did]:
    """Yield the end of guards whose processes are looked up by name: `ps aux | grep falcon | xargs kill`."""
    if not any(_kills_found(command) for command in commands):
        return
    for command in commands:
        if command.name in _FINDERS and (command.pipe or command.inside):
            for name in _NAMES.findall(" ".join(command.args).replace("[", "").replace("]", "")):
                if service_resource(name, "process") == "defence":
                    yield Did("stop", "defence", "one", (name,))


def _kills_found(command: Command) -> bool:
    """Whether a command ends processes that another one names."""
    if command.name in FED:
        return "kill" in command.args
    return command.name == "kill" and any(arg.lstrip('"')[:1] in {"$", "`"} for arg in command.args)


_FINDERS: Final = frozenset({"grep", "egrep", "fgrep", "rg", "pgrep", "pidof", "awk", "gawk"})
_NAMES: Final = Lazy(r"[\w.-]{3,64}")
_LISTS_OF_GIT: Final = frozenset({"for-each-ref", "ls-remote", "branch", "tag"})
_DELETES_REFS: Final = frozenset({"--delete", "-d"})
_SHORT_LIVED: Final = frozenset({"pod", "pods", "po", "job", "jobs", "rs", "replicasets", "events"})


def _leaves_out(args: Sequence[str]) -> bool:
    """Whether a search for lines passes on all but a few: `grep -v kube-system`."""
    return any((arg[:1] == "-" and arg[1:2] != "-" and "v" in arg) or arg == "--invert-match" for arg in args)


def _says(args: Sequence[str], words: frozenset[str]) -> bool:
    """Whether one of the words before the first option is among `words`, or a part of one is: `delete-bucket`."""
    behind = [arg for arg in args[:_MOST_OPTIONS] if arg[:1] not in "-$" and len(arg) < _LONGEST_NAME][:_FIRST_NAMED]
    return any(not words.isdisjoint((arg, *words_of(arg))) for arg in behind)


_LOOKS: Final = frozenset({"list", "get", "describe", "show", "ls"})
_LISTS: Final = _LOOKS | {"ps", "search"}
_MOST_OPTIONS: Final = 64  # words of a command that are looked at
_LONGEST_NAME: Final = 64  # characters of a word that is taken for a deed
_SPOKEN_FOR: Final = frozenset({*_LETTERS, *_PARTS, *_PLAIN, *uses()})


def cmdlet_effects(name: str, args: Sequence[str] = (), *, every: bool | None = False) -> Iterator[Did]:
    """Return what a command of PowerShell does that nothing is known of, by the words that its capitals tell apart.

    `every` says that what it is handed was listed as a whole; nothing that one was named there.
    """
    verb, dash, noun = name.partition("-")
    verb = verb.lower()
    if not dash or noun[:1].islower() or any(arg.lower() in TRIES for arg in args):
        return
    if verb not in vocabulary().values["psdisarms"] and _ARMED.search(noun[:_LONGEST_NAME]) is not None:
        yield Did("execute", "code", "one", (name,))
    known, takes = vocabulary().values, verb in vocabulary().values["pstakesaway"]
    if not takes and verb not in _GIVES:
        return
    bare = _OF_MODULE.sub(r"\1", noun)
    forced = every or (every is False and any(arg.lower().startswith(("-force", "-confirm:$f")) for arg in args))
    is_own = bare.lower().endswith(tuple(known["psownthings"]))
    if forced and takes and not is_own and any(arg.startswith(("$_", "$?")) for arg in args):
        yield Did("delete", "cloud-resource", "all", (name,))
    words = list(takewhile(_TAKEN_FROM.__ne__, words_of(bare)[bare == noun :]))  # the first one is that of its module
    if verb in _GIVES:
        of_cloud = bare != noun or noun.startswith("Az")
        for effect in stated("", {bare: _parameters(args)} if of_cloud else {}):
            yield Did(effect.verb, effect.resource, effect.scope, (name,))
        if not noun.endswith(_GIVE_NOTHING) and not _RIGHTS.isdisjoint(words):
            yield Did("permit", "cloud-identity", "one", (name,))
        return
    for word in words:
        resource = words_of_resources().get(word)
        if resource is not None and resource in _OF_CLOUD:
            yield Did("delete", resource, "one", (name,))
        elif resource == "cloud-identity" or word in _RIGHTS:
            yield Did("permit", "cloud-identity", "one", (name,))
        elif resource in ("account", "defence"):
            yield Did("disable", resource, "one", (name,))


# What the nouns of modules begin with whose names are put before them in capitals (AWS, Veeam, VMware, Teams, NetApp).
_OF_MODULE: Final = Lazy(
    r"^(?:ACM|ASA?|BAK|CF[GN]|CT|CW[EL]?|DDB|DMS|EBS?|EC[2RS]|EFS|EKS|ELB2?|EMR|ES|GD|IAM|KMS|LM|MG[AN]?|MSK|ORG|R53|RDS(?:DB)?|RS|S3|SEC|SES|SHUB|SNS|SQS|SSM|STS|WAF2?|VBR|VBO|VM|SPO|CM|SC|OB|IIS|PnP|Pfa2?|Nc|Cs|Dba|Dfsn|GCE|GCS|OCI|HCX|NSX|XD)([A-Z])"
)


def _parameters(args: Sequence[str]) -> dict[str, Any]:
    """The parameters of a command of PowerShell as the members of an object that it makes or changes."""
    members: dict[str, Any] = {}
    for arg, after in pairwise([*args[:_MOST_OPTIONS], "-"]):
        if arg[:1] == "-" and len(arg) > 1:
            name, sign, value = arg[1:].partition(":")
            value = value if sign else "$true" if after[:1] == "-" else after
            if name.lower() not in vocabulary().values["psordinary"]:
                members[name] = value.lower() == "$true" if value.lower() in ("$true", "$false") else value
    return members
