"""What a request to the API of a server does, by its method, path and body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from aegis.core.effects import EffectScope, Resource, ResourceEffect, Verb
from aegis.core.patterns import Lazy
from aegis.detect.quick import remembered
from aegis.detect.resources import words_of_resources
from aegis.detect.roles import words_of, works_on_files
from aegis.detect.tool_words import is_throwaway, singular, spoken, vocabulary

ALL: Final = frozenset({"*", "_all", "all", "/*", "/_all", "%", ".*", ".+"})
ON: Final = (True, "true", "True", "enabled", "Enabled")
OFF: Final = (False, "false", "False")


@remembered
def plain(name: str) -> str:
    """A name of a member in small letters, without the signs that divide its words."""
    return "".join(char for char in name.lower() if char.isalnum())


_SELECT_ALL: Final = frozenset({"{}", "*", "*:*", "1=1", "true", "in:anywhere", "in:all", "is:any", "label:all"})


def is_everything(value: Any) -> bool:
    """Whether a condition selects everything there is."""
    if value == {} or (isinstance(value, str) and value.strip() in _SELECT_ALL):
        return True
    if not isinstance(value, dict):
        return False
    if "match_all" in value:
        return True
    inner = value.get("query")
    if isinstance(inner, (dict, str)):
        return is_everything(inner)
    return all(_narrows_nothing(name, held) for name, held in islice(value.items(), _MOST_FIELDS))


_OF_STATEMENT: Final = frozenset({
    "Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition",
})  # fmt: skip


def is_refusal(value: Mapping[str, Any]) -> bool:
    """Whether an object is a statement of a policy that refuses something, and nothing else."""
    return value.get("Effect") == "Deny" and value.keys() <= _OF_STATEMENT


def is_wide(matcher: Any) -> bool:
    """Whether a matcher of alerts leaves out nothing to speak of: every value of a label, or all values but one."""
    if isinstance(matcher, str):
        return _WIDE.fullmatch(matcher) is not None
    if not isinstance(matcher, dict):
        return False
    return matcher.get("isEqual") is False or (matcher.get("isRegex") is True and matcher.get("value") in _ANY_VALUE)


_WIDE: Final = Lazy(r"\s*\w{1,80}\s*(?:!=.*|!~.*|=~\s*\"?\.[*+]\"?)\s*")
_ANY_VALUE: Final = ("", ".*", ".+")
_MOST_FIELDS: Final = 16  # of a condition
_OF_KEYS: Final = frozenset({"_id", "id", "pk", "uuid"})


def _narrows_nothing(name: str, held: Any) -> bool:
    """Whether one part of a condition of a document database holds for every document: `_id: {$exists: true}`."""
    sign = _sign_of(name)
    if sign in ("or", "and", "should", "must", "filter", "nor") and isinstance(held, list):
        parts = map(is_everything, islice(held, _MOST_FIELDS))
        if sign == "nor":
            return all(map(_finds_nothing, held))
        return any(parts) or _complete(held) if sign in ("or", "should") else all(parts)
    if name in _AROUND and isinstance(held, dict):
        return is_everything(held.get("filter", held.get("query", held)))
    if name == "script" and isinstance(held, dict):
        return str(held.get("script", held.get("source"))).strip().removeprefix("return ").rstrip("; ") in _TRUE
    if name in ("$expr", "bool") and (held is True or isinstance(held, dict)):
        return held is True or (is_everything(held) if name == "bool" else _compares_itself(held))
    if name == "$comment":
        return True
    if name == "$where":
        return str(held).strip().removeprefix("return ").rstrip("; ") in _TRUE
    if name == "range" and isinstance(held, dict) and held:
        return all(map(_is_all_of_time, held.keys(), held.values()))
    if not isinstance(held, dict) or len(held) != 1:
        return False
    told, wanted = next(iter(held.items()))
    if isinstance(wanted, dict) and len(wanted) == 1 and (kind := next(iter(wanted))) in _KINDS:
        wanted = "" if kind == "$minKey" else wanted[kind]
    sign = _sign_of(told)
    if name in _OF_TEXT:
        return (wanted.get("value", wanted.get("query")) if isinstance(wanted, dict) else wanted) in _ANY_TEXT
    if sign == "not" and isinstance(wanted, dict):
        return _finds_nothing({name: wanted})
    if (sign in ("lt", "lte") and _AHEAD.match(str(wanted))) or (sign in ("gt", "gte") and _BEFORE.match(str(wanted))):
        return True
    if sign in ("gt", "gte") and not isinstance(wanted, bool) and wanted == (0 if sign == "gte" else -1):
        return True
    if sign == "type" or (sign in ("gt", "gte") and isinstance(wanted, str) and not wanted.strip("0")):
        return name in _OF_KEYS
    if name == "exists" and told == "field":
        return wanted in _OF_KEYS
    if sign == "exists":
        return wanted in (True, 1) and (name in _OF_KEYS or name in _ALWAYS_THERE)
    if (sign in _UNLIKE and wanted is None) or (sign == "_is_null" and wanted is False):
        return name in _OF_KEYS or name in _ALWAYS_THERE
    if sign in _UNLIKE or sign in ("gt", "gte", "nin"):
        return name in _OF_KEYS and (wanted is None or wanted in ("", [], 0, -1, *((1,) if sign[0] == "g" else ())))
    return sign == "regex" and wanted in ("", ".*", "^", "$", "^.*$", "^.*")


_TRUE: Final = ("true", "1", "1==1", "1 == 1", "function() { return true; }")
_KINDS: Final = ("$date", "$minKey", "$oid", "$numberLong")
_AROUND: Final = ("constant_score", "function_score")
_OF_TEXT: Final = ("wildcard", "regexp", "prefix", "query_string", "simple_query_string")
_ANY_TEXT: Final = ("", "*", "*:*", ".*", ".+", "?*")
_AHEAD: Final = Lazy(r"^(?:2[1-9]|[3-9]\d)\d\d-")
_BEFORE: Final = Lazy(r"^(?:0\d|1[0-8])\d\d-|^19[0-6]\d-|^1970-01-01")


def _finds_nothing(part: Any) -> bool:
    """Whether a part of a condition holds for no document: `_id: null`, `_id: {$exists: false}`, `_id: {$in: []}`."""
    name, held = next(iter(part.items())) if isinstance(part, dict) and len(part) == 1 else ("", "")
    nothing = held in (None, {"$exists": False}, {"$in": []}, {"$eq": None})
    return (name == "$expr" and held is False) or (name in _OF_KEYS and nothing)


def _complete(parts: list[Any]) -> bool:
    """Whether one of the parts of a condition holds wherever another does not: `a: 1` or `a: {$ne: 1}`."""
    told = [next(iter(part.items())) for part in parts if isinstance(part, dict) and len(part) == 1]
    return any(
        held in ({"$ne": other}, {"$not": other}, {"$not": {"$eq": other}})
        or (held == {"$exists": True} and other in ({"$exists": False}, None))
        or (held is True and other is False)
        for name, held in told
        for again, other in told
        if name == again
    )


def _is_all_of_time(field: str, bounds: Any) -> bool:
    """Whether a range holds everything: from before the first, or every moment up to now at which something came."""
    if not isinstance(bounds, dict):
        return False
    given = {sign: str(value).lower() for sign, value in bounds.items() if sign in ("gt", "gte", "lt", "lte")}
    if any(sign[0] == "l" for sign in given) and spoken(field).isdisjoint(_CAME):
        return False
    return bool(given) and all((_FIRST if sign[0] == "g" else _NOW).match(value) for sign, value in given.items())


_CAME: Final = frozenset({"timestamp", "created", "createdat", "date", "time", "ts", "updated", "ingested", "modified"})
_NOW: Final = Lazy(r"^(?:now(?:[+/].*)?|\*|none)$")
_FIRST: Final = Lazy(r"^(?:0|\*|none|now-\d{2,}y.*|(?:0\d|1[0-9])\d\d\S*)$")


def _compares_itself(held: Mapping[str, Any]) -> bool:
    """Whether an expression compares a thing with itself, as it holds for every document: `{$eq: ["$a", "$a"]}`."""
    ((sign, given),) = held.items() if len(held) == 1 else (("", None),)
    return sign in ("$eq", "$gte", "$lte") and isinstance(given, list) and len(given) == 2 and given[0] == given[1]


def _sign_of(name: str) -> str:
    """A sign of a condition in small letters, whichever way its library writes it: `$gt`, `gt`, `[Op.gt]`."""
    return name.lower().removeprefix("$").removeprefix("[").removesuffix("]").removeprefix("op.")


_UNLIKE: Final = frozenset({"ne", "not", "neq", "notequals", "isnot"})
_ALWAYS_THERE: Final = frozenset({"email", "name", "createdAt", "created_at", "updatedAt", "updated_at"})


def of_request(members: Mapping[str, Any], tool: str, *, deletes: bool) -> Iterator[ResourceEffect]:
    """A request to the API of a server: to one that is known, a deletion of everything, a query that selects all."""
    path = next((members[name] for name in _PLACES if isinstance(members.get(name), str)), "")
    method = next((members[name] for name in _METHODS if isinstance(members.get(name), str)), None)
    method, path = routed(path) or (method, path)
    by_name = not _REQUESTS.isdisjoint(words_of(tool)) and not works_on_files(tool)
    if method is None and (by_name or "://" in path[:_LONGEST_SCHEME]):
        method = next((word for word in words_of(tool) if word in _REQUESTS), "get")
    if isinstance(method, str) and path:
        where = path.split("?", 1)[0].rstrip("/")
        last = where.rpartition("/")[2]
        known = [] if _only_watches(where, members) else list(requests_of(method.upper(), path))
        yield from known
        if method.upper() == "DELETE":
            if last.partition(",")[0] in ALL or not where.replace("://", "").strip("/"):
                yield _request("delete", "table", "all", path)
            elif not known and not _tried(members):
                kinds = [words_of_resources().get(part) for part in where.lower().split("/")[-2:]]
                resource = next((kind for kind in reversed(kinds) if kind in _HELD), None)
                if resource is not None:
                    yield _request("delete", resource, "one", path)
                elif kinds[-1:] == ["account"]:
                    yield _request("disable", "account", "all", path)
                elif _is_collection(path_of(path)) and not (any(map(members.get, _SENT)) or is_throwaway(last)):
                    yield _request("delete", "table", "many", path)
        elif last == "_delete_by_query":
            body = members.get("body")
            some = "?q=" in path and not is_everything(path.partition("?q=")[2].partition("&")[0])
            if (body is None and not some) or (body is not None and is_everything(body)):
                yield _request("delete", "record", "all", path)
            elif only_excludes(body):
                yield _request("delete", "table", "many", path)
        elif last == "_update_by_query" and isinstance(body := members.get("body"), dict) and not body.get("query"):
            yield _request("write", "record", "all", path)
        elif last == "delete" and _deletes_a_time(members.get("body")) and not _of_scratch(path):
            yield _request("delete", "table", "many", path)
        if method.upper() in ("POST", "PUT", "PATCH"):
            yield from _of_forge(method.upper(), where, members, path)
    ends, key = members.get("rangeend"), members.get("key")  # of etcd: every key from one to another
    if isinstance(key, str) and key.startswith(_KEPT_SECRETS):
        yield _request("read", "secret-store", "all", f"key: {key}"[:_LONGEST])
    target = members.get("xamztarget")
    if isinstance(target, str) and target.rpartition(".")[2].startswith(_GIVES_SECRETS):
        yield _request("read", "secret-store", "one", target[:_LONGEST])
    below = isinstance(key, str) and key and is_throwaway(key) and ends == f"{key[:-1]}{chr(ord(key[-1]) + 1)}"
    if ends and "delete" in tool.lower() and not below:
        yield _request("delete", "cluster", "one", f"range_end: {members['rangeend']}"[:_LONGEST])
    index = members.get("index")
    if isinstance(index, str) and index.lower() in ALL and deletes:
        yield _request("delete", "table", "all", index)


def routed(path: str) -> tuple[str, str] | None:
    """The method and the path of a route that is written as one text: `PATCH /repos/{owner}/{repo}`."""
    method, _, rest = path.partition(" ")
    return (method, rest.strip()) if method in _SAID or (method == "GET" and rest) else None


def _tried(members: Mapping[str, Any]) -> bool:
    """Whether what a request picks was made to be thrown away: `{"query": {"tag_name": "ci-ephemeral"}}`."""
    picked: dict[str, Any] = next((one for name in _PICKS if isinstance(one := members.get(name), dict)), {})
    return bool(picked) and all(is_throwaway(str(value)) for value in picked.values())


def _only_watches(where: str, members: Mapping[str, Any]) -> bool:
    """Whether a service is registered with checks that ask it, and none that run a program."""
    body = next((members[name] for name in _SENT if isinstance(members.get(name), dict)), None)
    return where.endswith("/service/register") and body is not None and _RUNS.search(str(body)) is None


_PICKS: Final = ("query", "params", "qs")
_RUNS: Final = Lazy(r"(?i)['\"](?:script|args|scriptargs|dockercontainerid|shell)['\"]")


# Where a cluster keeps its secrets, as it is and in base64; what is asked of a cloud by the name of its deed.
_KEPT_SECRETS: Final = ("/registry/secrets", "L3JlZ2lzdHJ5L3NlY3JldH")
_GIVES_SECRETS: Final = ("GetSecretValue", "BatchGetSecretValue", "GetParameter")


def only_excludes(body: Any) -> bool:
    """Whether a query of Elasticsearch spares documents with a value and finds all others."""
    query = body.get("query") if isinstance(body, dict) else None
    joined = query.get("bool") if isinstance(query, dict) else None
    if not isinstance(joined, dict) or not joined.keys() <= {"must_not", "boost"}:
        return False
    kept = joined.get("must_not")
    parts = kept if isinstance(kept, list) else [kept]
    return bool(parts) and not any(isinstance(part, dict) and "exists" in part for part in parts)


def _of_scratch(path: str) -> bool:
    return is_throwaway(path.partition("bucket=")[2].partition("&")[0])


def _deletes_a_time(body: Any) -> bool:
    """Whether a request to InfluxDB deletes every point between two times."""
    return isinstance(body, dict) and {"start", "stop"} <= body.keys() and not body.get("predicate")


_PLACES: Final = ("path", "endpoint", "url", "uri", "route", "requestpath", "apipath", "resourcepath", "href")
_METHODS: Final = ("method", "httpmethod", "verb", "http", "requestmethod", "httpverb")
_REQUESTS: Final = frozenset({"post", "put", "patch", "delete"})  # in the name of a tool that makes one kind of request
_LONGEST_SCHEME: Final = 12


def only_tried(arguments: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> bool:
    """Whether a call asks what would happen, and nothing is to: of a cluster (`dryRun=All`), or as its schema knows."""
    declared = schema.get("properties") if schema is not None else None
    if isinstance(declared, Mapping) and any(
        plain(name) == "dryrun"
        and isinstance(kind := declared.get(name), Mapping)
        and (value is True or (value in _TRIES and kind.get("type") != "boolean"))
        for name, value in arguments.items()
    ):
        return True
    paths = [path_of(arguments[name]) for name in _PLACES if isinstance(arguments.get(name), str)]
    bodies = [arguments[name] for name in _SENT if isinstance(arguments.get(name), dict)]
    # Of a tool whose schema takes them: to any other call a body may be added that nobody reads.
    takes = isinstance(declared, Mapping) and all(name in declared for name in _SENT if name in arguments)
    tries = (one.get("kind") == _DELETES and one.get("dryRun") == ["All"] for one in bodies)
    if takes and not paths and bodies and all(tries):
        return True
    if not paths or not all(map(_OF_CLUSTER.match, paths)):
        return False
    return all("dryRun=All" in path.partition("?")[2].split("&") for path in paths) or (
        bool(bodies) and all(body.get("dryRun") == ["All"] for body in bodies)
    )


_DELETES: Final = "DeleteOptions"  # of Kubernetes, whoever sends them
_TRIES: Final = ("server", "client", "All", ["All"])
# Where an API server of Kubernetes has its own resources, which no other server has there.
_OF_CLUSTER: Final = Lazy(
    r"^/(?:api/v1/(?:namespaces|nodes|persistentvolumes|pods|services|secrets|configmaps)\b|apis/[a-z0-9.-]+/v\d\w*/)"
)


class Put(NamedTuple):
    """What a patch puts somewhere: the names above it, its own, and the value."""

    above: tuple[str, ...]
    name: str
    value: Any


def patched(value: Mapping[str, Any]) -> Put | None:
    """What an operation of a JSON patch (RFC 6902) puts; nothing for any other object."""
    where = value.get("path")
    if value.get("op") not in ("add", "replace") or "value" not in value or not isinstance(where, str):
        return None
    parts = [part.replace("~1", "/").replace("~0", "~") for part in where.split("/", _MOST_FIELDS) if part]
    *above, name = [part for part in parts if not part.isdigit() and part != "-"] or [""]
    return Put(tuple(above), name, value["value"])


def requests_of(method: str, url: str) -> Iterator[ResourceEffect]:
    """The effects of a request to the interface of a known kind of server."""
    where = path_of(url)
    bare = where.split("?", 1)[0].rstrip("/") or "/"
    for one in vocabulary().requests:
        if method not in one.methods or (one.unless is not None and one.unless.search(bare) is not None):
            continue
        if one.live and _SANDBOX.search(url.partition("://")[2].partition("/")[0]) is not None:
            continue
        if one.path.search(bare) is not None or one.path.search(where) is not None:
            yield one.effect._replace(values=(url[:_LONGEST],), evidence=url[:_LONGEST])


_SANDBOX: Final = Lazy(r"(?i)sandbox|\b(?:test|staging|demo|mock|localhost|127\.0\.0\.1)\b")  # a host of play money


def path_of(url: str) -> str:
    """The path of a URL with its query; a path as it is."""
    rest = url.partition("://")[2]
    return (f"/{rest.partition('/')[2]}" if rest else url).split("#", 1)[0]


def _is_collection(path: str) -> bool:
    """Whether a path names things of one kind and none of them: `/api/v1/customers`, with nothing that selects some."""
    where, _, query = path.partition("?")
    *above, last = [part.lower() for part in where.split("/") if part] or [""]
    known = vocabulary()
    if singular(last) == last or not last.replace("-", "").replace("_", "").isalpha():
        return False
    if not spoken(last).isdisjoint(known.values["smallthings"]) or not all(map(_is_prefix, above)):
        return False
    return all(part.partition("=")[0].lower() in known.members["confirms"] for part in query.split("&") if part)


def _is_prefix(part: str) -> bool:
    return part in vocabulary().values["prefixes"] or _VERSION.fullmatch(part) is not None


_VERSION: Final = Lazy(r"v?\d{1,4}(?:[.-]\d{1,2}){0,3}(?:alpha\d?|beta\d?)?")
_LONGEST: Final = 160  # characters of a URL that are shown


# The API of a forge: who may push, keys that open it, and whether everybody sees it.
_REPOSITORY: Final = Lazy(r"^(?:\w+://[\w.:-]+)?(?:/api/v\d)?/(?:repos/[^/]+/[^/]+|projects/[^/]+)$")
_OF_FORGE: Final = Lazy(r"/(?:repos|orgs|projects|groups|user|enterprises)(?:/|$)")


def _of_forge(method: str, where: str, members: Mapping[str, Any], path: str) -> Iterator[ResourceEffect]:
    if _OF_FORGE.search(where) is None:
        return
    body = next((members[name] for name in _SENT if isinstance(members.get(name), dict)), members)
    given = {plain(str(name)): inner for name, inner in body.items()}
    above, _, last = where.rpartition("/")
    right = str(given.get("permission", given.get("role", given.get("accesslevel", "")))).lower()
    if above.endswith(("/collaborators", "/memberships", "/members")) or last in ("members", "invitations"):
        if right in ("admin", "maintain", "owner", "50", "40", "maintainer"):
            yield _request("permit", "repository", "one", path)
    elif last in ("keys", "deploy_keys") and "key" in given:
        if given.get("readonly") in OFF or given.get("canpush") in ON or where.endswith("/user/keys"):
            yield _request("permit", "repository", "one", path)
    elif (
        _REPOSITORY.search(where)
        and method != "POST"
        and (given.get("visibility") == "public" or ("private" in given and given["private"] in OFF))
    ):
        yield _request("expose", "repository", "one", path)


_SENT: Final = ("body", "json", "data", "payload", "input")
_HELD: Final[frozenset[Resource]] = frozenset(
    {"cloud-resource", "cloud-log", "storage", "cluster", "database", "backup", "defence"}
)


def _request(verb: Verb, resource: Resource, scope: EffectScope, shown: str) -> ResourceEffect:
    return ResourceEffect(verb, resource, scope, (shown,), "", shown)


def command_request(program: str, args: Sequence[str]) -> tuple[str, str, str]:
    """The method, the address and the body of the request that a command makes; no method where it makes none."""
    method = body = url = option = ""
    fields: dict[str, Any] = {}
    server = _SERVERS.get((program, *args[:1]), "")
    for at, word in enumerate(args[:_MOST_WORDS]):
        before, (option, sign, value) = option, word.partition("=") if word[:2] == "--" else (word, "", "")
        value = value if sign else args[at + 1] if at + 1 < len(args) else ""
        if option in ("-X", "--request", "--method") or (server and option == "-m"):
            method = value.upper()
        elif word.startswith("-X"):
            method = word.removeprefix("-X").removeprefix("=").upper()
        elif option in _BODIES or (server and option in ("-b", "--body")):
            body = value
        elif server and option in _FIELDS:
            field, _, told = value.partition("=")
            fields[field] = {"true": True, "false": False}.get(told, told)
        elif word in _SAID:
            method = word
        elif (
            not url
            and ("://" in word or (":" in word and "/" in word) or _OF_SERVER.match(word))
            and word[0] not in "-{@"
        ):
            url = word if "://" in word else f"http://{word}"
        elif server and at and not url and "/" in word and word[0] != "-" and not before.startswith("-"):
            url = f"{server}/{word.lstrip('/')}"
    body = body or (orjson.dumps(fields).decode() if fields else "")
    return (method or ("POST" if body else "GET" * bool(url)), url, body)


_SERVERS: Final[Mapping[tuple[str, ...], str]] = {
    ("gh", "api"): "https://api.github.com", ("glab", "api"): "https://gitlab.com/api/v4",
    ("az", "rest"): "https://management.azure.com",
}  # fmt: skip
_FIELDS: Final = frozenset({"-f", "-F", "--field", "--raw-field"})
_BODIES: Final = frozenset({"-d", "--data", "--data-raw", "--data-binary", "--json", "--body-data", "--post-data"})
_OF_SERVER: Final = Lazy(r"^\$[{\w}]{2,40}/apis?/")  # whose name a variable holds
_SAID: Final = frozenset({"DELETE", "PUT", "POST", "PATCH"})
_MOST_WORDS: Final = 64
