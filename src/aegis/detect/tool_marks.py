"""What the members of a call say beside its verb: how far it reaches, whom it lets in, what it switches off.

Each is a mark (`tool_words.MARKS`) with the member that says it. Which words mean what is data, in `data/tools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from aegis.core.patterns import Lazy
from aegis.detect.endpoints import ALL, is_everything, plain
from aegis.detect.permissions import is_source, opened_networks
from aegis.detect.resources import host_place
from aegis.detect.roles import words_of
from aegis.detect.tool_members import (
    LONGEST,
    LONGEST_POLICY,
    MOST_MEMBERS,
    AskedFor,
    Member,
    kinds_of,
    members_of,
    names_a_thing,
)
from aegis.detect.tool_words import Vocabulary, is_throwaway, letters_in, spoken, vocabulary


def marked(asked: AskedFor, members: Sequence[Member], known: Vocabulary, wanted: frozenset[str]) -> dict[str, Member]:
    """What the members of a call say beside its verb, each with the member that says it.

    What nobody asked for need not be there where it costs a walk of its own.
    """
    found: dict[str, Member] = {}
    rare = not _RARE.isdisjoint(wanted)
    for member in members:
        for mark in _marks_of(member, asked, known):
            if mark == "expires" and _is_of_scratch(member, members):
                continue
            if mark not in _GIVEN or not _is_taken_away(member, known):
                found.setdefault(mark, member)
        if rare and isinstance(member.value, str) and len(member.value) <= LONGEST:
            for mark in _rare(member, member.value.strip().lower(), known):
                found.setdefault(mark, member)
    if "elsewhere" in wanted and ("door" in found or "vital-record" in found):
        _points_elsewhere(members, found)
    if "unprotected" not in found and "unprotected" in wanted:
        _switched_by_name(members, known, found)
    if asked.is_request and asked.words & known.values["production"]:
        found.setdefault("production", Member("", frozenset(), frozenset(), "path", asked.shown))
    is_of_all = (asked.pointer or asked.is_request) and asked.words & _EVERY
    if is_of_all and not any(names_a_thing(member, known) for member in members):
        found.setdefault("all", Member("", frozenset(), frozenset(), "all", "all"))
    roles = (one.value.lower() for one in members if isinstance(one.value, str) and "roles" in kinds_of(one.words))
    only_reads = any(map(_ONLY_READS.search, roles))
    taken_away = any(_is_off(one, known) or _is_demotion(one, known) for one in members)
    for word, mark in (("public", "public"), ("anonymous", "public"), ("admin", "admin"), ("superuser", "admin")):
        if (
            word in asked.words
            and asked.words.isdisjoint(_NOT_OPEN)
            and not (word == "admin" and (_is_of_product(word, asked.shown) or only_reads or taken_away))
        ):
            found.setdefault(mark, Member("", frozenset(), frozenset(), word, word))
    if any(one.name == "operationtype" and str(one.value).lower() in ("remove", "revoke") for one in members):
        found.pop("public", None)  # of AWS: what was shared is taken back
    if found.get("all", _NOBODY).value == "" and any(_is_of_list(member) for member in members):
        del found["all"]  # an empty text beside a list of what is named one by one; an empty object still selects all
    if not _INSIDE.isdisjoint(wanted):
        _item(asked, members, known, found)
    if _THROWAWAY in wanted:
        _throwaway(asked, members, known, found)
    opens = len(members) >= MOST_MEMBERS or any(is_source(one.name) or one.value == _LAST_ADDRESS for one in members)
    if opens and not _OF_NETWORKS.isdisjoint(wanted):
        for mark, source in opened_networks(asked.given, asked.words):
            found[mark] = Member("", frozenset(), frozenset(), "source", source)
    return found


# Marks of who is let in, and as what.
_GIVEN: Final = frozenset({"public", "admin", "superuser"})


def _is_taken_away(member: Member, known: Vocabulary) -> bool:
    """Whether a member stands in what a call takes away: `{"LaunchPermission": {"Remove": [{"Group": "all"}]}}`."""
    return not known.members["takenaway"].isdisjoint(member.words | member.above)


def _is_of_scratch(member: Member, members: Sequence[Member]) -> bool:
    """Whether a rule for objects that end is for those alone whose names say that they are to be thrown away."""
    rule = _RULE.match(member.pointer)
    prefixes = [one.value for one in members if rule and one.pointer.startswith(rule.group()) and "prefix" in one.words]
    return bool(prefixes) and all(isinstance(one, str) and is_throwaway(one) for one in prefixes)


_RULE: Final = Lazy(r"(?i)^.*/rules?/\d+/")
_NOBODY: Final = Member("", frozenset(), frozenset(), "", None)


@lru_cache(maxsize=4_096)
def _is_of_product(word: str, tool: str) -> bool:
    """Whether a word stands before the verb of a tool's name, as in the name of a product: `google_admin_get_user`."""
    words = words_of(tool)
    behind = [at for at, each in enumerate(words) if each == word]
    return bool(behind) and not any(each in vocabulary().verbs and each != word for each in words[: behind[-1]])


