"""What a call does by the members of its arguments: manifests, bodies of container APIs, deletions by name or by query.

Such a call has no text that anything parses: what it does stands in the names and values of its members. A tool's name
alone says nothing here; a resource that it deletes is named by one of its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final

from aegis.core.effects import EffectScope, ResourceEffect
from aegis.core.json import escape
from aegis.core.patterns import Lazy
from aegis.detect.containers import client_commands, of_cluster, of_container
from aegis.detect.document_stores import changes_all, database_command, expires, own_accounts, stored
from aegis.detect.endpoints import ALL, OFF, ON, is_everything, of_request, only_excludes, patched, plain
from aegis.detect.line_files import TERRAFORM, parsed_blocks
from aegis.detect.permissions import CHANGES, TO_EVERYBODY, TRUST, given_rights, stated
from aegis.detect.queries import mutations_of, query_effects, with_parameters
from aegis.detect.quick import one_of
from aegis.detect.resources import words_of_resources
from aegis.detect.roles import words_of
from aegis.detect.self_running import parsed_json, parsed_yaml
from aegis.detect.tool_deeds import Told, speaks, tool_deeds
from aegis.detect.tool_marks import in_trial_store, thrown_away
from aegis.detect.tool_words import vocabulary

MOST_MEMBERS: Final = 2_000  # of one call that are looked at
_DEEPEST: Final = 24
_DELETES: Final = frozenset({
    "delete", "destroy", "drop", "purge", "remove", "terminate", "wipe", "truncate", "deprovision", "nuke", "erase",
    "teardown", "uninstall", "prune", "decommission", "obliterate",
})  # fmt: skip
# Members by which a tool is told which one, and those that select several.
_NAMED: Final = frozenset({
    "name", "names", "namespace", "id", "ids", "identifier", "database", "db", "schema", "bucket", "cluster", "table",
    "collection", "index", "target", "resource", "resourcename", "arn", "instanceids", "project", "stack", "key",
    "snapshot", "volume", "backup", "trail", "stackname", "bucketname", "clustername", "databasename", "tablename",
    "collectionname", "indexname", "instanceid", "snapshotid", "volumeid", "trailname", "dbinstanceidentifier",
    "namespacename", "dbname", "projectid", "vmname", "resourcegroup", "resourcegroupname", "repo",
    "repository", "release", "releasename",
})  # fmt: skip
_KINDS: Final = ("resourcetype", "kind", "objecttype", "resource", "what")
_SELECTS: Final = frozenset({"filter", "query", "selector", "where", "q", "criteria", "match", "condition", "body"})
_FORCES: Final = frozenset({"force", "recursive", "cascade", "purge", "skipfinalsnapshot", "deleteall", "all"})
# What one of must stand in a call whose members are worth a walk; the names of members among it.
may_tell: Final = one_of(
    r"(?i)privileged|\babsent\b|attributecondition|federated|notaction|pod-security|networkpolicy|persistentvolumeclaim|\bdevices\b|driver_?opts|\bpid\b|hostpath|hostpid|hostnetwork|hostipc|hostconfig|\bbinds\b|capadd|cap_add|pidmode|pid_mode|usernsmode|security_?opt|"
    r"cluster-admin|0\.0\.0\.0/0|cidr_|source_ranges|source_address|::/0|allusers|allauthenticatedusers|public-read|system:(?:anonymous|(?:un)?authenticated|masters)|"
    r"match_all|delete_by_query|delete_?many|administratoraccess|roles/owner|\bdelete\b|\$where|\$function|\$accumulator|skip_?final_?snapshot|"
    r"docker\.sock|\bstatement\b|forward|\bbcc|blindcopy|redirect_?to|\bvolumes\b|\bverbs\b|principal|public|dropdatabase|\bdrop\b|\bdeletes\b|\bupdates\b|droptarget|\bdest\b|cgroup_?rules|"
    r"\$out|\$merge|remove_index|expireafterseconds|collaborators|/keys\b|read_only|visibility|createuser|grantroles|"
    r"redirect_?ur[il]|callback_?url|\bcallbacks\b|web_?origins|allowed_?(?:origins|callback|redirect)|reply_?urls|name_?servers|transfer_?lock|"
    r"notprincipal|\blocked\b|auth_?code|is_?private|app_?role_?id|v=spf1|values_?to_?add|"
    r"userpassword|unicodepwd|pwdhistory|admpwd|mslaps|sambantpassword|managedpassword|krbprincipalkey|dbcspwd|"
    r"LD_PRELOAD|LD_AUDIT|DYLD_INSERT|NODE_OPTIONS|BASH_ENV|PYTHONSTARTUP|PERL5OPT|RUBYOPT|JAVA_(?:TOOL_)?OPTIONS|GIT_SSH_COMMAND|"
    r"range_?end|showcredentials|system\.users|pg_shadow|pg_authid|sql_logins|system_auth|\buser\$|\bmysql\b|global_priv|loadbalancer|sourcerepos|aggregationrule|ssh-?keys|is-?_?destroy|fn::|!(?:select|join|sub|if|findinmap)\b|GIT_EXTERNAL_DIFF|PROMPT_COMMAND|STARTUP_HOOKS",
    # Statements that stand where texts for people may.
    r"(?i)\|\s*delete\b|<delete>|emptyrecyclebin|\bdelete\s+\[|credentials?provider|\bjenkins\b|hudson\.|\bcapabilities\b",
)
_STATEMENT: Final = 1
_IN_STORES: Final = frozenset({"record", "table", "database"})  # that a store for trying things out holds


# Text that is a manifest: of a cluster, of a set of containers, of a container API, of a policy.
_MANIFEST: Final = one_of(
    r"(?m)^\s*apiVersion:|^\s*(?:-\s*)?hosts:|^\s*services:\s*$|\"(?:apiVersion|HostConfig|Statement)\"\s*:|^\s*(?:Statement|Resources):|\"(?:match_all)\"|(?m)^\s*resource\s+\"\w+\"|^\s*(?:\{|\[\s*\{)\s*\""
)
_WHOLE: Final = ("mount /", "0.0.0.0/0", TO_EVERYBODY, TRUST)
_MOST_DOCUMENTS: Final = 16


def structured_effects(
    tool: str, arguments: Mapping[str, Any], together: str, *, to_files: bool, deed: str = ""
) -> list[Told]:
    """The effects that members of a call show; `together` are its strings, names included, and `deed` its words.

    Text that holds a manifest is read as one, but for what is only written `to_files`.
    """
    deed = deed or deed_of(tool, arguments)
    found = list(_deleted(deed, arguments)) if _may_delete(deed) else []
    names = {name.lower().replace("_", "") for name in arguments}
    if not names.isdisjoint(_SPARES):
        found.extend(Told(f"/{escape(name)}", effect) for name, effect in changes_all(arguments, deed))
    requests = not names.isdisjoint(_OF_REQUEST)
    changes = mutations_of(arguments) if "mutation" in together else []
    if speaks(tool) or requests or changes or not names.isdisjoint(_ACTIONS):
        found.extend(tool_deeds(tool, arguments, changes))
    if found and in_trial_store(arguments):
        found = [one for one in found if one.effect.resource not in _IN_STORES]
    for change in changes:
        deleted = _deleted(change.field, change.given) if _may_delete(change.field) else ()
        found.extend(Told(change.pointer, one.effect) for one in (*deleted, *_told(change.given, change.field)))
        if not change.field:
            found.append(Told(change.pointer, _UNREAD))
    if not vocabulary().values["builders"].isdisjoint(words_of(tool)):
        texts = [one for one in arguments.values() if isinstance(one, str) and ("\n" in one or "{" in one)]
        given = [[one for one in _documents(text) if one] or [parsed_blocks(text)] for text in texts]
        found.extend(Told("", effect) for effect in stated(tool, [arguments, *given]))
    telling = may_tell(together)
    if _FUNCTION in together:
        arguments = {
            name: _settled(value, _defaults(value, arguments)) if isinstance(value, dict) else value
            for name, value in arguments.items()
        }
    where = _asked_of(arguments) if requests else ""
    if requests or telling or _METHOD in together:
        for pointer, value in _objects(arguments):
            if pointer and "method" in value and any(name in value for name in _ADDRESSES):  # one request of a batch
                found.extend(Told(f"{pointer}{one.pointer}", one.effect) for one in tool_deeds(tool, value))
            found.extend(Told(pointer, effect) for effect in _of_object(value, deed + where))
            found.extend(Told(pointer, effect) for effect in (*stored(value, arguments), *expires(value, arguments)))
            for name, inner in value.items():
                for text in inner if isinstance(inner, list) else [inner]:
                    if not isinstance(text, str):
                        continue
                    joined = with_parameters(text, arguments)
                    if (_STATEMENT in telling or joined != text) and not to_files:
                        found.extend(Told(f"{pointer}/{escape(str(name))}", one) for one in query_effects(joined))
                    if _MANIFEST(text):
                        told = _of_manifest(f"{pointer}/{escape(str(name))}", text, tool, arguments)
                        # What is only written is a document still, unless it hands over a machine or a cluster.
                        found.extend(one for one in told if not to_files or one.effect.evidence.endswith(_WHOLE))
    known = vocabulary()
    if not to_files and not (
        known.values["driving"].isdisjoint(words_of(tool)) and names.isdisjoint(known.members["handles"])
    ):
        steps = together[:_LONGEST_STEPS]
        if _SOMEWHERE.search(steps) is not None and _TRIED.search(steps) is None:
            found.extend(Told("", one) for one in query_effects(steps, steps=True))
    return found


_LONGEST_STEPS: Final = 4_096
# Pages that are named, a method of the protocol of browsers, and pages of trials, where people press what they build.
_SOMEWHERE: Final = Lazy(r"\w://|\babout:\w|\b[A-Z][A-Za-z]+\.[a-z]\w+\b")
_TRIED: Final = Lazy(
    r"(?i)\bhttps?://(?:localhost|127\.|0\.0\.0\.0|\[::1\]|10\.|192\.168\.|(?:[\w-]+\.)*"
    r"(?:test|tests|staging|dev|qa|sandbox|demo|preview|local|e2e)(?:[.:/]|\b-))|\btest (?:user|account)|\blocalhost\b"
)


def _asked_of(arguments: Mapping[str, Any]) -> str:
    """The last words of the address that a request goes to, which say what it is about as the name of a tool does."""
    url = next((value for name in _ADDRESSES if isinstance(value := arguments.get(name), str)), "")
    rest, _, last = url.partition("?")[0].rstrip("/").rpartition("/")
    if last.startswith(_UNKNOWN):  # one of what the part before it names
        last = f"{rest.rpartition('/')[2]} {last}"
    return f" {last[:_LONGEST_DEED]}"


_SPARES: Final = frozenset({
    "args", "condition", "criteria", "filter", "filterbyformula", "filterexpression", "filters", "query", "selector",
    "where",
})  # fmt: skip
_UNREAD: Final = ResourceEffect("write", "record", "all", (), "", "a mutation that is too long to be read")
_METHOD: Final = "\nmethod\n"  # the name of a member
_UNKNOWN: Final = "VALUE"  # stands in an address for what a program puts there
_ADDRESSES: Final = ("url", "uri", "endpoint", "path")


def _told(arguments: Mapping[str, Any], deed: str) -> list[Told]:
    """What every object of some arguments does."""
    return [Told(pointer, effect) for pointer, value in _objects(arguments) for effect in _of_object(value, deed)]


_ACTIONS: Final = (
    "action", "operation", "op", "verb", "method", "command", "mode", "call", "rpc", "fn", "request", "api",
)  # fmt: skip
_OF_REQUEST: Final = frozenset({"url", "uri", "endpoint", "httpmethod", "method", "http", "route"})


def deed_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """What a call does in words: the tool's name, behind the member that says which of its deeds is asked for."""
    for name in _ACTIONS:
        value = arguments.get(name)
        if (
            isinstance(value, str)
            and value.replace("_", "").replace("-", "").replace(".", "").isalpha()
            and len(value) < _LONGEST_DEED
        ):
            above, _, last = value.rpartition(".")  # `compute.instances.delete`
            return " ".join(filter(None, (last, above, tool)))
    return tool


