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

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.endpoints import is_everything
from aegis.detect.languages.bindings import BoundName
from aegis.detect.languages.followed import plain, written_out
from aegis.detect.languages.names import called_name, loaded_module
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
from aegis.detect.quick import remembered
from aegis.detect.shell.catalogue import builtin_programs

SPEAKS_OF_CLOUD: Final = Lazy(r"(?i)\bboto|\bbotocore|aws-sdk|aws_sdk|amazonaws|\bAWS\b|Amazon\.|/aws/|\baioboto")
FETCHES: Final = Lazy(
    r"(?i)requests\.|urlopen|urlretrieve|httpx|aiohttp|\bfetch\(|axios|https?\.get|downloadfile|wget\.|\.recv\(|curl_|"
    r"file_get_contents\(.http|open-uri|getstore|net::http|restclient|pycurl|ftplib"
)
# Statements that are worth a parser wherever a program hands them to a database.
_GRAVE_STATEMENT: Final = Lazy(
    r"(?i)\bdrop\s+(?:database|schema)\b|\bxp_cmdshell\b|\bto\s+program\b|\binto\s+(?:out|dump)file\b|\bgrant\s+all\b|"
    r"\bsuperuser\b|\bload_file\s*\("
)
# What is grave as well where a server's data ends by it: a file of SQLite is made anew by the program that asks.
_GRAVE_ON_SERVER: Final = Lazy(
    r"(?i)\bdrop\s+table\s+(?:[^i\s]|i[^f\s])\S*|\btruncate\s+(?:table\s+)?\w|^\s*(?:delete\s+from|update)\s"
)
_ASKS_SERVER: Final = Lazy(
    r"(?i)\bDBI\b|ActiveRecord|\bDB::|Sequel\b|knex|typeorm|JdbcTemplate|EntityManager|\bsqlx\b|database/sql|psycopg|asyncpg|pg8000|pymysql|mysql|mariadb|oracledb|cx_oracle|pyodbc|pymssql|postgres|\bnew\s+PDO\b|mysqli|pg_connect|"
    r"\bnew\s+(?:Pool|Client|SqlConnection|NpgsqlConnection)\b|jdbc:|\bPG\.connect|Mysql2|snowflake|redshift|clickhouse"
)
_CLOUD: Final = "aws"
_ENDINGS: Final = ("command", "request", "async", "input", "withcontext")
_PLAIN: Final = Lazy(r"[\s'\"`]+")
_CAPITAL: Final = Lazy(r"([a-z0-9])([A-Z])")
_CAPITAL_NAME: Final = Lazy(r"\b([A-Z]\w{2,20})\s*:\s*")  # of a member that no quotes stand around
_LONGEST: Final = 1_000  # characters of an argument that are compared
_MOST_OPTIONS: Final = 24
_MOST_OWNED: Final = 8  # members of a name that are looked at


def is_grave(statement: str, text: Callable[[], str]) -> bool:
    """Whether a statement of a program is worth a parser: nearly all that programs ask databases are not."""
    if _GRAVE_STATEMENT.search(statement) is not None:
        return True
    return _GRAVE_ON_SERVER.search(statement) is not None and _ASKS_SERVER.search(text()) is not None


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


def cloud_command(words: str, arguments: Sequence[Node], scope: NameScope) -> str:
    """The command line of a request: each member of it as the option of the same name."""
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
        name = _CAPITAL.sub(r"\1-\2", text_of(pair.named_children[0]).strip("'\":")).lower().replace("_", "-")
        value = pair.named_children[-1]
        known = scope.value(value).known
        line.append(f"--{name} {shlex.quote((known[0] if known else _in_full(value, scope))[:_LONGEST])}")
    return " ".join(line)


def _in_full(value: Node, scope: NameScope) -> str:
    """A value as it is written, and behind it what the names in it stand for."""
    followed = scope.value(value)
    if followed.items or followed.members:
        return written_out(followed)
    text = text_of(value)[:_LONGEST]
    further = [text_of(one.value) for name in _names_in([text]) for one in scope.bounds_of(name)[:1]]
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


_LONGEST_CHAIN: Final = 400


# The same without a condition in parentheses: what is there in every row is no condition.
_IS_THERE: Final = Lazy(
    r"(?i)\.where\.not\(\s*:?[\w\"']*(?:id|email|name|created_at)[\"']?\s*(?::|=>)\s*nil\s*\)|"
    r"(?:->|::|\.)where_?not_?null\(\s*[\"']\w*(?:id|email|name|created_at)[\"']\s*\)|"
    r"(?:->|::)where\(\s*[\"']\w*id[\"']\s*,\s*[\"'](?:>=?|!=|<>)[\"']\s*,\s*-?[01]\s*\)"
)