def _is_of_list(member: Member) -> bool:
    """Whether a member is one of a list of identifiers (`ids`), and not the place in which everything lies."""
    return member.name.endswith("ids") and bool(member.value) and str(member.value).strip().lower() not in ALL


def _points_elsewhere(members: Sequence[Member], found: dict[str, Member]) -> None:
    """Mark a record that points to a host outside of the zone of the name that it is for."""
    zones = {".".join(str(one.value).lower().rstrip(".").split(".")[-2:]) for one in members if _is_host(one, "hosts")}
    for one in members:
        if _is_host(one, "points") and ".".join(str(one.value).lower().rstrip(".").split(".")[-2:]) not in zones:
            found["elsewhere"] = one


def _is_host(member: Member, kind: str) -> bool:
    value = member.value
    return kind in kinds_of(member.words) and isinstance(value, str) and _HOST.fullmatch(value.strip()) is not None


_HOST: Final = Lazy(r"(?i)(?:[\w-]{1,63}\.){1,8}[a-z][\w-]{1,30}\.?")


_RARE: Final = frozenset({
    "address", "boundless", "deletes", "door", "endless", "payee", "some", "telltale", "unlocked", "wild", "wildname",
})  # fmt: skip
_THROWAWAY: Final = "throwaway"
_LAST_ADDRESS: Final = "255.255.255.255"
_OF_NETWORKS: Final = frozenset({"open-net", "every-port", "admin-port"})
_SCOPES: Final = frozenset({"scope", "select", "selection", "target", "targets", "range", "filter"})
_ALL_OF: Final = Lazy(r"^(?:all|every)[_ -][a-z]+$")  # `all_charges`
_ONLY_READS: Final = Lazy(r"read[_ -]?only|viewer|auditor$|^(?:read|pull|member|guest|none)$")
_EVERY: Final = frozenset({"all", "every", "everything"})
_NOT_OPEN: Final = frozenset({"block", "key", "ip"})  # `public_access_block`, `public_key`, `public_ip`


