"""What a request to the API of a server does: it deletes, opens, runs or permits, by its method, path and body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aegis.core.effects import EffectScope, Resource, ResourceEffect, Verb
from aegis.core.patterns import Lazy
from aegis.detect.resources import words_of_resources

ALL: Final = frozenset({"*", "_all", "all", "/*", "/_all", "%", ".*"})
ON: Final = (True, "true", "True", "enabled", "Enabled")
OFF: Final = (False, "false", "False")


def plain(name: str) -> str:
    """A name of a member in small letters, without the signs that divide its words."""
    return "".join(char for char in name.lower() if char.isalnum())


def is_everything(value: Any) -> bool:
    """Whether a condition selects everything there is."""
    if value == {} or (isinstance(value, str) and value.strip() in ("{}", "*", "*:*", "1=1", "true")):
        return True
    if isinstance(value, dict):
        if "match_all" in value:
            return True
        inner = value.get("query")
        return isinstance(inner, dict) and is_everything(inner)
    return False


def of_request(members: Mapping[str, Any], *, deletes: bool) -> Iterator[ResourceEffect]:
    """A request to the API of a server: a deletion of everything, a query that selects all."""
    method = members.get("method", members.get("httpmethod", members.get("verb")))
    path = next(
        (members[name] for name in ("path", "endpoint", "url", "uri", "route") if isinstance(members.get(name), str)),
        "",
    )
    if isinstance(method, str) and path:
        where = path.split("?", 1)[0].rstrip("/")
        last = where.rpartition("/")[2]
        if method.upper() == "DELETE":
            if last in ALL or not where.replace("://", "").strip("/"):
                yield _request("delete", "table", "all", path)
            elif _NAMESPACE.search(where):
                yield _request("delete", "namespace", "all", path)
            elif _GUARDS.search(where):
                yield _request("disable", "defence", "one", path)
            elif _REPOSITORY.search(where):
                yield _request("delete", "repository", "all", path)
            else:
                kinds = [words_of_resources().get(part) for part in where.lower().split("/")[-2:]]
                resource = next((kind for kind in reversed(kinds) if kind in _HELD), None)
                if resource is not None:
                    yield _request("delete", resource, "one", path)
                elif kinds[-1:] == ["account"]:
                    yield _request("disable", "account", "all", path)
        elif last == "_delete_by_query" and (members.get("body") is None or is_everything(members.get("body"))):
            yield _request("delete", "record", "all", path)
        if method.upper() in ("POST", "PUT", "PATCH"):
            yield from _of_forge(method.upper(), where, members, path)
            if _RUNS_CODE.search(where) is not None:
                yield _request("execute", "program", "one", path)
            elif _ON_NODE.search(where) is not None:
                yield _request("escalate", "container-host", "one", path)
    index = members.get("index")
    if isinstance(index, str) and index.lower() in ALL and deletes:
        yield _request("delete", "table", "all", index)


# The API of a forge: what guards a branch, who may push, keys that open it, and whether everybody sees it.
_GUARDS: Final = Lazy(
    r"/branches/[^/]+/protection(?:/[\w-]+)?$|/protected_branches/[^/]+$|/rulesets/\d+$|/vulnerability-alerts$|/secret-scanning\b|"
    r"/push_rule$|/audit-?logs?(?:/|$)"
)
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
# Where servers run what they are sent: a build server's console, an agent's checks, jobs of a cluster of workers.
_RUNS_CODE: Final = Lazy(
    r"/scriptText$|/script$|/v1/agent/(?:check|service)/register$|/ws/v1/cluster/apps$|/v1/submissions/create$|"
    r"/jars/upload$|/_scripts/|/api/v1/dags/[^/]+/dagRuns$|/solr/[^/]+/config$"
)
_ON_NODE: Final = Lazy(r"^/(?:run|exec)/[^/]+/[^/]+/[^/]+$")  # of a kubelet
_HELD: Final[frozenset[Resource]] = frozenset(
    {"cloud-resource", "cloud-log", "storage", "cluster", "database", "backup", "defence"}
)
_NAMESPACE: Final = Lazy(r"/api/v1/namespaces/[^/]+$")


def _request(verb: Verb, resource: Resource, scope: EffectScope, shown: str) -> ResourceEffect:
    return ResourceEffect(verb, resource, scope, (shown,), "", shown)