def unnarrowed(chain: str) -> str:
    """A chain of calls with those as `.all()` that narrow what it asks for by a condition that nothing fails."""
    return str(_NARROWS_NOTHING.sub(".all()", _IS_THERE.sub(".all()", chain)))


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
        end, whole = chain[bisect_right(chain, node.end_byte + _LONGEST_CHAIN, key=itemgetter(0)) - 1]
        behind = text_of(whole)[len(text_of(node)) :] if end > node.end_byte else ""
        written = unnarrowed(f"{owner}{behind}").lower()
        return any(word in written for word in words)


def ends_of(chain: str) -> str:
    """The ends of a chain of calls, where its middle is long: what it is called on, and what was called last."""
    return chain if len(chain) <= 2 * _LONGEST_CHAIN else f"{chain[:_LONGEST_CHAIN]} {chain[-_LONGEST_CHAIN:]}"


def says(pieces: Sequence[str], parts: Called, scope: NameScope) -> bool:
    """Whether the arguments of a call hold one of the pieces, without blanks and quotes, or what they name does."""
    written = [text_of(one)[:_LONGEST] for one in parts.arguments[:_MOST_OPTIONS]]
    for name in _names_in(written):
        written += [text_of(one.value)[:_LONGEST] for one in scope.bounds_of(name)[:1]]
        written += [text_of(one.whole)[:_LONGEST] for one in scope.of_owner(name)[:_MOST_OWNED]]
    plain = _PLAIN.sub("", ",".join(written)).lower()
    if any(piece in plain for piece in pieces):
        return True
    owned = (one.value for name in _names_in(written[: len(parts.arguments)]) for one in scope.of_owner(name))
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
    return written_out(scope.value(argument))


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
        if owner is None or "call" not in owner.type:
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
        elif language == "python":
            return None
    if owner is None:
        return None
    module = _loaded(owner, scope, aliases) or aliases.get(text_of(owner), text_of(owner))
    names = tuple(f"{module}.{name}".lower() for one in named for name in scope().value(one).known)
    return LookedUp(names, language != "python" or module not in _RUN_MODULES, owner)