def _marks_of(member: Member, asked: AskedFor, known: Vocabulary) -> Iterator[str]:
    value, kinds, name = member.value, kinds_of(member.words), member.name
    switched = _switch(value, known)
    if switched is not None:
        yield from _switched(member, asked, switched, known)
    if value in (0, "0") and value is not False and "replicas" in kinds:
        yield "zero"
    if _is_short(member, known):
        yield "short"
    if name.endswith("accesslevel") and value in _HIGHEST_LEVELS:
        yield "admin"
    if name == "sharetype" and value in _OF_LINKS:
        yield "public"
    if ("limits" in kinds and _NINES.fullmatch(str(value)) is not None) or str(value).lower() in _MOST_OF_ALL:
        yield "boundless"
    if value in (0, 1) and not isinstance(value, bool) and "days" in kinds and "abort" not in member.above:
        yield "expires"
    is_condition = name in known.members["selects"] and not member.above & known.members["selects"]
    if is_condition and (is_everything(value) or value == "" or _ALWAYS.search(str(value)) is not None):
        yield "all"
    if not isinstance(value, str) or not value or len(value) > LONGEST_POLICY:
        return
    lowered = value.strip().lower()
    is_role = "roles" in kinds
    is_selected = "any" not in kinds and not member.above & known.members["contents"]
    if lowered == "/" and name in _WHERE:
        yield "all"
    every = lowered in ALL or (name in _SCOPES and _ALL_OF.search(lowered) is not None)
    if every and is_selected and (not is_role or name in known.members["reaches"]):
        yield "all"
    if (
        is_role
        and _ONLY_READS.search(lowered) is None
        and (
            _POWERS.search(value) is not None
            or (lowered in ALL and "grantable" in kinds)
            or lowered in known.values["admin"]
            or (" " not in lowered and lowered.replace("_", "-").rpartition("-")[2] in known.members["highest"])
            or plain(lowered.rpartition("/")[2]) in known.values["admin"]
            or ("groups" in kinds and lowered.rpartition(" ")[2] in known.values["admins"])
            or (lowered in ALL and asked.words & known.members["roles"])
        )
    ):
        yield "admin"
    if (is_role or "policytexts" in kinds) and _SUDO.search(value) is not None:
        yield "admin"
    if lowered in ALL and "grants" in kinds and asked.words & known.members["roles"]:
        yield "admin"
    if len(value) > LONGEST:
        return
    if "people" in kinds and lowered.partition("@")[0] in known.values["superuser"]:
        yield "superuser"
    if ("reached" in kinds or not known.members["reached"].isdisjoint(member.above)) and (
        (plain(lowered) in known.values["public"] and member.above.isdisjoint(known.members["holds"]))
        or (lowered == "default" and "scope" in member.above)
        or ("shared" in kinds and _says_everybody(spoken(value), known))
    ):
        yield "public"
    if "authentication" in kinds and lowered in known.values["off"]:
        yield "public"
    if "defaults" in kinds and lowered in known.values["admits"] and asked.words & known.members["protects"]:
        yield "unprotected"
    if "ciphers" in kinds and plain(lowered) in known.values["weak"]:
        yield "unprotected"
    if "deploykey" in asked.words and lowered in ("write", "readwrite", "read_write", "read-write", "rw"):
        yield "writable"
    if "branches" in kinds and lowered.rpartition("/")[2] in known.values["main"]:
        yield "main"
    if name in known.members["recordtype"] and value.strip().upper() in known.values["vital"]:
        yield "vital-record"
    if names_a_thing(member, known):
        said = letters_in(lowered)
        if said & known.values["production"]:
            yield "production"
        if spoken(value) & known.members["protects"]:
            yield "guarding"
        if said & known.values["audit"] and not lowered.startswith(("http:", "https:")):
            yield "audit"
    if "@" in value and "://" not in value:
        yield "person"
    if "://" in value and host_place(value) in ("address", "collector", "tunnel"):
        yield "outside"
        if "calls" in kinds and host_place(value) == "address":
            yield "wired"


def _says_everybody(words: frozenset[str], known: Vocabulary) -> bool:
    return not words.isdisjoint(known.values["openwords"]) and words.isdisjoint(known.members["shuts"])


def _rare(member: Member, lowered: str, known: Vocabulary) -> Iterator[str]:
    """The marks of a short value that few deeds ask for."""
    kinds, name = kinds_of(member.words), member.name
    if "states" in kinds and lowered in known.values["gone"]:
        yield "deletes"
    if "states" in kinds and lowered in known.values["unlocked"]:
        yield "unlocked"
    if not letters_in(lowered).isdisjoint(known.values["telltale"]):
        yield "telltale"
    if "payees" in kinds and any(char.isdigit() for char in lowered):
        yield "payee"
    if "*" in lowered and "texts" not in kinds:
        yield "wild"
        if name in known.members["hosts"]:
            yield "wildname"
    if "lasts" in kinds and (lowered in known.values["endless"] or _YEARS.fullmatch(lowered) is not None):
        yield "endless"
    if "limits" in kinds and lowered in known.values["endless"]:
        yield "boundless"
    if "idents" in kinds and lowered not in ALL:
        yield "some"
    if name in known.members["hosts"] and lowered.partition(".")[0] in known.values["doors"]:
        yield "door"
    if lowered[-1:].isdigit() and host_place(lowered) == "address":
        yield "address"


