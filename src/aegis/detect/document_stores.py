"""What commands of document databases and search engines do that are given as documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aegis.core.effects import ResourceEffect, Verb
from aegis.core.patterns import Lazy
from aegis.detect.endpoints import ON, is_everything, plain
from aegis.detect.permissions import is_highest
from aegis.detect.roles import words_of
from aegis.detect.tool_words import is_throwaway, letters_in, spoken, vocabulary

_SHOWN: Final = 80


def database_command(members: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """What a command or a pipeline of a document database does that is given as a document."""
    if members.get("dropdatabase") in (1, True, "1"):
        yield ResourceEffect("delete", "database", "all", (), "", "dropDatabase")
    elif "createuser" in members or "grantrolestouser" in members:
        roles = members.get("roles")
        for role in roles if isinstance(roles, list) else ():
            named = str(role.get("role", "")) if isinstance(role, dict) else str(role)
            if is_highest(named):
                yield ResourceEffect("permit", "account", "all", (named,), "", f"role {named}")
    elif members.get("showcredentials") is True and ("usersinfo" in members or "users" in members):
        yield ResourceEffect("read", "credential", "many", (), "", "showCredentials")
    elif str(members.get("drop", "0"))[:1].isalpha() and isinstance(members["drop"], str) and members.keys() <= _BESIDE:
        yield ResourceEffect("delete", "table", "all", (members["drop"],), "", f"drop {members['drop']}")
    dropped = members.get("removeindex")
    if isinstance(dropped, dict):  # an action on aliases
        indices = dropped.get("indices", dropped.get("index"))
        names = [str(one) for one in (indices if isinstance(indices, list) else [indices])]
        if names and not all(map(is_throwaway, names)):
            yield ResourceEffect("delete", "table", "many", tuple(names), "", f"remove_index {names[0]}"[:_SHOWN])
    source, into = (one if isinstance(one := members.get(name), dict) else {} for name in ("source", "dest"))
    name = str(into.get("index", ""))
    # Into what others live on, or what the source was made beside: documents of the same number are replaced.
    is_live = str(source.get("index")).strip("[]'").startswith((f"{name}-", f"{name}_", f"{name}."))
    keeps = into.get("op_type") == "create" or is_throwaway(name)
    if name and source and not keeps and (is_live or letters_in(name) & _LIVE):
        yield ResourceEffect("write", "record", "all", (name,), "", f"reindex into {name}"[:_SHOWN])
    many = members.get("deletemany")  # of a batch
    removed = members.get("delete", many.get("filter") if isinstance(many, dict) else None)
    if isinstance(removed, dict) and (removed or many) and is_everything(removed):  # an update of Solr
        yield ResourceEffect("delete", "record", "all", (), "", "delete")
    for name in ("deletes", "updates"):
        listed = members.get(name)
        for one in [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else ():
            if is_everything(one.get("q")) and (one.get("multi") in ON or not one.get("limit", name == "updates")):
                yield ResourceEffect("delete" if name == "deletes" else "write", "record", "all", (), "", name)
    target = str(members.get("to", members.get("newname", members.get("target", ""))))
    if members.get("droptarget") in ON and not is_throwaway(target):
        yield ResourceEffect("delete", "table", "many", (target,), "", f"dropTarget {target}"[:_SHOWN])


_LIVE: Final = frozenset({"prod", "production", "live"})
# What stands beside the name of a command, which others than databases have as well.
_BESIDE: Final = frozenset({
    "drop", "db", "$db", "database", "dbname", "databasename", "writeconcern", "comment", "lsid", "maxtimems",
})  # fmt: skip
_DATABASES: Final = ("database", "db", "dbName", "database_name", "databaseName")
_ON_COLLECTIONS: Final = ("aggregate", "createIndexes", "collMod")
_COLLECTIONS: Final = ("collection", "coll", "collectionName", "collection_name")


def changes_all(arguments: Mapping[str, Any], deed: str) -> Iterator[tuple[str, ResourceEffect]]:
    """What a call does to all of a table or collection, and the name of the condition that spares none of it."""
    known, words = vocabulary().values, frozenset(words_of(deed))
    inner = [one for name in _INNER if isinstance(one := arguments.get(name), dict)]
    written = {plain(str(name)): str(name) for held in (*inner, arguments) for name in held}
    given = {plain(str(name)): one for held in (*inner, arguments) for name, one in held.items()}
    deletes, spares = not words.isdisjoint(known["removing"]), sorted(known["sparing"] & given.keys())
    changes = not words.isdisjoint(known["altering"]) and not given.keys().isdisjoint(known["newvalues"])
    if not spares or not (deletes or changes) or given.get("justone") in ON or not words.isdisjoint(known["onerow"]):
        return
    of_rows, places = _named(given, "ofrows"), [str(given[name]) for name in known["located"] & given.keys()]
    held = of_rows or _named(given, "ofdocuments")
    many = of_rows or deletes or not words.isdisjoint(_MANY) or any(given.get(name) in ON for name in _MANY)
    tried = is_throwaway(held) or any(_NEAR.search(one) is not None or is_throwaway(one) for one in places)
    if held and many and not tried and all(_spares_none(given[name]) for name in spares):
        verb: Verb = "delete" if deletes else "write"
        yield written[spares[0]], ResourceEffect(verb, "record", "all", (held,), "", f"{deed} {held}"[:_SHOWN])


def _named(members: Mapping[str, Any], kind: str) -> str:
    names = sorted(vocabulary().values[kind] & members.keys())
    return next((members[name] for name in names if isinstance(members[name], str)), "")


def _spares_none(condition: Any) -> bool:
    if isinstance(condition, str) and condition.strip() and _ALWAYS.search(condition) is None:
        from aegis.detect.chosen_rows import selects_every  # whose parser takes long to load

        return selects_every(condition)
    return condition in (None, []) or isinstance(condition, str) or is_everything(condition)


_INNER: Final = ("args", "options", "params", "payload")  # members that have more of them inside
_MANY: Final = ("many", "all", "bulk", "multi", "updatemany")
_NEAR: Final = Lazy(r"(?i)\b(?:localhost|127\.0\.0\.1|host\.docker\.internal)\b|\[::1\]")
_ALWAYS: Final = Lazy(r"(?i)^\s*(?:true\(\)|attribute_exists\(\s*#?\w+\s*\)|1\s*=\s*1|true|\*)\s*$")


def own_accounts(members: Mapping[str, Any], tool: str) -> Iterator[ResourceEffect]:
    """Whether the table is read in which a database keeps its own accounts with what they sign in by."""
    known = vocabulary().values
    table = (_named(members, "ofdocuments") or _named(members, "ofrows")).lower()
    named = {table, f"{_named(members, 'ofdatabases').lower()}.{table}"}
    if not table or known["ownaccounts"].isdisjoint(named) or not known["shapes"].isdisjoint(words_of(tool)):
        return
    shown = [str(members[name]) for name in known["chosen"] & members.keys() if members[name]]
    if not shown or any(map(_PROVES.search, shown)):
        yield ResourceEffect("read", "credential", "many", (table,), "", f"{tool} {table}"[:_SHOWN])


_PROVES: Final = Lazy(r"(?i)credential|passw|hash|auth|salt|spare|\*")


def stored(value: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """Where a pipeline writes what it found: into another database, or over the collection that it read."""
    for stage in ("$out", "$merge"):
        target = value.get(stage)
        if stage == "$merge" and isinstance(target, dict):
            target = target.get("into")
        if isinstance(target, dict) and isinstance(target.get("db"), str):
            own = [arguments[name] for name in _DATABASES if name in arguments]
            if own and target["db"] not in own:
                shown = f"{target['db']}.{target.get('coll', '')}"
                if not is_throwaway(target["db"]):
                    yield ResourceEffect("send", "database", "one", (shown,), "", f"{stage} {shown}")
                continue
            target = target.get("coll")
        if stage != "$out" or not isinstance(target, str):
            continue
        if target in _read_from(arguments) or (_PLAIN.match(target) and target not in vocabulary().values["workedout"]):
            yield ResourceEffect("write", "record", "all", (target,), "", f"{stage} {target}")


# A collection by one plain word, without those for what is worked out of others.
_PLAIN: Final = Lazy(r"^[a-z]{3,30}s$")
# Collections whose documents are made to end soon, by a word of their names.
_SHORT_LIVED: Final = frozenset({
    "cache", "carts", "challenge", "code", "event", "heartbeat", "job", "lock", "log", "metric", "nonce", "otp",
    "presence", "queue", "rate", "session", "state", "token",
})  # fmt: skip
_SOON: Final = 3_600  # seconds
_KEYS: Final = ("key", "keys", "keyPattern")
_MOMENTS: Final = Lazy(r"(?i)expir|ttl|until|valid|delete|purge|end")


def expires(value: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[ResourceEffect]:
    """Whether an index lets every document of a collection end soon, though nothing says that they are made for it.

    With zero seconds each ends at the moment that it holds itself, if that is what the field is.
    """
    seconds = value.get("expireAfterSeconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds > _SOON:
        return
    fields = next((value[name] for name in _KEYS if name in value), arguments.get("keys"))
    if isinstance(fields, dict) and any(_MOMENTS.search(str(name)) is not None for name in fields):
        return
    names = [name for name in _read_from(arguments) if isinstance(name, str)]
    if names and all(is_throwaway(one) or not _SHORT_LIVED.isdisjoint(spoken(one)) for one in names):
        return
    yield ResourceEffect("delete", "table", "many", tuple(names), "", f"expireAfterSeconds: {seconds}")


def _read_from(arguments: Mapping[str, Any]) -> list[Any]:
    """The collections that a call or the command in it is about."""
    command = arguments.get("command")
    inner = [command.get(name) for name in _ON_COLLECTIONS] if isinstance(command, dict) else []
    return [*inner, *(arguments.get(name) for name in _COLLECTIONS)]