_LONGEST_DEED: Final = 48


@lru_cache(maxsize=8_192)
def _may_delete(tool: str) -> bool:
    return not _DELETES.isdisjoint(words_of(tool)) or tool.lower().startswith(("flush", "deletemany"))


def _deleted(tool: str, arguments: Mapping[str, Any]) -> Iterator[Told]:
    """What a tool that deletes deletes: named by one of its arguments, or selected by one that selects all."""
    words = words_of(tool)
    known = words_of_resources()
    resource = next((known[word] for word in reversed(_behind_verb(words)) if word in known), None)
    members = {plain(str(name)): (str(name), value) for name, value in arguments.items()}
    kind = next((members[name][1] for name in _KINDS if name in members), None)
    if resource is None and isinstance(kind, str):  # `kubectl_delete` of a namespace: the kind is an argument
        resource = known.get(kind.lower())
    selected = next(
        (members[name] for name in sorted(_SELECTS & members.keys()) if is_everything(members[name][1])), None
    )
    if selected is not None and (resource is None or resource in ("table", "database")) and not _has_plain_name(words):
        told = ResourceEffect("delete", "record", "all", (selected[0],), "", f"{tool} {selected[0]}")
        yield Told(f"/{escape(selected[0])}", told)
        return
    wild = sorted(name for name, (_, value) in members.items() if _names_all(value))
    if resource == "account" and wild:
        written = members[wild[0]][0]
        yield Told(f"/{escape(written)}", ResourceEffect("disable", "account", "all", ("all",), "", f"{tool} all"))
    if "query" in words and any(only_excludes({"query": members[name][1]}) for name in _SELECTS & members.keys()):
        yield Told("/query", ResourceEffect("delete", "table", "many", (), "", f"{tool} of all but some"))
    if resource is None or resource in ("account", "cloud-identity") or _SELECTS & members.keys():
        return
    for name in wild or sorted(_NAMED & members.keys()):
        written, value = members[name]
        values = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str) and one]
        if values:
            every = any(one.lower() in ALL for one in values) or any(
                members[force][1] in (True, "true", "all") for force in _FORCES & members.keys()
            )
            if resource in _MADE_ANEW and not every and thrown_away(tool, arguments):
                return
            scope: EffectScope = "all" if every else "many" if len(values) > 1 else "one"
            told = ResourceEffect("delete", resource, scope, tuple(values), "", f"{tool} {values[0]}")
            yield Told(f"/{escape(written)}", told)
            return
    if "prune" in words or members.get("all", ("", False))[1] in (True, "true"):  # whatever there is of it
        yield Told("", ResourceEffect("delete", resource, "many", (), "", tool))