_WHERE: Final = ("path", "ref", "reference", "node", "location")  # of which a bare slash is everything there is
_HIGHEST_LEVELS: Final = (40, 50, 60, "40", "50", "60")  # maintainers, owners and administrators of GitLab
_OF_LINKS: Final = (3, "3")  # of Nextcloud: a share of whoever has its address
_YEARS: Final = Lazy(r"(?:\d{4,}h|\d{3,}d|\d{2,}w|p\d+y|\d+ ?y(?:ears?)?)")


def _switched_by_name(members: Sequence[Member], known: Vocabulary, found: dict[str, Member]) -> None:
    """Mark what is switched off by a name beside the switch: `{"flag": "require-mfa", "on": false}`."""
    switches = [one for one in members if _is_off(one, known) or _turns_off(one)]
    if not switches:
        return
    guards = {
        one.pointer.rpartition("/")[0]
        for one in members
        if isinstance(one.value, str)
        and names_a_thing(one, known)
        and (said := spoken(one.value)) & known.values["safeguards"]
        and said.isdisjoint(known.members["undoing"])
    }
    for one in switches if guards else ():
        above = one.pointer
        for _ in range(_NEAR):
            above = above.rpartition("/")[0]
            if above in guards:
                found["unprotected"] = one
                return


def _turns_off(member: Member) -> bool:
    """Whether a member says what is done, and that something is switched off by it: `{"kind": "turnFlagOff"}`."""
    return member.name in _TELLS and isinstance(member.value, str) and not _OFF.isdisjoint(spoken(member.value))


_TELLS: Final = frozenset({"kind", "action", "op", "operation", "instruction"})
_OFF: Final = frozenset({"off", "disable", "deactivate"})
_NEAR: Final = 4  # objects between a switch and the name of what it switches


def _is_off(member: Member, known: Vocabulary) -> bool:
    """Whether a member is a bare switch that is off, or the value nothing."""
    is_bare = bool(member.words) and member.words <= known.members["switches"]
    return is_bare and (member.value == 0 or _switch(member.value, known) is False)


def _is_demotion(member: Member, known: Vocabulary) -> bool:
    """Whether a member says that somebody is no administrator: `is_admin: false`."""
    return not member.words.isdisjoint(known.values["admin"]) and _switch(member.value, known) is False


def _switch(value: Any, known: Vocabulary) -> bool | None:
    """Whether a value switches something on or off; nothing for every other value."""
    if isinstance(value, str):
        lowered = value.strip().lower()
        return True if lowered in known.values["on"] else False if lowered in known.values["off"] else None
    return value if isinstance(value, bool) else None


