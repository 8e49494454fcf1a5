"""What a program asks for by a name: of a cloud by its library, of a module by looking a function up.

The libraries of a cloud are made of one description of its operations, and so is its command line: `delete_trail` of
Python, `DeleteTrailCommand` of JavaScript and `aws cloudtrail delete-trail` are one request. So what is known of the
command line in `data/programs` is known of every library; what any library ends of all that it lists is told as well.
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.endpoints import is_everything
from aegis.detect.languages.aliases import AS_FUNCTION, loaded_module
from aegis.detect.languages.bindings import called_name, left_of, right_of
from aegis.detect.languages.calls import flow
from aegis.detect.languages.followed import plain, written_out
from aegis.detect.languages.numeric import octal
from aegis.detect.languages.syntax import (
    Called,
    CodeLanguage,
    arguments_of,
    called,
    canonical,
    member_parts,
    text_of,
)
from aegis.detect.languages.values import NameScope
from aegis.detect.shell.catalogue import builtin_programs
from aegis.detect.tool_words import is_throwaway

_SERVICES: Final = (
    "iam|sts|ec2|s3|rds|kms|ssm|lambda|cloudtrail|guardduty|securityhub|secretsmanager|macie2|configservice|cloudwatch|"
    "route53|dynamodb|ecr|eks|ecs|wafv2|lightsail|redshift"
)
SPEAKS_OF_CLOUD: Final = Lazy(
    r"(?i)\bboto|\bbotocore|aws-sdk|aws_sdk|amazonaws|\bAWS\b|Amazon\.|/aws/|\baioboto|"
    rf"\[[\"'](?:{_SERVICES})[\"']\]\.|\b(?:{_SERVICES})_?(?:client|conn)\b|\bself\._?(?:{_SERVICES})\."
)
FETCHES: Final = Lazy(flow("fetches"))
# Statements that are worth a parser wherever a program hands them to a database.
_GRAVE_STATEMENT: Final = Lazy(
    r"(?i)\bdrop\s+(?:database|schema|user|role|owned)\b|\bdisable\s+trigger\b|\bsession_replication_role\b|\balter\s+(?:user|role|login|system)\b|"
    r"\bset\s+global\b|\breset\s+master\b|\bpurge\s+binary\b|\bcreate\s+(?:user|role|login)\b|\bretain\s+0\s+hours\b|"
    r"\bxp_cmdshell\b|\b(?:from|to)\s+program\b|\binto\s+(?:out|dump)file\b|\bgrant\s+all\b|"
    r"\bsuperuser\b|\bdisable\s+row\s+level\b|\bgrant\s[^;]{1,200}\bto\s+public\b|\bsp_configure\b|\bdbms_rls\b|"
    r"\bload_file\s*\("
)
# What is grave as well where a server's data ends by it: a file of SQLite is made anew by the program that asks.
_GRAVE_ON_SERVER: Final = Lazy(
    r"(?i)\bdrop\s+table\s+(?:[^i\s]|i[^f\s]|if\s+exists\s+\W?VALUE)\S*|\btruncate\s+(?:table\s+)?\w|^\s*(?:delete\s+from|update)\s"
)
_ASKS_SERVER: Final = Lazy(flow("server-of-rows"))
_CLOUD: Final = "aws"
_ENDINGS: Final = ("command", "request", "async", "input", "withcontext")
_PLAIN: Final = Lazy(r"[\s'\"`]+")
_CAPITAL: Final = Lazy(r"([a-z0-9])([A-Z])")
_CAPITAL_NAME: Final = Lazy(r"\b([A-Z]\w{2,20})\s*:\s*")  # of a member that no quotes stand around
_LONGEST: Final = 1_000  # characters of an argument that are compared
_MOST_OPTIONS: Final = 24
_MOST_OWNED: Final = 8  # members of a name that are looked at


def is_grave(statement: str, text: Callable[[], str]) -> bool:
    """Whether a statement of a program is worth a parser: nearly all that programs ask databases are not.

    What is only in memory is lost with the program, where it connects to nothing else.
    """
    if _GRAVE_STATEMENT.search(statement) is not None:
        return not _is_spared(statement, text())
    on_server = _GRAVE_ON_SERVER.search(statement) is not None and _ASKS_SERVER.search(text()) is not None
    return on_server and not is_for_tests(text())


def is_for_tests(text: str) -> bool:
    """Whether all that a program asks is in memory, or a database near by that was made to be thrown away."""
    hosts = {match.group(1).lower() for match in _HOSTS.finditer(text)}
    near = not any("." in host and host not in _NEAR_BY for host in hosts)
    if (_IN_MEMORY.search(text) and not _CONNECTS.search(text)) or (near and _THROWN_AWAY.search(text)):
        return True
    told = [match.groups() for match in _BASES.finditer(text)]
    names = [next(filter(None, groups)) for groups in told]
    thrown = bool(names) and all((name.isdecimal() and name != "0") or is_throwaway(name) for name in names)
    return thrown and hosts <= _NEAR_BY and (bool(hosts) or any(groups[2] for groups in told))


# The databases that a program names: by a setting, in an address, as an option.
_BASES: Final = Lazy(
    r"(?i)(?:\bdb_?name|\bdatabase|\bdb|initial catalog)[\"']?\s*(?:=>?\s*[\"']?|:\s+[\"']?|:[\"'])([\w-]{1,63})|"
    r"(?:postgres\w*|mysql\w*|mariadb|mongodb|rediss?)(?:\+\w+)?://[^\s\"'`/]{1,120}/([\w-]{1,63})|--(?:database|env)[\"']?\s*(?:=>?|,)\s*[\"']([\w-]{1,63})"
)


def _is_spared(statement: str, text: str) -> bool:
    """Whether what a statement takes away is only in memory, or near by and made to be thrown away."""
    if _IN_MEMORY.search(text) is not None and _CONNECTS.search(text) is None:
        return True
    dropped = _DROPS.match(statement)
    hosts = {match.group(1).lower() for match in _HOSTS.finditer(text)} if dropped is not None else set()
    return dropped is not None and bool(hosts) and hosts <= _NEAR_BY and is_throwaway(dropped.group(1))


_DROPS: Final = Lazy(
    r"(?i)^\s*drop\s+(?:database|schema|table)\s+(?:if\s+exists\s+)?[\"'`]?([\w-]{1,63})[\"'`]?\s*(?:cascade)?;?\s*$"
)
_HOSTS: Final = Lazy(
    r"(?i)(?:\bserver=|\bdata source=|\bhost(?:name)?[\"']?\s*(?:=>?|:)\s*[\"']?|://(?:[^\s/@\"']{1,80}@)?)([\w.-]{1,100})"
)
_NEAR_BY: Final = frozenset({"localhost", "127.0.0.1"})
_IN_MEMORY: Final = Lazy(r"(?i):memory:|\bmode=memory\b|\bjdbc:h2:mem:|\bsqlite://['\"]")
_THROWN_AWAY: Final = Lazy(flow("thrown-away"))
_CONNECTS: Final = Lazy(flow("connects"))


def is_from_afar(path: str) -> bool:
    """Whether a file of code is asked of another machine."""
    host = path.partition("://")[2] if path.startswith(("http://", "https://", "ftp://")) else ""
    return bool(host) and not host.startswith(tuple(_NEAR_BY))


def squashed(name: str) -> str:
    """A name in small letters without what joins its words, and without what a library adds to an operation's."""
    plain = name.replace("_", "")
    for ending in _ENDINGS:
        plain = plain.removesuffix(ending)
    return plain