def _behind_verb(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that say what is deleted: those behind the verb, if there are any."""
    at = next((at for at in range(len(words) - 1, -1, -1) if words[at] in _DELETES), len(words))
    return tuple([word for word in words[at + 1 :] if word not in _REACHES]) or words


_REACHES: Final = frozenset(
    {"all", "many", "batch", "bulk", "by", "query", "one", "force", "forever", "permanently", "now"}
)


# What is made and thrown away again all day, where its name says so.
_MADE_ANEW: Final = frozenset({"namespace", "cloud-resource", "storage", "table", "database", "cluster"})


def _names_all(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return any(isinstance(one, str) and one.lower() in ALL for one in listed)


def _has_plain_name(words: tuple[str, ...]) -> bool:
    """Whether a tool deletes one thing by its name: `delete_one`, `remove_item`."""
    return not {"one", "item", "row", "key"}.isdisjoint(words)


def _objects(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of a call with its pointer, the outermost first."""
    waiting: list[tuple[str, Any, int]] = [("", arguments, 0)]
    seen = 0
    while waiting and seen < MOST_MEMBERS:
        pointer, value, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST:
            continue
        if isinstance(value, dict):
            put = patched(value)
            if put is not None:
                yield f"{pointer}/value", {put.name: put.value}
            yield pointer, value
            waiting.extend(
                (f"{pointer}/{escape(str(name))}", inner, depth + 1)
                for name, inner in value.items()
                if isinstance(inner, (dict, list))
            )
        elif isinstance(value, list):
            waiting.extend(
                (f"{pointer}/{at}", inner, depth + 1)
                for at, inner in enumerate(value[:MOST_MEMBERS])
                if isinstance(inner, (dict, list))
            )


_SWITCHED_ON: Final = Lazy(r"(?m)^[\s-]*\"?(\w{1,40})\"?\s*:\s*true\s*(?:#.*)?$")
_FUNCTION: Final = "Fn::"
_PARAMETER: Final = Lazy(r"\$\{([\w:.]{1,64})\}")


def _settled(value: Any, known: Mapping[str, Any], depth: int = 0) -> Any:
    """A template of CloudFormation with what its functions make of constants and of parameters that are known."""
    if depth > _DEEPEST or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        return [_settled(one, known, depth + 1) for one in value]
    inner = {name: _settled(one, known, depth + 1) for name, one in value.items()}
    if len(inner) != 1:
        return inner
    ((name, given),) = inner.items()
    if name == "Ref":
        return known.get(given, inner) if isinstance(given, str) else inner
    return _made(name.removeprefix(_FUNCTION), given, known) if name.startswith(_FUNCTION) else inner


def _made(function: str, given: Any, known: Mapping[str, Any]) -> Any:
    """What a function makes; what it is given where that is not known, so that every one of its choices is read."""
    match function, given:
        case "Select", [(str() | int()) as number, [*choices]] if str(number) in map(str, range(len(choices))):
            return choices[int(number)]
        case "Join", [str(sign), [*parts]] if all(isinstance(part, str) for part in parts):
            return sign.join(parts)[:_LONGEST_TEXT]
        case "Sub", ([str(text), {}] | str(text)):
            own = given[1] if isinstance(given, list) else {}
            own = {**known, **own}
            return _PARAMETER.sub(lambda match: str(own.get(match.group(1), match.group()))[:_LONGEST_DEED], text)
    return given


_LONGEST_TEXT: Final = 4_096


def _defaults(template: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a template: what its call gives for them, else what it says that they are."""
    declared = template.get("Parameters")
    known = {
        name: one["Default"]
        for name, one in (declared.items() if isinstance(declared, dict) else ())
        if isinstance(one, dict) and "Default" in one
    }
    given = next((arguments[name] for name in ("parameters", "Parameters") if name in arguments), None)
    if isinstance(given, list):
        given = {str(one.get("ParameterKey")): one.get("ParameterValue") for one in given if isinstance(one, dict)}
    return {**known, **given} if isinstance(given, dict) else known


def _documents(text: str) -> list[Any]:
    """The documents of a manifest that is given as text."""
    if TERRAFORM.search(text) is not None:
        return [parsed_blocks(text)]
    given = text.split("\n---", _MOST_DOCUMENTS)
    documents = [
        parsed_json(document) if document.lstrip().startswith("{") else parsed_yaml(document)
        for document in given[:_MOST_DOCUMENTS]
    ]
    # Of what is too long to be parsed, what is switched on line by line.
    unread = [document for document, value in zip_longest(given, documents) if value is None]
    return [*documents, *(dict.fromkeys(_SWITCHED_ON.findall(document), True) for document in unread)]


def pod_commands(arguments: Mapping[str, Any]) -> Iterator[str]:
    """What the containers of a call's manifests ask of servers."""
    for _, value in _objects(arguments):
        yield from client_commands(value)
        for text in value.values():
            if isinstance(text, str) and "ontainers" in text and _MANIFEST(text):
                for _, inner in _objects({"documents": _documents(text)}):
                    yield from client_commands(inner)


def _of_manifest(pointer: str, text: str, tool: str, arguments: Mapping[str, Any]) -> Iterator[Told]:
    """What a manifest does that is given as text, of JSON or YAML."""
    documents = _documents(text)
    for value in [one for document in documents for one in (document if isinstance(document, list) else [document])]:
        if isinstance(value, dict):
            if "Resources" in value:
                value = _settled(value, _defaults(value, arguments))
            if "services" in value:  # of a composition: what stands there to be merged was
                value = {name: inner for name, inner in value.items() if not name.startswith("x-")}
            for effect in stated(tool, value):
                yield Told(pointer, effect)
            for _, inner in _objects(value):
                for effect in _of_object(inner, tool):
                    yield Told(pointer, effect)


def _of_object(value: Mapping[str, Any], tool: str) -> Iterator[ResourceEffect]:
    """What the members of one object do."""
    members = {plain(str(name)): inner for name, inner in value.items()}
    yield from _takes_away(members)
    yield from of_container(members)
    yield from of_cluster(members)
    if not _OF_MAIL.isdisjoint(words_of(tool)):
        yield from _forwards(members)
    yield from given_rights(members, tool)
    yield from _of_names(members, tool)
    yield from _proves(members)
    yield from own_accounts(members, tool)
    yield from _loads(members)
    yield from database_command(members)
    yield from of_request(members, tool, deletes=_may_delete(tool))


def _takes_away(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """What a run of Terraform destroys."""
    if members.get("isdestroy") in ON and members.get("planonly") is not True:
        yield ResourceEffect("delete", "cloud-resource", "all", (), "", "is-destroy: true")


# Members that keep a name with its owner, and what gives it away.
_LOCKS: Final = ("locked", "transferlock", "registrarlock", "domainlock", "transferlocked")
_GIVES_AWAY: Final = ("exposeauthcode", "revealauthcode")
_ZONES: Final = frozenset({"domain", "domains", "registrar"})


def _of_names(members: Mapping[str, Any], tool: str) -> Iterator[ResourceEffect]:
    """Whether a name of the network is let go, answered by other servers, or may be written by everybody in letters."""
    for name, value in members.items():
        if isinstance(value, str) and value.lstrip('" ')[:6].lower() == "v=spf1" and "+all" in value.lower():
            yield ResourceEffect("write", "name-resolution", "all", (), "", f"{name}: everybody may send as this name")
    words = set(words_of(tool))
    if not words & _ZONES:
        return
    if any(members.get(name) in ON for name in _GIVES_AWAY) or any(members.get(name) in OFF for name in _LOCKS):
        yield ResourceEffect("write", "name-resolution", "one", (), "", "the lock of a name is taken away")
    if words & CHANGES and members.get("nameservers"):
        yield ResourceEffect("write", "name-resolution", "one", (), "", f"nameservers: {members['nameservers']}")


# Attributes of a directory that prove who somebody is.
_PROOFS: Final = frozenset({
    "userpassword", "unicodepwd", "ntpwdhistory", "lmpwdhistory", "ms-mcs-admpwd", "mslaps-password", "sambantpassword",
    "msds-managedpassword", "krbprincipalkey", "dbcspwd",
})  # fmt: skip


def _proves(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """Whether a directory is asked for what proves who somebody is."""
    asked = next((members[name] for name in ("attributes", "attrs", "properties") if name in members), None)
    for one in asked if isinstance(asked, list) else ():
        if isinstance(one, str) and one.lower() in _PROOFS:
            yield ResourceEffect("read", "credential", "many", (one,), "", f"attributes: {one}")


_VARIABLE_NAMES: Final = ("key", "name", "variable", "variablename", "envvar")
# Variables of the environment by which every program of a kind loads or runs something else first.
# Beside each stand the options by which it does; none where it always does.
_AGENTS: Final = ("-javaagent", "-agentpath", "-agentlib", "Xbootclasspath")
_LOADING: Final[Mapping[str, tuple[str, ...]]] = {
    "LD_PRELOAD": (), "LD_AUDIT": (), "DYLD_INSERT_LIBRARIES": (), "BASH_ENV": (), "PYTHONSTARTUP": (),
    "GIT_EXTERNAL_DIFF": (), "PROMPT_COMMAND": (), "DOTNET_STARTUP_HOOKS": (), "PERL5OPT": ("-M", "-d"),
    "RUBYOPT": ("-r",), "NODE_OPTIONS": ("-r", "--require", "--import", "--loader"), "JAVA_TOOL_OPTIONS": _AGENTS,
    "_JAVA_OPTIONS": _AGENTS, "JDK_JAVA_OPTIONS": _AGENTS,
}  # fmt: skip


def _loads(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """Whether a variable is set by which every program runs something else first."""
    named = next((members[name] for name in _VARIABLE_NAMES if isinstance(members.get(name), str)), "")
    options = _LOADING.get(named.upper())
    given = str(next((members[name] for name in ("value", "values", "content") if members.get(name)), ""))
    if plain(named) == "sshkeys" and given:
        yield ResourceEffect("permit", "cloud-identity", "many", (named,), "", f"{named} lets somebody in")
    if options is not None and given and (not options or any(option in given for option in options)):
        yield ResourceEffect("persist", "startup", "one", (named,), "", f"{named} loads code into every program")


# Rules of a mailbox, and members of them that name who is sent every letter from then on (ATT&CK T1114.003).
_OF_MAIL: Final = frozenset({"filter", "filters", "forwarding", "inbox", "mailbox", "rule", "rules"})
_FORWARDED: Final = (
    "forward", "forwardto", "forwardingaddress", "forwardingemail", "forwardasattachmentto", "redirectto",
    "forwardingsmtpaddress", "forwardsmtpaddress", "blindcopyto", "bccrecipients", "copyto",
)  # fmt: skip


def _forwards(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    for name in _FORWARDED:
        for _, inner in _objects({name: members.get(name)}):
            for given in inner.values():
                for one in given if isinstance(given, list) else [given]:
                    if isinstance(one, str) and "@" in one:
                        yield ResourceEffect("send", "home", "one", (one,), "", f"{name} {one}")


def asked(method: str, url: str, body: str) -> Iterator[ResourceEffect]:
    """What a request does, whoever makes it."""
    if not (method and url):
        return
    path = f"/{url.partition('://')[2].partition('/')[2]}" if "://" in url else url
    told: dict[str, Any] = {"method": method, "path": path, "tool": url}
    value = parsed_json(body) if body[:1] in ("{", "[") else None
    if value is not None:
        told["body"] = value
    elif body:
        told["body"] = body
    for _, inner in _objects(told):
        yield from _of_object(inner, "")
    if body and method != "DELETE":
        for deed in tool_deeds(_REQUEST, {"method": method, "url": url, "body": told["body"]}):
            yield deed.effect


_REQUEST: Final = "http_request"  # a tool that makes any