def _switched(member: Member, asked: AskedFor, on: bool, known: Vocabulary) -> Iterator[str]:
    """What a member says that is switched on, or off."""
    if member.pointer.count("/") > 1 and _STARTS.search(member.pointer) is not None and asked.words & _RUN:
        return  # a variable of what is started, which is read as a shell sets it
    words, kinds = member.words, kinds_of(member.words)
    if "only" in words:  # `only_allow_merge_if_pipeline_succeeds`
        kinds -= {"negates"}
    own = words - known.members["switches"]
    if on and "holds" in kinds and "negates" not in kinds:
        return  # `enable_purge_protection: true`
    if on:
        if "weakens" in kinds and words & known.members["lets"]:
            yield "unprotected"
        if "forces" in kinds and "brute" not in words:
            yield "force"
        if words & _EVERY and "any" not in kinds:
            yield "all"
        if "softdelete" not in words and any("delete" in known.verbs.get(word, ()) for word in words):
            yield "deletes"
        if _is_highest_flag(member, known):
            yield "admin"
        if "bares" in kinds:
            yield "unprotected"
        if "unrecoverable" in kinds or member.name in known.members["unrecoverable"]:
            yield "unrecoverable"
        if "opens" in kinds and "shuts" not in kinds:
            yield "public"
        if member.pointer.endswith(_OPEN_RULES):
            yield "ruled-open"
        if "writes" in kinds:
            yield "writable"
        denied = asked.words if words <= known.members["negates"] else words
        keeps = known.members["lets"] | known.members["holds"]
        ends_frail = words & known.members["frail"] and words.isdisjoint(keeps)
        if "negates" in kinds and denied & known.members["protects"] and not ends_frail:
            yield "unprotected"
        return
    if "hides" in kinds and "negates" not in kinds:
        yield "unhidden"
    if "readonly" in kinds:
        yield "writable"
    is_bare = own <= known.members["switches"]
    held = words | member.above | (asked.words if is_bare else frozenset())
    # What is switched off is what the switch or the object around it is called, not all that it stands in.
    named = spoken(member.pointer.split("/")[-2]) if is_bare else words
    ends_frail = named & (known.members["frail"] | known.members["undoing"]) and held.isdisjoint(known.members["holds"])
    if "negates" in kinds or "may" in kinds or ends_frail:
        return
    # `deletion_protection: false`, `mfa: {enabled: false}`, and `enabled: false` said to what protects.
    said = held if is_bare else words
    if (
        said & known.members["protects"]
        or (is_bare and said & known.members["guards"])
        or ("demands" in kinds and len(own) > 1)
    ):
        yield "unprotected"


_RUN: Final = frozenset({"run", "exec", "execute", "spawn", "process", "subprocess", "shell", "terminal"})
_STARTS: Final = Lazy(r"(?i)^/(?:env|environ|environment|envs|env_?vars)/[^/]+$")
_OPEN_RULES: Final = ("/.write", "/rules/.read")  # of Firebase: who writes, and who reads all of it


def _is_highest_flag(member: Member, known: Vocabulary) -> bool:
    """Whether a switch says that somebody is an administrator."""
    return member.name.removeprefix("is") in known.values["admin"]


def _is_short(member: Member, known: Vocabulary) -> bool:
    """Whether a time for which something is kept is none to speak of."""
    text = str(member.value)
    ends = member.name == "minage" and "delete" in member.above  # of Elasticsearch, before an index is deleted
    if "keeps" not in kinds_of(member.words) and not ends:
        return False
    if _MINUTES.fullmatch(text.lower()) is not None:
        return True
    if isinstance(member.value, bool) or not text.removeprefix("-").isdigit() or text.startswith("-"):
        return False
    parts = {"ms"} & member.words or {"second", "seconds"} & member.words
    least = _SHORT_MS if "ms" in parts else _SHORT_SECONDS if parts else 1
    return int(text[:_MOST_DIGITS]) <= least


# The highest number of 256 bits: all that somebody has, of a token and of every later one.
_MOST_OF_ALL: Final = frozenset({str(2**256 - 1), hex(2**256 - 1), hex(2**256 - 1)[2:]})
_NINES: Final = Lazy(r"9{6,}(?:\.9+)?")
_MINUTES: Final = Lazy(r"(?:0+|1)h|0+d|\d{1,7}ms|\d{1,4}s|\d{1,2}m|\d{1,2} ?min(?:ute)?s?")
_MOST_DIGITS: Final = 48
_SHORT_MS: Final = 3_600_000
_SHORT_SECONDS: Final = 3_600
# Rights that reach everything in directories, mail and customers' records, by the names that vendors gave them.
_POWERS: Final = Lazy(
    r"(?i)\b(?:RoleManagement|Directory|AppRoleAssignment|Application|User|Mail|Files|Sites)\.(?:ReadWrite|FullControl|Manage)\.(?:All|Directory)|"
    r"ModifyAll(?:Data|Records)|ManageUsers|AuthorApex|full_access_as_app|\b(?:domain|enterprise|schema) admins\b"
)
_SUDO: Final = Lazy(
    r"\"sudo\"|path\s+\"\*\"|\b(?:acl|operator)\s*=\s*\"write\"|_prefix\s+\"\"\s*\{\s*policy\s*=\s*\"write\"|namespace\s+\"\*\"\s*\{\s*policy\s*=\s*\"write\"|^\s*(?:\*|allow)\s*:\s*\*\s*$"
)
# A condition that every row or document fulfils, in the languages of forges, trackers and shops.
_ALWAYS: Final = Lazy(
    r"(?i)^\s*(?:(?:status\.|metadata\.|spec\.)?[\w/-]{1,60}!=[\w-]{1,60}|\w+(?:\.\w+)?\s+(?:is\s+not|!=|<>)\s+(?:null|empty|''|\"\")|\(?1\s*=\s*1\)?|\w+\s+(?:like|~)\s+['\"][%*.]+['\"]|"
    r"select\s[^;]{1,300}\sfrom\s+[\w.\"`]{1,80}\s*;?|is_?deleted\s*(?:=|is)\s*(?:false|0)|(?:created|updated|id)\s*(?:>=?|<=?)\s*['\"]?(?:0|19\d\d\S*)['\"]?|\w+:\*|all|(?:profile\.)?(?:status|active)\s+eq\s+\"?(?:active|true)\"?)\s*$"
)