# Operations of which only what they are given tells what they do.
_TOLD_BY_VALUES: Final = (
    "s3api put-bucket-policy", "s3api put-object-acl", "s3api put-public-access-block", "sqs set-queue-attributes",
    "ec2 authorize-security-group-ingress", "sns set-topic-attributes", "cloudtrail put-event-selectors",
    "ec2 modify-image-attribute", "rds modify-db-instance",
)  # fmt: skip


@cache
def cloud_operations() -> Mapping[str, str]:
    """The operations of a cloud that are known for what they do: the words of the command line for each."""
    program = builtin_programs()[_CLOUD]
    phrases = [words for deed in program.deeds for words in deed.words]
    phrases += [words for use in program.does for words in use.when]
    phrases += _TOLD_BY_VALUES
    found: dict[str, str] = {}
    for phrase in phrases:
        service, _, rest = phrase.partition(" ")
        operation = rest.partition(" ")[0]
        if "-" in operation and operation[0] != "-" and "*" not in service + operation and service.isalnum():
            found.setdefault(operation.replace("-", ""), f"{_CLOUD} {service} {operation}")
    for other, operation in _OF_RESOURCES.items():
        if operation in found:
            found.setdefault(other, found[operation])
    return found


# Operations of what a library gives as an object of its own, whose kind is left out of the name.
_OF_RESOURCES: Final = {"authorizeingress": "authorizesecuritygroupingress"}