def handed_names(function: Node, scope: Callable[[], NameScope], aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The full names that a function may have which is given as an argument; those of methods begin with a dot."""
    if function.type == "block_argument" and function.named_child_count:
        function = function.named_children[0]
        if "symbol" in function.type:
            return tuple(f".{name}" for name in scope().value(function).known)
    if function.type == "call" and called_name(function) == "method":  # `File.method(:delete)` of Ruby
        inner = called(function)
        owner = canonical(text_of(inner.receiver))
        return tuple(f"{owner}.{name}" for one in inner.arguments[:1] for name in scope().value(one).known)
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
    bound = scope.bounds_of(text_of(arguments[place]))
    node = bound[0].value if len(bound) == 1 and not bound[0].each else arguments[place]
    if node.type in ("object", "dictionary", "hash") and not node.named_child_count:
        return True
    made = called(node) if node.type in ("object_creation_expression", "new_expression") else None
    if made is not None and not made.arguments and made.name in _EMPTY_DOCUMENTS:
        return True
    value = scope.value(node)
    only = {key for key, _ in value.members} <= _AROUND
    condition = value.member("where") if only else value
    return bool(condition.members) and is_everything(plain(condition))


_EMPTY_DOCUMENTS: Final = frozenset({"Document", "BasicDBObject", "BsonDocument"})
_AROUND: Final = frozenset({"where", "truncate", "force", "cascade", "individualHooks"})  # members beside a condition


_NARROW: Final = Lazy(r"[\"'`/]")


def is_broad_test(function: Node) -> bool:
    """Whether what is let through by a function is not told by any name: `str.isdigit`, `f => f.isFile()`, `None`.

    What only leaves something out is broad too: `f => !f.startsWith(".")`.
    """
    text = text_of(function)[:_LONGEST]
    return "!" in text.replace("!=", "") or "not " in text or _NARROW.search(text) is None


_ASKS: Final = frozenset({
    "if_statement", "if", "elif_clause", "else_clause", "conditional_expression", "ternary_expression", "unless",
    "switch_statement", "switch_section", "switch_case", "case_clause", "match_statement", "if_modifier", "case",
    "unless_modifier", "boolean_operator", "if_clause", "expression_switch_statement", "conditional",
})  # fmt: skip
_LOOPS: Final = ("for", "while", "generator", "list_comp", "set_comp")
_FAR: Final = 16  # nodes around a call that are looked at
_LEAVES: Final = (b"continue", b"next ", b"return")


# A condition that picks some by what they are called or equal, and one that only leaves some out.
_PICKS: Final = Lazy(rb"[\"'`]|==|\bin\b|\bmatch|\bsearch")
_UNLIKE: Final = Lazy(rb"!=|\bnot\s+(?:\w+\s+)?in\b|\bnot\s+[\w.]+\.\w*(?:with|match)|!\s*[\w.]+\.\w+\(|\bunless\b")
_OMITS: Final = Lazy(rb"!=|!==|\bnot\b|\bunless\b|![\w(]")


def is_conditional(node: Node) -> bool:
    """Whether a condition between a call and the loop around it picks what the call is made for.

    `if p.name() == "vite": p.kill()` does; `if p.pid != os.getpid()` only leaves one out, and so does a `continue`
    where something is equal.
    """
    whole = node.parent
    for _ in range(_FAR):
        if whole is None:
            return False
        before = (whole.text or b"")[: node.start_byte - whole.start_byte]
        if whole.type in _ASKS and _PICKS.search(before) and not _OMITS.search(before):
            return True
        if whole.type.startswith(_LOOPS):
            if any(word in before for word in _LEAVES):
                return _UNLIKE.search(before) is not None
            asked = [
                one.text or b"" for one in whole.named_children if one.type in _ASKS and one.end_byte > node.end_byte
            ]
            return any(_PICKS.search(one) and not _OMITS.search(one) for one in asked)
        whole = whole.parent
    return False


# What a program does to all that a service lists: `for one in client.list_users(): client.delete_user(one.id)`. No
# library need be known for it. One call lists, another ends what its argument or its owner names, it is made for each
# item, and nothing between them picks some of the items.

_MOST_NAMES: Final = 12
_HOPS: Final = 3  # names between an item and the call that lists it
_SHOWN: Final = 80

# What a call ends, by the words that its name begins with.
_ENDED: Final = Lazy(
    r"^(?:(?:[bB]egin|[sS]tart|[rR]ecursive|[bB]ulk|[bB]atch|[hH]ard|[fF]orce|[aA]dmin|[pP]ermanently)_?)?"
    r"(?:(?P<deletes>[dD]elete|dbRemoveTable|del|[dD]estroy|[tT]erminate|[pP]urge|[dD]rop)|"
    r"(?P<disables>[dD]eactivate|[dD]isable|[sS]uspend|[dD]eleteUsers?)|(?P<undoes>[cC]ancel|[rR]efund|[rR]evoke))"
    r"(?:[_A-Z]\w*|s)?$|^(?:admin_)?(?:users?_|members?_)?(?P<removes>[rR]emove|kick|deprovision|ban)"
    r"(?:_?(?:[uU]sers?|[mM]embers?|[cC]ollaborators?|[oO]wners?|[dD]evices?|[cC]ustomers?|[aA]ccounts?))?(?:_?[fF]rom\w*)?$"
)
_BEGINNINGS: Final = (
    "begin", "del", "destroy", "terminate", "purge", "deactivate", "disable", "suspend", "cancel", "refund",
    "revoke", "create", "recursive", "bulk", "batch", "hard", "force", "admin", "permanently", "drop", "remove",
    "kick", "deprovision", "ban", "admin_", "users_", "user_", "member", "start", "dbremovetable",
)  # fmt: skip
_UNDONE: Final = Lazy(r"(?i)\brefunds?\.create$|\bcredit_?notes?\.create$")
# A call that lists what a service has.
_LISTED: Final = Lazy(
    r"\bdbListTables\s*\(|\bGetPropertiesOf\w{2,30}\s*\(|\bContainerList\s*\(|"
    r"\b[A-Z]\w{2,40}(?:::|\.)(?:all|find_each|unscoped|cursor)\b|\.objects\.all\(\)|\.collection\([^()]{1,60}\)\.(?:get|stream|listDocuments|list_documents)\(\)|"
    r"\b(?:users|members|accounts|customers|channels|repos|projects|teams)_list\s*\(|"
    r"(?:^|[.>:\s])(?:[lL]ist|[gG]et_?[aA]ll|[dD]escribe|[fF]etch_?[aA]ll|[fF]ind_?[aA]ll|[gG]et\w{1,24}List)(?:[_A-Z]\w*|s)?\s*\(|"
    r"\.(?:auto_paging_iter|autoPagingIterator|autoPagingEach|autoPagingToArray|paginate(?:\.iterator)?)\s*\(|"
    r"\.(?:buckets|object_versions|instances|volumes|snapshots|clusters|accounts|users|tenants|databases|projects|"
    r"repositories|repos|zones|domains|vaults|tables)(?:\(\))?(?:\.(?:all|each)\b(?:\(\))?)?$"
)
# What picks some of it, what picks all that is worth something, and what is made to be ended.
_ALL_OF_USE: Final = Lazy(
    r"(?i)\bstatus(?:es)?[\"']?\s*[:=(]\s*\[?[\"'](?:active|all|enabled|running|live|open|succeeded|paid|in[_-]?use)[\"']\]?"
)
_PICKED: Final = Lazy(
    r"(?i)filter|prefix|query|\bq\b|where|tag|label|status|state|search|since|before|until|older|newer|created|expired|stale|"
    r"limit\W+1\b|max_?results?\W+1\b|page_?size\W+1\b|startswith|endswith|\bname\b|pattern|match|selector"
)
_SEVERAL: Final = Lazy(r"(?:[a-rt-z]s|[mM]any|[aA]ll|[bB]atch)$")  # what is asked to end several at once
# Conditions that only leave some out.
_LEFT_OUT: Final = Lazy(r"\bif\s+not\s+[^\[\]]{1,80}\]?|\bif\s+\w+\s*!=\s*[\"'\w]{1,40}")
_SMALL_THINGS: Final = Lazy(
    r"(?i)te?mp|test|mock|cache|session|cookie|notification|bookmark|draft|preview|listener|handler|breakpoint|marker|"
    r"listOf\b|element|child|rows?\b|cells?\b|shapes?\b|slides?\b|annotation|comment|reaction|message|timer|watch|job|task|run|artifact|webhook|dir\b|files?\b|"
    r"listdir|readdir|list_?files|listFiles"
)
_ANY_NAME: Final = Lazy(r"[A-Za-z_$][\w$]*")


@remembered
def ends_something(name: str) -> bool:
    """Whether a call of a name in small letters may end something."""
    return name.startswith(_BEGINNINGS)


def sweeps(names: Sequence[str], parts: Called, scope: NameScope) -> Iterator[ResourceEffect]:
    """What a call by those names, the fullest first, ends of all that a service lists.

    Nothing where it is not made for each of it, and where it is a function of the program itself.
    """
    kind = _ENDED.search(parts.name)
    name = names[0] if names else ""
    if (
        (parts.receiver is None and name != "dbremovetable")
        or (kind is None and _UNDONE.search(name) is None)
        or _SMALL_THINGS.search(name) is not None
    ):
        return
    listed = next(_listed(parts, scope), "")
    if listed:
        is_deleted = kind is not None and kind.group("deletes") is not None
        is_disabled = kind is not None and (kind.group("disables") or kind.group("removes")) is not None
        if is_deleted:
            yield ResourceEffect("delete", "cloud-resource", "all", (parts.name,), "", listed[:_SHOWN])
        elif is_disabled:
            yield ResourceEffect("disable", "account", "all", (parts.name,), "", listed[:_SHOWN])
        else:
            yield ResourceEffect("write", "record", "all", (parts.name,), "", listed[:_SHOWN])


def _listed(parts: Called, scope: NameScope) -> Iterator[str]:
    """The calls that list what the argument or the owner of a call is an item of, with nothing that picks some."""
    texts = [text_of(one)[:_LONGEST_CHAIN] for one in (parts.receiver, *parts.arguments[:_MOST_NAMES])]
    for item in _names_in(texts):
        for one in scope.bounds_of(item):
            if one.each or _SEVERAL.search(parts.name):
                text = _source(one, scope)
                plain = _LEFT_OUT.sub("", _ALL_OF_USE.sub("", text))
                if _LISTED.search(plain) and not _PICKED.search(plain) and not _SMALL_THINGS.search(plain):
                    yield text


def _source(one: BoundName, scope: NameScope) -> str:
    """What is gone over, as it is written where it was asked for."""
    text = text_of(one.value)[:_LONGEST_CHAIN]
    told = [text]
    for _ in range(_HOPS):
        further = [bound for name in _names_in([text])[:1] for bound in scope.bounds_of(name)[:1]]
        if not further or _LISTED.search(text):
            break
        text = text_of(further[0].value)[:_LONGEST_CHAIN]
        told.append(text)
    return " ".join(told)


def _names_in(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(match.group() for text in texts for match in _ANY_NAME.finditer(text)))[:_MOST_NAMES]