def _throwaway(asked: AskedFor, members: Sequence[Member], known: Vocabulary, found: dict[str, Member]) -> None:
    """Mark a call that names only what was made to be thrown away; a namespace counts for what lies in one."""
    if "production" in found or "all" in found or "main" in found:
        return
    naming = known.members["naming"] | asked.words
    named = [member for member in members if member.words & naming and names_a_thing(member, known)]
    kinds = known.members["kindnames"] - asked.words
    kept = [member for member in named if not member.words & kinds]
    spaces = [member for member in kept if member.words & known.members["spaces"]]
    others = [member for member in kept if member not in spaces]
    # What has the name of the thing itself, or no name but that it is one: not the database that a table lies in.
    own = [member for member in others if member.words & asked.words]
    things = [*own, *(member for member in others if member.name in known.members["generic"])] if own else others
    stores = [member for member in kept if own and member.name in known.members["stores"]]
    in_space = bool(spaces) and bool(asked.words & known.members["inspaces"])
    for judged in (spaces if in_space else (), stores, things or (spaces if "namespace" in asked.words else ())):
        if judged and all(is_throwaway(str(member.value)) for member in judged):
            found[_THROWAWAY] = judged[0]
            return


def _item(asked: AskedFor, members: Sequence[Member], known: Vocabulary, found: dict[str, Member]) -> None:
    """Mark a call that names what lies in the thing that it is about, or in one that production is only the place of.

    `{"index": "manuals", "ids": ["doc-881"]}`, `{"workspace": "prod", "task": "1209"}`.
    """
    inside = [one for one in members if one.name in known.members["items"]]
    named = [one for one in inside if isinstance(one.value, (str, int)) and not _is_open(str(one.value))]
    if not named:
        return
    others = [one for one in named if one.name not in asked.words]
    if others and any(member.name in asked.words and names_a_thing(member, known) for member in members):
        found["item"] = others[0]
    place = found.get("production", _NOBODY)
    if place.name in known.members["places"] and letters_in(str(named[0].value).lower()).isdisjoint(
        known.values["production"]
    ):
        found["inside"] = named[0]


_INSIDE: Final = frozenset({"item", "inside"})


def _is_open(value: str) -> bool:
    """Whether a value stands for many things, or for one after another of a program (`VALUE`)."""
    return "*" in value or value.strip().lower() in ALL or "VALUE" in value


def in_trial_store(arguments: Mapping[str, Any]) -> bool:
    """Whether a call names a database that was made for trying things out, whose rows nobody lives on."""
    return any(is_throwaway(name) for one in _STORES if isinstance(name := arguments.get(one), str))


_STORES: Final = ("database", "db", "dbname", "db_name", "database_name", "keyspace")


def thrown_away(deed: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call names only what was made to be thrown away."""
    asked = AskedFor("", spoken(deed), deed, arguments)
    return _THROWAWAY in marked(asked, members_of(arguments), vocabulary(), frozenset({_THROWAWAY}))