# The kinds of things of a cluster, as the names of its libraries have them, whose deletion its command line judges.
_OF_CLUSTER: Final = Lazy(
    r"^delete(collection)?(?:namespaced)?(persistentvolumeclaim|persistentvolume|secret|configmap|deployment|statefulset|"
    r"daemonset|namespace|node|customresourcedefinition|clusterrole|clusterrolebinding|service|ingress|cronjob|job|pod|"
    r"replicaset|networkpolicy|storageclass|serviceaccount)(?:withhttpmessages)?$"
)


def cluster_operation(name: str) -> str | None:
    """The command line that asks a cluster what an operation of its libraries asks: `deleteNamespacedPod`."""
    match = _OF_CLUSTER.match(squashed(name)) if name.startswith("delete") else None
    return None if match is None else f"kubectl delete {match.group(2)}{' --all' if match.group(1) else ''}"


def cloud_command(words: str, arguments: Sequence[Node], scope: NameScope) -> str:
    """The command line of a request: each member of it as the option of the same name."""
    if words.startswith("kubectl"):
        plain = [one for one in arguments if one.type not in ("keyword_argument", "named_argument", "object")]
        names = [(*scope.value(one).known, "VALUE")[0] for one in plain[:1]]
        return " ".join([words, *(["-n"] if "--all" in words else []), *names])
    pairs: list[Node] = []
    for argument in arguments:
        if argument.type in ("keyword_argument", "named_argument", "pair"):
            pairs.append(argument)
        elif argument.type in ("object", "dictionary", "hash"):
            pairs += argument.named_children
    line = [words]
    for pair in pairs[:_MOST_OPTIONS]:
        if pair.named_child_count < 2:
            continue
        name = _option(text_of(pair.named_children[0]).strip("'\":"))
        value = pair.named_children[-1]
        known = scope.value(value).known
        line.append(f"{name} {shlex.quote((known[0] if known else _in_full(value, scope))[:_LONGEST])}")
    built = _BUILT_WITH.findall(" ".join(text_of(one)[:_LONGEST] for one in arguments))
    return " ".join([*line, *(f"{_option(name)} {shlex.quote(text)}" for name, text in built[:_MOST_OPTIONS])])


_BUILT_WITH: Final = Lazy(r"\.(?:with)?([A-Za-z]\w{2,40})\(\s*\"([^\"\n]{0,200})\"\s*\)")  # of what builds a request


def _option(name: str) -> str:
    return "--" + str(_CAPITAL.sub(r"\1-\2", name)).lower().replace("_", "-")


def only_asks(node: Node, scope: Callable[[], NameScope]) -> bool:
    """Whether a request to a cloud says that nothing is to be done; the library refuses that where it means nothing."""
    named = (one for one in arguments_of(node) if one.type == "keyword_argument" and text_of(one).startswith("DryRun"))
    return any(scope().value(one.named_children[-1]).texts == ("true",) for one in named)


def _in_full(value: Node, scope: NameScope) -> str:
    """A value as it is written, and behind it what the names in it stand for."""
    followed = scope.value(value)
    if followed.items or followed.members:
        return written_out(followed)
    text = text_of(value)[:_LONGEST]
    further = [text_of(one.value) for name in names_in([text]) for one in scope.bounds_of(name)[:1]]
    return str(_CAPITAL_NAME.sub(r'"\1":', " ".join([text, *further]))).replace("'", '"')


# Conditions that nothing fails, behind the words that narrow what a library asks a database for.
_NARROWS_NOTHING: Final = Lazy(
    r"(?i)\.exclude\(\s*\w*\b(?:id|pk)(?:__isnull\s*=\s*true|__in\s*=\s*[\[(]\s*[\])]|\s*=\s*(?:none|-1|0)|__lte?\s*=\s*(?:-1|0))\s*\)|"
    r"\.(?:where|where_?raw|filter|filter_by|and_?where|find_?by|matching)\(\s*(?:(?:sa\.|sqlalchemy\.|sql\.)?"
    r"(?:text|literal|literal_column|sql|q)?\(?\s*(?:[\"'`]?\s*(?:true|(\d{1,9})[\"']?\s*(?:==?|,)\s*[\"']?\d{1,9}|1|\*)\s*[\"'`]?|true\(\)|)\s*\)?|"
    r"(?:lambda\s+)?\(?\w*\)?\s*(?::|=>|->)\s*(?:true|1\s*==\s*1)|"
    r"[\"'`]\s*(?:[\w.]*\bid\s*(?:>=?|!=|<>)\s*-?[01]|[\w.]{1,60}\s+is\s+not\s+null)\s*[\"'`]|"
    r"[\"'`][\w.]*\bid\s*(?:>=?|!=|<>)\s*\?[\"'`]\s*,\s*-?[01]|[\"'`]?1\s*=\s*1[\"'`]?|\(?\w+\)?\s*=>\s*\w+\.(?:\w*id)\s*(?:>=?|!=)\s*-?[01]|"
    r"[\w.]*\b(?:id|pk)(?:__gte?\s*=\s*|__isnull\s*=\s*|\s*>=?\s*|\s*!=\s*|[\"']?\s*,\s*[\"'](?:>=?|!=)[\"']\s*,\s*)(?:-?[01]|none|null|false))\s*\)"
)


LONGEST_CHAIN: Final = 400


# The same without a condition in parentheses: what is there in every row is no condition.
_IS_THERE: Final = Lazy(
    r"(?i)\.where\.not\(\s*:?[\w\"']*(?:id|email|name|created_at)[\"']?\s*(?::|=>)\s*nil\s*\)|"
    r"(?:->|::|\.)where_?not_?null\(\s*[\"']\w*(?:id|email|name|created_at)[\"']\s*\)|"
    r"(?:->|::)where\(\s*[\"']\w*id[\"']\s*,\s*[\"'](?:>=?|!=|<>)[\"']\s*,\s*-?[01]\s*\)"
)


_UNSCOPED: Final = Lazy(r"(?s)(?:\.where\(.*)?\.unscope\(\s*:where\s*[,)][^)]{0,80}")  # of Rails: no condition any more


def unnarrowed(chain: str) -> str:
    """A chain of calls with those as `.all()` that narrow what it asks for by a condition that nothing fails."""
    return str(_NARROWS_NOTHING.sub(".all()", _IS_THERE.sub(".all()", _UNSCOPED.sub(".all", chain))))


class Chains:
    """The calls of a text that begin where others do: `delete(Row).where(id == 1)` and its `delete(Row)`."""

    def __init__(self, calls: Sequence[Node]):
        self._of: dict[int, list[tuple[int, Node]]] = {}
        for node in calls:
            self._of.setdefault(node.start_byte, []).append((node.end_byte, node))
        for chain in self._of.values():
            chain.sort(key=itemgetter(0))

    def narrows(self, node: Node, owner: str, words: Sequence[str]) -> bool:
        """Whether what a call is called on, or what is called on what it makes, has one of the words.

        Behind `delete(Row)` stands `.where(id == 1)`.
        """
        chain = self._of[node.start_byte]
        end, whole = chain[bisect_right(chain, node.end_byte + LONGEST_CHAIN, key=itemgetter(0)) - 1]
        behind = text_of(whole)[len(text_of(node)) :] if end > node.end_byte else ""
        written = unnarrowed(f"{owner}{behind}").lower()
        return any(word in written for word in words)


def ends_of(chain: str) -> str:
    """The ends of a chain of calls, where its middle is long: what it is called on, and what was called last."""
    return chain if len(chain) <= 2 * LONGEST_CHAIN else f"{chain[:LONGEST_CHAIN]} {chain[-LONGEST_CHAIN:]}"


def says(pieces: Sequence[str], parts: Called, scope: NameScope) -> bool:
    """Whether the arguments of a call hold one of the pieces, without blanks and quotes, or what they name does."""
    written = [text_of(one)[:_LONGEST] for one in parts.arguments[:_MOST_OPTIONS]]
    for name in names_in(written):
        written += [text_of(one.value)[:_LONGEST] for one in scope.bounds_of(name)[:1]]
        written += [text_of(one.whole)[:_LONGEST] for one in scope.of_owner(name)[:_MOST_OWNED]]
    plain = _PLAIN.sub("", ",".join(written)).lower()
    if any(piece in plain for piece in pieces):
        return True
    owned = (one.value for name in names_in(written[: len(parts.arguments)]) for one in scope.of_owner(name))
    followed = ",".join(
        [
            *(_as_written(one, scope) for one in parts.arguments[:_MOST_OPTIONS]),
            *(written_out(scope.value(one)) for one in islice(owned, _MOST_OWNED)),
        ]
    )
    plain = _PLAIN.sub("", followed).lower()
    return any(piece in plain for piece in pieces)


def _as_written(argument: Node, scope: NameScope) -> str:
    """An argument as it would be written with what is computed in it put in."""
    if argument.type in ("keyword_argument", "named_argument", "pair") and argument.named_child_count > 1:
        sign = "=" if argument.type == "keyword_argument" else ":"
        return f"{text_of(argument.named_children[0])}{sign}{written_out(scope.value(argument.named_children[-1]))}"
    value = scope.value(argument)
    return ",".join([written_out(value), *octal(value)])


# Modules of which honest programs write out what they call.
_RUN_MODULES: Final = frozenset({
    "os", "subprocess", "builtins", "__builtins__", "sys", "shutil", "socket", "posix", "pty", "ctypes", "commands",
})  # fmt: skip
_LONGEST_LOOKUP: Final = 200
_BY_DICT: Final = frozenset({"__dict__", "__getattribute__"})


class LookedUp(NamedTuple):
    """The full names that what is called may have; `is_plain` where none of it is kept from who reads the text.

    `owner` is what it is looked up in, where that is no module: a method of it.
    """

    names: tuple[str, ...]
    is_plain: bool
    owner: Node | None = None


def looked_up(
    function: Node, language: CodeLanguage, scope: Callable[[], NameScope], aliases: Mapping[str, str]
) -> LookedUp | None:
    """What is called, where it is looked up by its name or in a module that is loaded on the spot; `None` elsewhere."""
    kind = function.type
    if kind in ("variable_name", "dynamic_variable_name"):  # `$f("...")` of PHP
        return LookedUp(tuple(name.lower() for name in scope().value(function).known), is_plain=True)
    if kind in ("member_expression", "attribute"):
        owner = function.child_by_field_name("object")
        if owner is None or not ("call" in owner.type or owner.type == "subscript"):
            return None
        module, last = _loaded(owner, scope, aliases), member_parts(function)[1]
        return LookedUp((f"{module}.{text_of(last)}".lower(),), is_plain=True) if module else None
    if kind not in ("call", "subscript", "subscript_expression") or (
        function.end_byte - function.start_byte > _LONGEST_LOOKUP
    ):
        return None
    if kind == "call":
        inner = function.child_by_field_name("function")
        if text_of(inner) == "getattr":
            owner, *named = arguments_of(function)[:2] or (None,)
        elif inner is not None and inner.type == "attribute" and text_of(member_parts(inner)[1]) in _BY_DICT:
            owner, named = member_parts(inner)[0], list(arguments_of(function)[-1:])
        else:
            return None
    elif function.named_child_count < 2:  # of a broken text
        return None
    else:
        owner, named = function.named_children[0], function.named_children[1:2]
        if owner.type == "attribute" and text_of(member_parts(owner)[1]) in _BY_DICT:
            owner = member_parts(owner)[0]
        elif called_name(owner) == "vars" and (whole := next(iter(arguments_of(owner)), None)) is not None:
            owner = whole
        elif language == "python":
            return None
    if owner is None:
        return None
    module = _loaded(owner, scope, aliases) or aliases.get(text_of(owner), text_of(owner))
    names = tuple(f"{module}.{name}".lower() for one in named for name in scope().value(one).known)
    return LookedUp(names, language != "python" or module not in _RUN_MODULES, owner)


# What calls a function that it is given, and what does so with the arguments that stand behind it.
HANDS: Final = frozenset({
    "", "call", "map", "foreach", "array_map", "array_walk", "call_user_func", "call_user_func_array", "send", "filter",
    "public_send", "__send__", "submit", "apply", "thread", "callback", "each", "starmap", "imap", "imap_unordered",
    "to_thread", "run_in_executor", "partial", "apply_async", "foreachasync", "lapply", "sapply", "vapply", "walk",
    "for_each", "do.call", "register", "timer", "finalize", "enter", "enterabs", "call_later", "call_at", "call_soon",
    "process", "addcleanup", "run_sync", "on_exit",
})  # fmt: skip
_HANDS_BEHIND: Final = frozenset({"run_in_executor", "Timer", "finalize", "enter", "enterabs", "call_later", "call_at"})
CALLS_ITSELF: Final = frozenset({"", "call", "apply"})
_PICKS: Final = frozenset({"subscript", "subscript_expression"})
_MAKES_CALL: Final = frozenset({"getattr", "partial"})


def picked_names(assigned: Sequence[Node]) -> Iterator[tuple[str, Node]]:
    """The names that stand for what is looked up by its name, or for a function with some of its arguments."""
    for node in assigned:
        left, right = left_of(node), right_of(node)
        if left is not None and right is not None and (right.type in _PICKS or called_name(right) in _MAKES_CALL):
            yield text_of(left)[:_LONGEST], right


def called_so(node: Node, written: str, picked: Mapping[str, Node], scope: Callable[[], NameScope]) -> str:
    """The last part of the name of what a call calls, where that is looked up: `kms[name]`, `getattr(ec2, name)`."""
    function = node.child_by_field_name("function") or node.child_by_field_name("constructor")
    if function is None:
        return written
    function = picked.get(text_of(function)[:_LONGEST], function)
    if called_name(function) == "partial":
        return "".join(text_of(member_parts(one)[1]) for one in arguments_of(function)[:1]) or written
    if function.type not in _PICKS and called_name(function) != "getattr":
        return written
    keys = (*arguments_of(function), *function.named_children)[1:2]
    told = [text for one in keys for text in scope().value(one).known]
    return told[0] if len(told) == 1 and told[0].isidentifier() else written


def behind(name: str, plain: Sequence[Node], at: int) -> list[Node]:
    """What a call gives to the function that it is handed at a place, of its arguments without names."""
    return list(plain[at + 1 :]) if not at or name in _HANDS_BEHIND else [*plain[:1], *plain[2:]]


def handed_names(function: Node, scope: Callable[[], NameScope], aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The full names that a function may have which is given as an argument; those of methods begin with a dot."""
    if function.type == "block_argument" and function.named_child_count:
        function = function.named_children[0]
        if "symbol" in function.type:
            return tuple(f".{name}" for name in scope().value(function).known)
    while called_name(function) in AS_FUNCTION and (bare := called(function).receiver) is not None:
        function = bare
    if function.type == "call" and called_name(function) == "method":  # `File.method(:delete)` of Ruby
        inner = called(function)
        owner = "" if inner.receiver is None else f"{canonical(text_of(inner.receiver))}."
        return tuple(f"{owner}{name}" for one in inner.arguments[:1] for name in scope().value(one).known)
    if "string" in function.type or "symbol" in function.type or "binary" in function.type:
        return scope().value(function).known
    name = text_of(function)
    if not name[:1].isalpha():
        return ()
    head, dot, tail = canonical(name).partition(".")
    return (f"{aliases.get(head, head)}{dot}{tail}",)


def _loaded(owner: Node, scope: Callable[[], NameScope], aliases: Mapping[str, str]) -> str:
    """The module that an expression loads on the spot; empty for none."""
    argument = loaded_module(owner, aliases)
    known = () if argument is None else scope().value(argument).known
    return known[0].removeprefix("node:") if known else ""


def is_empty(arguments: Sequence[Node], place: int, scope: NameScope) -> bool:
    """Whether a condition selects everything: an object without members, or one whose members narrow nothing."""
    if place >= len(arguments):
        return False
    node = scope.stands_for(arguments[place])
    if any(one.type in _DOCUMENTS and not one.named_child_count for one in (node, *_of_table(node, scope))):
        return True
    made = called(node) if node.type in ("object_creation_expression", "new_expression") else None
    if made is not None and not made.arguments and made.name in _EMPTY_DOCUMENTS:
        return True
    value = scope.value(node)
    only = {key for key, _ in value.members} <= _AROUND
    condition = value.member("where") if only else value
    return bool(condition.members) and is_everything(plain(condition))


def _of_table(name: Node, scope: NameScope) -> Iterator[Node]:
    """What a name may be that a loop takes out of each entry of a list: `for (const { filter } of JOBS)`."""
    for bound in scope.bounds_of(text_of(name)) if name.type == "identifier" else ():
        table = scope.stands_for(bound.value) if bound.each and bound.part else None
        for entry in () if table is None else table.named_children[:_MOST_ENTRIES]:
            parts = entry.named_children
            if entry.type in _DOCUMENTS:
                named = (one for one in parts if text_of(one.child_by_field_name("key")).strip("\"'") == bound.part)
                yield from (one.named_children[-1] for one in named)
            elif bound.part.isdigit() and int(bound.part) < len(parts):
                yield parts[int(bound.part)]


_MOST_ENTRIES: Final = 64  # of a list
_DOCUMENTS: Final = ("object", "dictionary", "hash")
_EMPTY_DOCUMENTS: Final = frozenset({"Document", "BasicDBObject", "BsonDocument"})
_AROUND: Final = frozenset({"where", "truncate", "force", "cascade", "individualHooks"})  # members beside a condition


_NARROW: Final = Lazy(r"[\"'`/]")


def is_broad_test(function: Node) -> bool:
    """Whether what is let through by a function is not told by any name: `str.isdigit`, `f => f.isFile()`, `None`.

    What only leaves something out is broad too: `f => !f.startsWith(".")`.
    """
    text = text_of(function)[:_LONGEST]
    return "!" in text.replace("!=", "") or "not " in text or _NARROW.search(text) is None


MOST_NAMES: Final = 12  # of a text that are looked up
_ANY_NAME: Final = Lazy(r"[A-Za-z_$][\w$]*")


def names_in(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(match.group() for text in texts for match in _ANY_NAME.finditer(text)))[:MOST_NAMES]
